"""Paths and other names that users choose, made safe for messages and log lines; kernel names.

A log file may be any file, a shell's start-up file included. So a name in a line contains no
line end and no control character, and what a shell would not read as one word is quoted.
Imports nothing at its start, because pump-run imports it.
"""

from __future__ import annotations

KERNEL_LENGTH = 80
REFERENCES_MOST = 32
"""Of a mangled name to its own parts: nested, each can double the length of the C++ name."""
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
"""Programs and modules that start another one: a job is called by that one's script."""
_VALUED_BY_SHELLS = ("-o", "-O")
_VALUED_BY_PYTHON = ("-W", "-X", "--check-hash-based-pycs")
"""Options whose value is the next word."""


def quoted(name: str) -> str:
    """`name`, in single quotes unless it is one plain word; as pump_quoted of shim/base/log.c."""
    if name and all(c in _PLAIN or (c > "\x7f" and c.isprintable()) for c in name):
        return name
    return f"'{escaped(name)}'"


def escaped(name: str) -> str:
    """`name` for use between single quotes: backslashes doubled, quotes and what cannot be
    printed as the \\xNN of their bytes."""
    return "".join(_escape(c) for c in name)


def one_line(text: str) -> str:
    """`text` without line ends, and with \\xNN for what else cannot be printed."""
    return "".join(c if c.isprintable() else _bytes(c) for c in " ".join(text.split()))


def printable(text: str) -> str:
    """`text` with "?" for what cannot be printed."""
    return "".join(c if c.isprintable() else "?" for c in text)


def readable_kernel(name: str) -> str:
    """Returns a kernel's C++ name without return type, parameters and the namespaces of template
    arguments, and a name that is not mangled as it is; both cut after KERNEL_LENGTH characters."""
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
    """Returns the name of a job without --name, which checks.name accepts."""
    return printable(of_command(command)).strip()[:64].strip() or "job"


def of_command(words: list[str]) -> str:
    """What people call a command: the file name of the script or the module that an interpreter or
    a starter such as torchrun runs, else the program's own. words: one at least."""
    name, rest = _file(words[0]), list(words[1:])
    if name in _SHELLS or name.startswith(("python", "pypy")):
        name, rest = _script(name, rest)
    if name in _STARTERS:
        return next((_file(word) for word in rest if word.endswith(".py")), name)
    return name


def _script(interpreter: str, rest: list[str]) -> tuple[str, list[str]]:
    """The script or module that an interpreter runs, and the words behind it; the interpreter
    where it runs a text or what it reads."""
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
            return _file(word), rest
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


def _file(path: str) -> str:
    return path.rpartition("/")[2] or path


def _escape(character: str) -> str:
    if character == "\\":
        return "\\\\"
    return character if character.isprintable() and character != "'" else _bytes(character)


def _bytes(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte that is no UTF-8 (os.fsdecode)
        return f"\\x{ord(character) - 0xDC00:02x}"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))
