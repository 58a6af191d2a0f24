"""The handshake's layouts, and the mapping that a client gets."""

import fcntl
import os
import random
import re
import socket
from pathlib import Path

import pytest
from places import INCLUDE

from pumpd.common import link


def test_the_layouts_are_those_of_the_c_header() -> None:
    text = "".join((INCLUDE / name).read_text() for name in ("pump_abi.h", "pump_abi_layout.h"))

    def define(name: str) -> int:
        found = re.search(rf"#define {name} (\w+)", text)
        assert found, name
        return int(found[1], 0)

    # Static asserts tie these numbers to the compiler's.
    size = {m[1]: int(m[2]) for m in re.finditer(r"ASSERT_SIZE\((\w+), (\d+)\)", text)}
    at = {
        (m[1], m[2]): int(m[3]) for m in re.finditer(r"ASSERT_OFFSET\((\w+), (\w+), (\d+)\)", text)
    }
    assert define("PUMP_ABI_MAGIC") == link.ABI_MAGIC
    assert define("PUMP_HELLO_MAGIC") == link.HELLO_MAGIC
    assert define("PUMP_ABI_VERSION") == link.ABI_VERSION
    for name in ("OK", "VERSION", "REFUSED", "BUSY"):
        assert define(f"PUMP_WELCOME_{name}") == getattr(link, f"WELCOME_{name}")
    assert size["pump_shm"] == link.SHM_BYTES
    assert size["pump_header"] == link.HEADER_BYTES
    assert size["pump_hello"] == size["pump_welcome"] == link.HELLO.size
    for struct_name, third in (("pump_hello", "client_pid"), ("pump_welcome", "status")):
        offsets = [at[struct_name, f] for f in ("abi_version", third, "shm_bytes", "reserved")]
        assert offsets == [8, 12, 16, 24]
    header = [at["pump_header", f] for f in ("abi_version", "header_bytes", "shm_bytes")]
    assert [*header, at["pump_header", "client_pid"]] == [8, 12, 16, 24]


def test_a_right_hello_is_taken() -> None:
    assert link.check_hello(link.pack_hello(77)) == (link.WELCOME_OK, "ok")


@pytest.mark.parametrize(
    ("field", "value", "status"),
    [
        (0, 1, link.WELCOME_REFUSED),
        (1, link.ABI_VERSION + 1, link.WELCOME_VERSION),
        (3, link.SHM_BYTES - 4096, link.WELCOME_VERSION),
        (3, 2**64 - 1, link.WELCOME_VERSION),
        (8, 1, link.WELCOME_REFUSED),
    ],
)
def test_each_wrong_field_of_a_hello_has_its_answer(field: int, value: int, status: int) -> None:
    fields = list(link.HELLO.unpack(link.pack_hello(77)))
    fields[field] = value
    answer, reason = link.check_hello(link.HELLO.pack(*fields))
    assert answer == status
    assert reason != "ok"


def test_no_bytes_whatever_confuse_the_hello_parser() -> None:
    source = random.Random(20240)
    good = link.pack_hello(1)
    for _ in range(20_000):
        data = bytearray(good)
        for _ in range(source.randrange(1, 4)):
            data[source.randrange(len(data))] = source.randrange(256)
        if source.random() < 0.2:
            data = bytearray(source.randbytes(source.randrange(0, 200)))
        status, _ = link.check_hello(bytes(data))
        pid_only = data[:12] == good[:12] and data[16:] == good[16:]
        assert (status == link.WELCOME_OK) == (len(data) == 64 and pid_only)


def test_the_mapping_is_sized_sealed_and_marked() -> None:
    memfd = link.create_memfd(4321)
    try:
        assert os.fstat(memfd).st_size == link.SHM_BYTES
        seals = fcntl.fcntl(memfd, fcntl.F_GET_SEALS)
        assert seals == fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        for length in (0, link.SHM_BYTES - 1, link.SHM_BYTES + 1):
            with pytest.raises(PermissionError):
                os.ftruncate(memfd, length)
        header = os.pread(memfd, link.HEADER_BYTES, 0)
        assert link.HEADER_START.unpack_from(header) == (
            link.ABI_MAGIC,
            link.ABI_VERSION,
            link.HEADER_BYTES,
            link.SHM_BYTES,
            4321,
        )
        rest = header[link.HEADER_START.size :]
        assert rest == bytes(len(rest)), "no worker has begun, so there is no heartbeat"
        assert os.fstat(memfd).st_blocks * 512 < 64 << 10, "costs memory only when touched"
    finally:
        os.close(memfd)


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    link.bind_listener(path, 1).close()
    assert not link.answers(path)
    with link.bind_listener(path, 1):
        assert link.answers(path)
    assert Path(path).stat().st_mode & 0o777 == 0o600


def test_a_socket_on_which_a_process_answers_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with (
        link.bind_listener(path, 1),
        pytest.raises(FileExistsError, match="another pumpd already listens"),
    ):
        link.bind_listener(path, 1)


def test_a_file_that_is_no_socket_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.write_text("precious")
    with pytest.raises(OSError, match="in use"):
        link.bind_listener(str(path), 1)
    assert path.read_text() == "precious"


def test_a_listener_with_a_full_backlog_counts_as_answering(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with link.bind_listener(path, 0):
        waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(path)
        assert link.answers(path)
        for one in waiting:
            one.close()
