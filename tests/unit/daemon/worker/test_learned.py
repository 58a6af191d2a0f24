"""The file that a worker keeps of a program for its next run, and its handling of bad files."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import random
import resource
import stat
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from fake_client import FakeClient, ffi, lib

from pump.model.event_log import ACCESS, STEP, EventLog
from pump.policy import by_name
from pumpd.worker import learned_files
from pumpd.worker.learned_files import Folder, decode, encode, name_of, sketch
from pumpd.worker.worker import Worker

SET_UP = list(range(1000, 1100))
ITERATION = [*range(1, 101), *range(100, 0, -1)]
RANGES = 24


class Run:
    """A run of a program, which only its functions distinguish from others."""

    def __init__(self, folder: Path | None) -> None:
        self.client = FakeClient(RANGES)
        learned = str(folder) if folder else ""
        self.worker = Worker(self.client.mapping, by_name("planned"), learned_folder=learned)
        self.slots = [self.client.alloc(2) for _ in range(RANGES)]
        self.worker.tick()

    def play(self, functions: Sequence[int]) -> float:
        """Returns the share of these operations that were predicted with their blocks."""
        before = self.worker.model.totals().predicted
        for function in functions:
            seq = self.client.launch([self.slots[function % RANGES]], function=function)
            self.worker.tick()
            self.client.execute(seq)
        return float(self.worker.model.totals().predicted - before) / len(functions)

    def end(self) -> None:
        self.worker.finish_learning()
        self.client.close()


def whole(folder: Path | None, *, iterations: int = 3, shift: int = 0) -> list[float]:
    """Runs set-up and iterations; returns the share of each iteration that was predicted."""
    run = Run(folder)
    run.play([shift + function for function in SET_UP])
    shares = [run.play([shift + function for function in ITERATION]) for _ in range(iterations)]
    run.end()
    return shares


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "pump" / "learned"


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def event_log(folder: Path) -> EventLog:
    opened = Folder(str(folder))
    with contextlib.closing(opened):
        return opened.read(files(folder)[0])


def made_up(seed: int, operations: int = 600) -> EventLog:
    dice = random.Random(seed)
    steps = np.zeros(operations, STEP)
    steps["key"] = [dice.randrange(1, 1 << 63) for _ in range(operations)]
    steps["count"] = 1
    return EventLog(steps, np.zeros(operations, ACCESS))


def test_the_second_run_predicts_its_first_iteration(folder: Path) -> None:
    first = whole(folder)
    assert first[0] < 0.1
    assert first[2] >= 0.9
    again = whole(folder)
    assert min(again) >= 0.99
    assert len(files(folder)) == 1


def test_rows_are_those_of_the_contract() -> None:
    for dtype, struct_name in ((STEP, "pump_learner_step"), (ACCESS, "pump_access")):
        fields = dict(ffi.typeof(f"struct {struct_name}").fields)
        assert dtype.itemsize == ffi.sizeof(f"struct {struct_name}")
        assert {name: dtype.fields[name][1] for name in dtype.names} == {
            name: field.offset for name, field in fields.items()
        }


def test_without_a_folder_nothing_is_kept() -> None:
    run = Run(None)
    run.play(SET_UP)
    assert run.worker.model.kept_operations() == 0
    run.end()


def test_folder_and_files_are_the_users_alone(folder: Path) -> None:
    os.umask(before := os.umask(0))
    whole(folder)
    os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]


def test_a_run_that_was_broken_off_does_not_replace_a_longer_one(folder: Path) -> None:
    whole(folder, iterations=8)
    kept = folder / files(folder)[0]
    content = kept.read_bytes()
    os.utime(kept, (0, 0))
    whole(folder, iterations=6)
    assert kept.read_bytes() == content
    assert kept.stat().st_mtime > 0, "it was used"
    whole(folder, iterations=9)
    assert kept.read_bytes() != content


def test_a_run_of_few_operations_is_not_kept(folder: Path) -> None:
    run = Run(folder)
    run.play(SET_UP)
    run.end()
    assert not folder.exists() or files(folder) == []


def test_programs_that_begin_alike_are_told_apart_later(folder: Path) -> None:
    for shift in (0, 5000):
        run = Run(folder)
        run.play(SET_UP)
        for _ in range(6 if shift else 3):
            run.play([shift + function for function in ITERATION])
        run.end()
    assert len(files(folder)) == 2
    run = Run(folder)
    run.play(SET_UP)
    run.play(ITERATION[:60])
    assert run.play(ITERATION[60:]) >= 0.9
    run.end()


# ---- bad files and folders --------------------------------------------------------------------


def changed(data: bytes, seed: int, changes: int = 3) -> bytes:
    """Changes a few bytes, and corrects the checksum."""
    dice, content = random.Random(seed), bytearray(data)
    for _ in range(changes):
        content[dice.randrange(16, len(content))] = dice.randrange(256)
    return summed(bytes(content))


def summed(data: bytes) -> bytes:
    return data[:12] + struct.pack("<I", zlib.crc32(data[16:])) + data[16:]


def with_body(data: bytes, body: bytes, **counts: int) -> bytes:
    magic, version, total, keys, operations, steps, accesses, _ = learned_files.HEAD.unpack_from(
        data
    )
    sketched = data[learned_files.HEAD.size : learned_files.HEAD.size + 8 * keys]
    numbers = counts.get("steps", steps), counts.get("accesses", accesses), len(body)
    head = learned_files.HEAD.pack(magic, version, total, keys, operations, *numbers)
    return summed(head + sketched + body)


def bomb(data: bytes) -> bytes:
    return with_body(data, zlib.compress(bytes(64 << 20)))


BAD: dict[str, Callable[[bytes], bytes]] = {
    "random": lambda data: random.Random(1).randbytes(len(data)),
    "random behind its head": lambda data: data[:32] + random.Random(1).randbytes(len(data)),
    "cut": lambda data: data[: len(data) // 2],
    "without a body": lambda data: data[:100],
    "empty": lambda _: b"",
    "longer": lambda data: data + b"x",
    "of another version": lambda data: data[:8] + b"\x09" + data[9:],
    "too large": lambda data: data + bytes(learned_files.FILE_BYTES_MAX),
    "a bomb": bomb,
    "of too many steps": lambda data: with_body(data, b"", steps=1 << 31),
    "of too many accesses": lambda data: with_body(data, b"", accesses=(1 << 32) - 1),
}


@pytest.mark.parametrize("what", BAD)
def test_a_file_that_makes_no_sense_is_as_none(folder: Path, what: str) -> None:
    plain = whole(folder)
    path = folder / files(folder)[0]
    bad = BAD[what](path.read_bytes())
    with pytest.raises(ValueError, match=r"it|another|number"):
        decode(bad)
    path.write_bytes(bad)
    before = whole(None)
    if what == "random":
        path.unlink()  # foreign files are not replaced
        path.write_bytes(b"")
    assert whole(folder) == before == plain
    assert min(whole(folder)) >= 0.99, "it has been replaced"


@pytest.mark.parametrize("seed", range(40))
def test_what_is_decoded_is_within_the_bounds_of_the_contract(seed: int) -> None:
    good = encode(made_up(seed, 300))
    plain = zlib.decompress(good[learned_files.HEAD.size + 8 * 300 :])
    body = changed(bytes(16) + plain, seed, 20)[16:]
    for data in (changed(good, seed), with_body(good, zlib.compress(body))):
        with contextlib.suppress(ValueError):
            found = decode(data)
            assert (found.steps["what"] <= lib.PUMP_LEARNER_LOST).all()
            assert (found.steps["count"] <= lib.PUMP_MAX_EXTENTS).all()
            assert found.steps["count"].sum() == len(found.accesses)
            assert (found.accesses["slot"] < lib.PUMP_MAX_RANGES).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_hostile_story_costs_predictions_and_nothing_else(folder: Path, seed: int) -> None:
    """The file has the program's own keys, but random accesses and starts of ranges."""
    whole(folder)
    steps, accesses = event_log(folder)
    dice = np.random.default_rng(seed)
    operation = steps["what"] == lib.PUMP_LEARNER_OPERATION
    steps["stream"] = dice.integers(0, lib.PUMP_MAX_STREAMS, len(steps))
    steps["kind"] = dice.integers(0, 1 << 16, len(steps))
    steps["length_bytes"] = dice.integers(0, 1 << 63, len(steps))
    steps["what"] = np.where(operation, 0, dice.integers(1, 4, len(steps)))
    steps["slot"] = dice.integers(0, lib.PUMP_MAX_RANGES, len(steps))
    accesses["slot"] = dice.integers(0, RANGES, len(accesses))
    for name in ("offset_bytes", "length_bytes"):
        accesses[name] = dice.integers(0, 1 << 63, len(accesses))
    accesses["access"] = dice.integers(0, 1 << 32, len(accesses))
    path = folder / files(folder)[0]
    path.write_bytes(encode(EventLog(steps, accesses)))
    run = Run(folder)
    run.play(SET_UP)
    for _ in range(3):
        run.play(ITERATION)
    assert run.play(ITERATION) >= 0.9
    run.end()


def test_a_second_run_looks_two_iterations_ahead_however_the_first_one_ended(
    folder: Path,
) -> None:
    run = Run(folder)
    for functions in (SET_UP, ITERATION, ITERATION, ITERATION, [RANGES] * 400):
        run.play(functions)
    run.end()
    run = Run(folder)
    run.play(SET_UP)
    for _ in range(2):
        run.play(ITERATION)
        assert run.worker.model.totals().expected >= 2 * len(ITERATION) - 1
    run.end()


def test_another_programs_file_is_not_recalled(folder: Path) -> None:
    whole(folder, shift=10_000)
    assert whole(folder) == whole(None)
    assert len(files(folder)) == 2


@pytest.mark.parametrize("how", ["mode", "symbolic link", "hard link", "folder", "pipe"])
def test_a_file_that_others_may_have_written_is_not_read(folder: Path, how: str) -> None:
    whole(folder)
    path = folder / files(folder)[0]
    aside = folder.parent / "aside"
    if how == "mode":
        path.chmod(0o620)
    elif how == "hard link":
        os.link(path, aside)
    else:
        path.rename(aside)
        {
            "symbolic link": lambda: path.symlink_to(aside),
            "folder": path.mkdir,
            "pipe": lambda: os.mkfifo(path, 0o600),
        }[how]()
    run = Run(folder)
    assert run.play(SET_UP) < 0.1
    run.end()


@pytest.mark.parametrize("mode", [0o750, 0o707, 0o720])
def test_a_folder_that_others_may_enter_is_neither_read_nor_written(
    folder: Path, mode: int
) -> None:
    whole(folder)
    content = (folder / files(folder)[0]).read_bytes()
    folder.chmod(mode)
    assert whole(folder, iterations=9) == whole(None, iterations=9)
    assert (folder / files(folder)[0]).read_bytes() == content


def test_a_folder_that_cannot_be_made_is_no_harm(tmp_path: Path) -> None:
    (tmp_path / "pump").write_text("a file")
    assert whole(tmp_path / "pump" / "learned") == whole(None)


def test_no_folder_is_made_in_another_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With sudo that keeps HOME, the folder would be root's, and would lock the user out."""
    other = os.geteuid() + 12345
    if os.geteuid() == 0:
        os.chown(tmp_path, other, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: other)
    whole(tmp_path / "pump" / "learned")
    assert not (tmp_path / "pump").exists()


@pytest.fixture
def small_files() -> Iterator[None]:
    """Limits the files of this process to 1,000 bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_on_a_full_disk_the_older_file_stays(folder: Path, request: pytest.FixtureRequest) -> None:
    whole(folder)
    content = (folder / files(folder)[0]).read_bytes()
    assert len(content) > 1000
    run = Run(folder)
    run.play([*SET_UP, *ITERATION * 5])
    request.getfixturevalue("small_files")
    run.end()
    assert len(files(folder)) == 1, "no draft is left"
    assert (folder / files(folder)[0]).read_bytes() == content


# ---- the folder ------------------------------------------------------------------------------


def test_the_oldest_files_leave(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_files, "FILES_MAX", 3)
    opened = Folder(str(folder))
    names = []
    for seed in range(5):
        kept = made_up(seed)
        names.append(name_of(sketch(kept.keys())))
        opened.write(names[-1], encode(kept))
        os.utime(folder / names[-1], (100 + seed, 100 + seed))
        if seed == 2:
            opened.read(names[0])
    opened.close()
    assert files(folder) == sorted([names[0], names[3], names[4]])


def test_all_files_together_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(encode(made_up(0)))
    monkeypatch.setattr(learned_files, "FOLDER_BYTES_MAX", 2 * size + size // 2)
    opened = Folder(str(folder))
    for seed in range(5):
        kept = made_up(seed)
        opened.write(name_of(sketch(kept.keys())), encode(kept))
    opened.close()
    assert len(files(folder)) == 2


def test_drafts_of_killed_workers_leave_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole(folder)
    draft = folder / (files(folder)[0] + ".part-0123abcd")
    draft.write_bytes(b"")
    os.utime(draft, (100, 100))
    (folder / "the user's own").write_text("")
    monkeypatch.setattr(learned_files, "FILES_MAX", 1)
    whole(folder, iterations=9)
    assert not draft.exists()
    assert (folder / "the user's own").exists()


def test_too_large_a_story_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Folder(str(folder))
    data = encode(made_up(1))
    monkeypatch.setattr(learned_files, "FILE_BYTES_MAX", len(data) - 1)
    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        opened.write("0" * 16 + ".learned", data)
    opened.close()
    assert files(folder) == []


def write_often(path: str, name: str, seed: int) -> None:
    opened = Folder(path)
    data = encode(made_up(seed, 3000))
    for _ in range(50):
        opened.write(name, data)


def test_two_writers_leave_one_whole_file(folder: Path) -> None:
    name = "0123456789abcdef.learned"
    Folder(str(folder)).close()
    context = multiprocessing.get_context("fork")
    writers = [
        context.Process(target=write_often, args=(str(folder), name, seed)) for seed in range(2)
    ]
    for writer in writers:
        writer.start()
    reader, seen = Folder(str(folder)), set()
    while any(writer.is_alive() for writer in writers):
        with contextlib.suppress(FileNotFoundError):
            seen.add(int(reader.read(name).steps["key"][0]))
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    reader.close()
    assert files(folder) == [name]
    assert seen <= {int(made_up(seed, 3000).steps["key"][0]) for seed in range(2)}
