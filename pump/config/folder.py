"""Selects the settings of a folder's own pump.toml that apply, by Setting.folder.

The file may have come with a folder that the user has cloned or unpacked. A file that --config
names may set everything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pump.base.names import quoted
from pump.config.files import FileValues
from pump.config.settings import AT_ONCE, JOB, NEVER, TRUSTED, Layer


def absolute(path: str) -> str:
    """Returns the path under which a file is trusted, with all links in its folder resolved."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)


def asks(found: FileValues, when: str) -> list[str]:
    """Returns the settings of a file that apply at `when` (AT_ONCE, TRUSTED, NEVER)."""
    return [key for key in found.tables.get("job", {}) if JOB[key].folder == when]


def outside(record: str, folder: str) -> bool:
    """Returns whether an absolute path is outside of an absolute folder. Compares only texts."""
    return not record.startswith(os.path.join(folder, ""))


def allowed(layer: Layer, found: FileValues, path: str, environ: Mapping[str, str]) -> Layer:
    """Returns the settings of a folder's file that apply, with a note about the others."""
    wanted, never = asks(found, TRUSTED), asks(found, NEVER)
    values = {key: layer.values[key] for key in asks(found, AT_ONCE)}
    ignored, remedies, beneath = list(never), [], ""
    if never:
        remedies.append(f"set {' or '.join(never)} with an option, because no folder's file may")
    if wanted:
        whole = absolute(path)
        reason = _distrust(whole, found.content, environ)
        if reason:
            ignored += wanted
            remedies.append(reason)
        else:
            values |= {key: layer.values[key] for key in wanted}
    if "record" in values:
        folder = os.path.dirname(whole)
        if outside(values["record"], folder):
            ignored.append("record")
            remedies.append(f"record must be in {quoted(folder)}, or use --record")
            del values["record"]
        else:
            beneath = folder
    notes: tuple[str, ...] = ()
    if ignored:
        names = ", ".join(f"{key} (line {found.lines.get(('job', key), 1)})" for key in ignored)
        notes = (f"{found.path}: ignoring {names}: {'; '.join(remedies)}",)
    origins = {key: layer.origins[key] for key in values}
    return Layer(values, origins, notes, beneath)


def _distrust(path: str, content: bytes, environ: Mapping[str, str]) -> str:
    """Returns why the file is not trusted, with the remedy; "" if it is trusted."""
    from pump.config import trust  # few files need it

    try:
        if trust.trusted(path, content, environ):
            return ""
    except trust.TrustError as error:
        return str(error)
    return "this folder's file is not trusted; read it, then: pump config trust"
