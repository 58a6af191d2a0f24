"""Runs code in forked processes of other users, for tests as root."""

from __future__ import annotations

import codecs
import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pump.wire import service as wire

codecs.lookup("ascii")  # now, because another user may be unable to read Python's own files
ATTACKER, VICTIM = 12345, 12346
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become other users")


def as_user(user: int, code: Callable[[], str]) -> str:
    """Returns the result of `code` in a process of another user, or the text of its error."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            told = code()
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writer, told.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        told = answer.read()
    os.waitpid(child, 0)
    return told


@contextlib.contextmanager
def serving(path: Path, user: int) -> Iterator[int]:
    """Runs a false service of `user` that welcomes all and grants nothing; yields its pid."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(user)
            os.setuid(user)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(str(path))
                path.chmod(0o666)
                listener.listen(16)
                os.write(told, b"1")
                while True:
                    one, _ = listener.accept()
                    with contextlib.suppress(OSError):  # the client does not trust us
                        one.send(wire.pack_welcome(wire.OK, wire.VERSION))
        finally:
            os._exit(1)
    os.close(told)
    assert os.read(ready, 1) == b"1", "the attacker serves"
    os.close(ready)
    try:
        yield child
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
