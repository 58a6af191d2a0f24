"""Makes paths and other user-chosen names safe for messages and log lines; shortens kernel names.

A log file may be any file, even a shell's start-up file. So a name in a log line contains no line
end and no control character, and is quoted unless a shell reads it as one word.
Imports nothing at its start, because pump-run imports the module.
"""

from __future__ import annotations

KERNEL_LENGTH = 80
REFERENCES_MOST = 32
"""Most references of a mangled name to its own parts: each can double the C++ name's length."""
_CXX_LIBRARY = "libstdc++.so.6"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_")


_SHELLS = frozenset(("sh", "ash", "bash", "dash", "ksh", "zsh"))
_STARTERS = frozenset(
    (
        *("accelerate", "deepspeed", "torchrun", "mpiexec", "mpirun", "srun"),
        *("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"),
        *("conda", "uv", "nsys", "ncu", "numactl", "taskset"),
        *("env", "nice", "nohup", "setsid", "stdbuf", "time", "timeout"),
    )
)
"""Programs and modules that start another program, whose script gives the job its name."""
_VALUED_BY_SHELLS = ("-o", "-O")
_VALUED_BY_PYTHON = ("-W", "-X", "--check-hash-based-pycs")
"""Options that take the next argument as their value."""


def quoted(name: str) -> str:
    """Returns `name`, in single quotes unless it is one plain word, like pump_quoted of
    shim/base/log.c."""
    if name and all(c in _PLAIN or (c > "\x7f" and c.isprintable()) for c in name):
        return name
    return f"'{escaped(name)}'"


def escaped(name: str) -> str:
    """Returns `name` for use between single quotes: doubles backslashes, and replaces quotes and
    unprintable characters by the \\xNN of their bytes."""
    return "".join(_escape(c) for c in name)


def one_line(text: str) -> str:
    """Returns `text` on one line, with \\xNN for unprintable characters."""
    return "".join(c if c.isprintable() else _escaped_bytes(c) for c in " ".join(text.split()))


def printable(text: str) -> str:
    """Returns `text` with "?" for unprintable characters."""
    return "".join(c if c.isprintable() else "?" for c in text)


def readable_kernel(name: str) -> str:
    """Returns a kernel's C++ name without return type, parameters and namespaces of template
    arguments. A name that is not mangled stays unchanged. Cuts both to KERNEL_LENGTH characters."""
    if (text := _demangled(name)) != name:
        text = _without_types(text)
    return printable(text if len(text) <= KERNEL_LENGTH else text[: KERNEL_LENGTH - 1] + "…")


def _without_types(function: str) -> str:
    import re

    text = re.sub(r"\(anonymous namespace\)::|\[abi:[^]]*\]", "", function)
    start, end, depth = 0, len(text), 0
    for at, character in enumerate(text):
        if depth == 0 and character == "(":
            end = at
            break
        if depth == 0 and character == " ":
            start = at + 1
        depth += (character in "<({") - (character in ">)}" and text[at - 1] != "-")
    function, angle, arguments = text[start:end].partition("<")
    return function + angle + re.sub(r"\b\w+::(?=\w)", "", arguments).replace("> >", ">>")


def of_job(command: list[str]) -> str:
    """Returns a name for a job without --name; checks.name accepts it."""
    return printable(of_command(command)).strip()[:64].strip() or "job"


def of_command(words: list[str]) -> str:
    """Returns a short name for a command. This is the script or module that an interpreter or a
    starter such as torchrun runs, else the program's own file name. words: at least one."""
    name, rest = _last_part(words[0]), list(words[1:])
    if name in _SHELLS or name.startswith(("python", "pypy")):
        name, rest = _script(name, rest)
    if name in _STARTERS:
        return next((_last_part(word) for word in rest if word.endswith(".py")), name)
    return name


def _script(interpreter: str, rest: list[str]) -> tuple[str, list[str]]:
    """Returns the script or module that an interpreter runs, and the arguments after it. Returns
    the interpreter if it runs code from an argument or from standard input."""
    is_shell = interpreter in _SHELLS
    while rest:
        word = rest.pop(0)
        if word == "-m" and rest and not is_shell:
            return rest.pop(0), rest
        if word == "-" or (word[:1] == "-" and word[1:2] != "-" and word.endswith("c")):
            break
        if word in (_VALUED_BY_SHELLS if is_shell else _VALUED_BY_PYTHON):
            rest[:1] = []
        elif not word.startswith("-"):
            return _last_part(word), rest
    return interpreter, []


def _demangled(name: str) -> str:
    """Returns the C++ name of a mangled one; `name` if it is not mangled or could become very long,
    or if this machine has no C++ library."""
    import ctypes
    import re

    if not name.startswith("_Z") or len(re.findall("[ST][0-9A-Z]*_", name)) > REFERENCES_MOST:
        return name
    try:
        library = ctypes.CDLL(_CXX_LIBRARY)
        demangle, free = library.__cxa_demangle, library.free
    except (OSError, AttributeError):
        return name
    demangle.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 3]
    demangle.restype = ctypes.c_void_p
    free.argtypes, free.restype = [ctypes.c_void_p], None
    found = demangle(name.encode(errors="replace"), None, None, None)
    if not found:
        return name
    text = ctypes.string_at(found).decode(errors="replace")
    free(found)
    return text


def _last_part(path: str) -> str:
    return path.rpartition("/")[2] or path


def _escape(character: str) -> str:
    if character == "\\":
        return "\\\\"
    return character if character.isprintable() and character != "'" else _escaped_bytes(character)


def _escaped_bytes(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte that is not UTF-8 (os.fsdecode)
        return f"\\x{ord(character) - 0xDC00:02x}"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))
