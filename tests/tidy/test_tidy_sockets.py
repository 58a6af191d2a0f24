"""Every client of a socket checks which user serves it (docs/decisions/0032-who-serves.md)."""

from __future__ import annotations

import ast
import re

from tidy_sources import files, name, python_files, text

CONNECTS = {"connect", "connect_ex", "create_connection", "sendto", "sendmsg"}
SAY_NOTHING = {
    "daemon/pumpd/common/link.py": {"answers"},
    "pump/cli/metrics/answers.py": {"_clear"},
}
"""These functions only test whether a process listens, and close the connection."""
SEND_ONLY = {"daemon/pumpd/service/sdnotify.py": {"notify"}}
"""Sends datagrams to the manager: the kernel knows no server of these, and nothing is received."""


def _connecting(path: str, tree: ast.Module) -> set[str]:
    """Returns the functions that connect a socket."""
    return {
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in CONNECTS
        and ast.unparse(call.func) != "request_reply.connect"
        and "server.check" not in ast.unparse(function)
    }


def test_no_client_in_python_speaks_to_a_server_that_it_has_not_checked() -> None:
    found = {
        name(path): unchecked
        for path in python_files("pump/", "daemon/")
        if (unchecked := _connecting(name(path), ast.parse(text(path))))
    }
    assert found == SAY_NOTHING | SEND_ONLY


def test_each_connection_of_the_shim_is_checked() -> None:
    shim = {name(path): text(path) for path in files() if name(path).startswith("shim/")}
    connects = {path for path, code in shim.items() if re.search(r"\bconnect\(", code)}
    assert connects == {"shim/link/trust.c"}
    functions = re.split(r"^}$", shim["shim/link/connect.c"], flags=re.MULTILINE)
    callers = [one for one in functions if re.search(r"(?<!int )pump_link_connect\(", one)]
    assert len(callers) == 2 and all("pump_link_trusts(number, path)" in one for one in callers)
