"""Manages the user's list of trusted files of folders (pump.toml), by absolute path and content.

A private file of the user contains one SHA-256 for each path, so a changed file loses its trust.
Imported only for folders' files with settings that need trust (Setting.folder), and by
`pump config`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping

from pump.base import folders, inputs, outputs, paths
from pump.base.names import quoted

STORE_BYTES_MAX = 1 << 20
PATHS_MAX = 1000
WAIT_S = 10.0
"""Longest wait for another process that changes the list: a change takes milliseconds."""


class TrustError(Exception):
    """One line: why the user's list of trusted files cannot be read or written."""


def store_path(environ: Mapping[str, str]) -> str:
    """Returns the path of the list: $XDG_STATE_HOME/pump/trusted.json, else below ~/.local/state.
    Raises TrustError if the environment names no home."""
    path = paths.users_path(environ, "XDG_STATE_HOME", ".local/state", "pump/trusted.json")
    if not path:
        raise TrustError(
            "HOME is not set, so pump has no place for the list of trusted files; set HOME"
        )
    return path


def digest(content: bytes) -> str:
    """Returns the SHA-256 of a file's content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def trusted(path: str, content: bytes, environ: Mapping[str, str]) -> bool:
    """Returns whether the user trusts the file at the absolute `path` with this content.
    Raises TrustError if other users could access the list."""
    return _read(store_path(environ)).get(path) == digest(content)


def change(path: str, content: bytes | None, environ: Mapping[str, str]) -> bool:
    """Trusts the file at the absolute `path` with this content; None: revokes its trust. Returns
    whether the list changed. Raises TrustError."""
    store = store_path(environ)
    try:
        folders.make(os.path.dirname(store), 0o700)
        with _alone(os.path.dirname(store)):
            known = _read(store)
            before = known.get(path)
            if content is None:
                known.pop(path, None)
            else:
                known[path] = digest(content)
            if len(known) > PATHS_MAX:
                raise TrustError(
                    f"{quoted(store)} already has {PATHS_MAX} files; revoke some, or remove it"
                )
            if known.get(path) != before:
                text = json.dumps(known, indent=1, sort_keys=True) + "\n"
                outputs.write(store, text, outputs.TRUST, mode=0o600)
            return known.get(path) != before
    except OSError as error:
        raise TrustError(f"cannot write {quoted(store)}: {error.strerror}") from None


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Locks the list against changes by other processes. Raises TrustError after WAIT_S, because
    other users can lock a folder that is open to them."""
    fd = folders.opened(folder)
    try:
        if not outputs.lock(fd, WAIT_S):
            raise TrustError(
                f"another process has locked {quoted(folder)}; wait for it, or run: chmod "
                f"700 {quoted(folder)}"
            )
        yield
    finally:
        os.close(fd)


def _read(store: str) -> dict[str, str]:
    try:
        with inputs.opened(store, follow=False) as file:
            status = os.fstat(file.fileno())
            data = file.read(STORE_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise TrustError(f"cannot read {quoted(store)}: {error.strerror}; remove it") from None
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise TrustError(f"other users can change {quoted(store)}; remove it")
    try:
        found = json.loads(data) if len(data) <= STORE_BYTES_MAX else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise TrustError(f"{quoted(store)} is not pump's list of trusted files; remove it")
    return found
