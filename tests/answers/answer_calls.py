"""Generates a C program that calls every driver function of the table with bad arguments.

Each pointer and handle is NULL in turn, each size is 0 and 2^63, and each handle belongs to a
destroyed object. The other arguments are right, as far as their types show. See answers.h.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from places import ROOT

STALE = (
    *("CUstream", "CUevent", "CUmodule", "CUfunction", "CUlibrary", "CUkernel", "CUgraph"),
    *("CUgraphNode", "CUgraphExec", "CUmemoryPool", "CUarray", "CUmipmappedArray"),
    *("CUuserObject", "CUmemGenericAllocationHandle", "CUdeviceptr", "CUcontext"),
)
"""Handle types that answers.h can create."""

NULL_HANDLES = ["CUgreenCtx", "CUexternalMemory"]

FILLED = {
    "CUlaunchConfig": "{.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, "
    ".blockDimY = 1, .blockDimZ = 1, .hStream = (CUstream)new_CUstream()}",
    "CUDA_LAUNCH_PARAMS": "{.function = (CUfunction)new_CUfunction(), .gridDimX = 1, "
    ".gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, "
    ".hStream = (CUstream)new_CUstream(), .kernelParams = (void **)spare + 8}",
    "CUDA_MEMCPY2D": "{.srcMemoryType = 1, .srcHost = spare, .dstMemoryType = 2, "
    ".dstDevice = new_CUdeviceptr(), .WidthInBytes = 8, .Height = 1}",
    "CUDA_MEMCPY3D": "{.srcMemoryType = 1, .srcHost = spare, .dstMemoryType = 2, "
    ".dstDevice = new_CUdeviceptr(), .WidthInBytes = 8, .Height = 1, .Depth = 1}",
    "CUmemAllocationProp": "{.type = 1, .location = {1, 0}}",
    "CUmemAccessDesc": "{{1, 0}, 3}",
    "CUmemPoolProps": "{.allocType = 1, .location = {1, 0}}",
    "CUmemLocation": "{1, 0}",
    "CUdeviceptr": "new_CUdeviceptr()",
    "CUgraphNode": "(CUgraphNode)new_CUgraphNode()",
    "CUDA_KERNEL_NODE_PARAMS_v1": "{.func = (CUfunction)new_CUfunction(), .gridDimX = 1, "
    ".gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, "
    ".kernelParams = (void **)spare + 8}",
    "CUDA_MEMSET_NODE_PARAMS_v1": "{.dst = new_CUdeviceptr(), .elementSize = 1, .width = 64, "
    ".height = 1}",
    "CUDA_HOST_NODE_PARAMS_v1": "{.fn = (CUhostFn)nothing}",
}
FILLED["CUDA_KERNEL_NODE_PARAMS_v2"] = FILLED["CUDA_KERNEL_NODE_PARAMS_v1"]
"""Initializers by type T for the target of a `T *` argument; other targets are zeroed."""


def ended(member: str, kind: str) -> dict[str, str]:
    """Returns a struct member that holds a stale handle."""
    return {f"ended-{member}": f".{member} = ({kind})stale(new_{kind})"}


SPOILT = {
    "CUlaunchConfig": {"no-attributes": ".numAttrs = 2", **ended("hStream", "CUstream")},
    "CUDA_LAUNCH_PARAMS": {
        "no-arguments": ".kernelParams = NULL",
        "no-kernel": ".function = NULL",
        **ended("function", "CUfunction"),
        **ended("hStream", "CUstream"),
    },
    "CUDA_MEMCPY2D": {
        "no-host": ".srcHost = NULL",
        "huge": ".WidthInBytes = 1ull << 63",
        **ended("dstDevice", "CUdeviceptr"),
    },
    "CUDA_MEMCPY3D": {
        "no-host": ".srcHost = NULL",
        "huge": ".Depth = 1ull << 63",
        **ended("dstDevice", "CUdeviceptr"),
    },
    "CUDA_KERNEL_NODE_PARAMS_v1": {
        "no-kernel": ".func = NULL",
        "no-arguments": ".kernelParams = NULL",
        **ended("func", "CUfunction"),
    },
    "CUDA_MEMSET_NODE_PARAMS_v1": {
        "huge": ".width = 1ull << 63",
        **ended("dst", "CUdeviceptr"),
    },
}
SPOILT["CUDA_KERNEL_NODE_PARAMS_v2"] = SPOILT["CUDA_KERNEL_NODE_PARAMS_v1"]
"""Bad members of a struct, by type; they are appended to the right members."""

TWINS = {"NONE": "", "SZ": "_ptsz", "DS": "_ptds", "EZ": "_ptsz"}
ENDS = re.compile("Destroy|Free|Unload|Release|Reset|EndCapture|Import")
UNSETTLES = re.compile("Ctx|Capture|ThreadExchange|PeerAccess|cuInit|Stream(Wait|Batch)|MemMap")
"""Functions after which the program resets the device and makes its primary context current."""


class Argument(NamedTuple):
    type: str
    name: str


class Function(NamedTuple):
    symbol: str
    arguments: tuple[Argument, ...]


def split(parameters: str) -> tuple[Argument, ...]:
    """Parses the arguments of a parameter list."""
    if parameters.strip() in ("", "void"):
        return ()
    found = []
    for one in parameters.split(","):
        match = re.fullmatch(r"(.*?)\s*(\w+)", " ".join(one.split()))
        assert match, one
        found.append(Argument(match[1], match[2]))
    return tuple(found)


def table() -> list[Function]:
    """Returns every function of the table, and the twins of hooked functions."""
    folder = ROOT / "shim" / "driver"
    text = "".join(path.read_text() for path in sorted(folder.glob("functions_*.h")))
    row = (
        r"PUMP_DRIVER\((\w+),\s*\w+,\s*(\w+),\s*(\w+),\s*\w+,\s*\d+,\s*\d+,\s*"
        r"\(([^()]*)\),\s*\([^()]*\)\)"
    )
    rows = re.findall(row, text)
    assert len(rows) == text.count("PUMP_DRIVER(") > 300
    found = []
    for does, twin, symbol, parameters in rows:
        found.append(Function(symbol, split(parameters)))
        if does == "HOOK" and twin != "NONE":
            found.append(Function(symbol + TWINS[twin], split(parameters)))
    return found


def base_of(argument: Argument) -> str:
    """Returns the pointed-to type of the argument, or its own type."""
    return argument.type.replace("const", "").replace("*", "").strip()


VALUES = {
    "const void *": "ptx",
    "CUtexObject": "0",
    "CUsurfObject": "0",
    "CUdevice": "0",
    "unsigned long long": "0",
    "cuuint64_t": "0",
    "CUmemLocation": "(CUmemLocation){1, 0}",
    "CUipcMemHandle": "(CUipcMemHandle){{0}}",
    "CUipcEventHandle": "(CUipcEventHandle){{0}}",
    **dict.fromkeys(NULL_HANDLES, "0"),
    **{
        kind: f"({kind})nothing"
        for kind in (
            "CUhostFn",
            "CUstreamCallback",
            "CUoccupancyB2DSize",
            "CUgraphRecaptureCallback",
        )
    },
    **{kind: f"({kind})new_{kind}()" for kind in STALE},
}
"""Right arguments by type."""


def pointed(argument: Argument, place: int, spoilt: str) -> str:
    """Returns a C expression for a valid pointer to the argument's own buffer."""
    if argument.name == "extra":
        return "NULL"
    if argument.type.endswith("**"):
        return f"(*(void **)buffers[{place}] = spare, pointed({place}))"
    base = base_of(argument)
    filled = FILLED.get(base)
    if filled is None:
        return f"pointed({place})"
    if spoilt:
        filled = f"{filled[:-1]}, {spoilt}}}"
    return f"(*({base} *)buffers[{place}] = ({base}){filled}, pointed({place}))"


def right(argument: Argument, place: int, spoilt: str = "") -> str:
    """Returns an expression for a right argument; only its member `spoilt` is bad."""
    kind, name = argument
    if kind == "const char *":
        return '"word"' if "lobal" in name else '"touch"'
    if kind in VALUES and (kind != "const void *" or name == "image"):
        return VALUES[kind]
    if kind.endswith("*"):
        return pointed(argument, place, spoilt)
    if kind == "size_t":
        return f'valid_size_for_parameter("{name}")'
    return "0" if "lags" in name or name == "value" else "1"


def bad(argument: Argument, place: int) -> list[tuple[str, str]]:
    """Returns the ways in which the argument can be bad, each with an expression."""
    kind = argument.type
    found = []
    if kind.endswith("*"):
        members = SPOILT.get(base_of(argument), {})
        found += [(how, right(argument, place, member)) for how, member in members.items()]
    if kind.endswith("*") or kind in NULL_HANDLES or kind in STALE:
        found.append(("null", "0"))
    if kind in STALE:
        found.append(("ended", f"({kind})stale(new_{kind})"))
    if kind == "size_t":
        found += [("zero", "0"), ("huge", "(size_t)1 << 63")]
    return found


def call(function: Function, spoilt: int, how: str, value: str) -> str:
    """Generates one call with `value` as argument number `spoilt`."""
    symbol, arguments = function
    name = arguments[spoilt].name if spoilt >= 0 else "-"
    lines = [f'  if (begin("{symbol}", "{name}", "{how}")) {{']
    for i, one in enumerate(arguments):
        lines.append(f"    {one.type} a{i} = {value if i == spoilt else right(one, i)};")
    given = ", ".join(f"a{i}" for i in range(len(arguments)))
    types = ", ".join(one.type for one in arguments) or "void"
    made = f"((CUresult(*)({types}))function)({given})"
    lines.append("    arguments_ready();")
    if symbol.startswith("cuLaunch"):
        lines.append(f"    for (int i = 1; i < TIMED; i++) {made};")
    lines.append(f"    answered({made}, {len(arguments)});")
    return "\n".join([*lines, "  }"])


def program() -> str:
    """Returns the source of the program. Its argument is the number of the first call to make."""
    bodies, calls = [], []
    for function in table():
        symbol = function.symbol
        ways = [(-1, "right", "")]
        for i, one in enumerate(function.arguments):
            ways += [(i, how, value) for how, value in bad(one, i)]
        made = "\n".join(call(function, *way) for way in ways)
        bodies.append(
            f"static void call_{symbol}(void) {{\n"
            f'  void *function = driver("{symbol}");\n'
            f"  int last = number + {len(ways)};\n"
            f"  if (function == NULL || last <= first_call) {{\n    number = last;\n"
            f"    return;\n  }}\n"
            f"  current_function_ends = {int(bool(ENDS.search(symbol)))};\n"
            f"{made}\n" + ("  enter_device(1);\n" if UNSETTLES.search(symbol) else "") + "}\n"
        )
        calls.append(f"  call_{symbol}();")
    main = (
        "int main(int count, char **arguments) {\n"
        "  first_call = count > 1 ? atoi(arguments[1]) : 0;\n"
        "  D(cuInit, 0u);\n  enter_device(0);\n  fill_device();\n"
        + "\n".join(calls)
        + "\n  return 0;\n}\n"
    )
    return '#include "tests/answers/answers.h"\n\n' + "\n".join(bodies) + "\n" + main
