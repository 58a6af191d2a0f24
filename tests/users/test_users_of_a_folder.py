"""Three users disturb a folder that all users may write to. The victim reads and writes her
settings, trusted files, recordings and reports there."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from users import ALICE, ATTACKERS, BOB, Say, as_user, needs_root, public_folder, together
from weak_installation import WEAK, made, refusal

from pump.base import outputs
from pump.config import layers, trust
from pump.trace import info, place
from pump.trace.format import TraceError

__all__ = ["made"]  # the fixture

pytestmark = needs_root

THESIS = "years of work"
SECRET = "what no other user may read"
MINE = '[job]\nbudget = "1GiB"\n'
THEIRS = '[job]\nbudget = "2GiB"\nrecord = "theirs"\nlog_file = "theirs"\n'
TURNS = 200
OTHER = '[job]\nbudget = "3GiB"\n'
"""The contents of another file of the victim."""
PAGE = "<!doctype html><title>pump report: "


class Shared:
    """The folder, and the victim's home with her files."""

    def __init__(self, base: Path) -> None:
        self.folder, self.home = base / "shared", base / "home"
        self.thesis, self.other = self.home / "thesis.tex", self.home / "other.toml"
        for folder in (self.folder, self.home, self.home / "b"):
            folder.mkdir()
        self.thesis.write_text(THESIS)
        self.other.write_text(OTHER)
        for path in (self.home, self.thesis, self.other):
            os.chown(path, ALICE, ALICE)

    @property
    def sticky(self) -> bool:
        """Returns whether the folder is sticky: then attackers keep the names that they took."""
        return bool(self.folder.stat().st_mode & 0o1000)

    def unharmed(self) -> bool:
        there = {path.name for path in self.home.rglob("*")}
        return self.thesis.read_text() == THESIS and there == {"thesis.tex", "other.toml", "b"}


@pytest.fixture(params=[0o777, 0o1777], ids=["open", "sticky"])
def shared(request: pytest.FixtureRequest) -> Iterator[Shared]:
    with public_folder() as base:
        one = Shared(base)
        one.folder.chmod(request.param)
        yield one


def puts(path: Path, data: bytes) -> None:
    """Makes a new file that is open to all."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def puts_at_once(path: Path, way: Callable[[Path], object]) -> None:
    """Replaces a path atomically: at each moment there is a file."""
    beside = path.with_name(f"beside.{os.getuid()}")
    way(beside)
    try:
        beside.rename(path)
    except OSError:
        (beside.rmdir if beside.is_dir() and not beside.is_symlink() else beside.unlink)()


def plants(say: Say, shared: Shared, names: list[str], content: bytes) -> None:
    """Puts files of all kinds at the victim's paths, and checks that no secret is readable."""
    source = random.Random(os.getuid())
    os.umask(0)
    ways: list[Callable[[Path], object]] = [
        lambda path: puts(path, content),
        lambda path: puts(path, b""),
        lambda path: puts(path, b"x" * 100_000),
        os.mkfifo,
        os.mkdir,
        lambda path: path.symlink_to(shared.thesis),
        lambda path: path.symlink_to(shared.other),
        lambda path: path.symlink_to(shared.home / "new"),
        lambda path: path.symlink_to(path.name),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(shared.home),
        lambda path: path.hardlink_to(shared.other),
        lambda path: path.rename(f"{path}.{os.getuid()}"),
        os.unlink,
        os.rmdir,
    ]
    ways += [lambda path, way=way: puts_at_once(path, way) for way in ways[:-3]]
    turn = 0
    while not say.told_to_end():
        turn += 1
        for name in names:
            with contextlib.suppress(OSError):
                source.choice(ways)(shared.folder / name)
        for path in shared.folder.iterdir():
            with contextlib.suppress(OSError):
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    assert SECRET.encode() not in os.read(fd, 4096), path
                finally:
                    os.close(fd)
        if turn == 50:
            say("plants")
    say("ends")


@contextlib.contextmanager
def planting(shared: Shared, names: list[str], content: bytes = b"") -> Iterator[None]:
    with together(plants, shared, names, content) as people:
        yield
        for one in people:
            one.end()
        assert [one.hear() for one in people] == ["ends"] * len(people)
    assert shared.unharmed()


# ---- settings ----


def resolves(shared: Shared, environ: dict[str, str]) -> set[str]:
    """Returns the effective budgets in a folder in which she sometimes writes her own file."""
    os.chdir(shared.folder)
    found = set()
    for turn in range(TURNS):
        with contextlib.suppress(OSError):
            if turn % 3 == 0:
                outputs.write("draft", MINE, outputs.UNIT)
                Path("draft").rename("pump.toml")
            elif turn % 3 == 2:
                Path("pump.toml").unlink()
        resolved = layers.resolve({}, environ, layers.places(None, environ))
        assert set(resolved.values) <= {"budget"}, resolved
        found.add(str(resolved.values.get("budget", "")))
    return found


def test_what_three_users_put_in_place_of_a_pump_toml_sets_nothing(shared: Shared) -> None:
    with planting(shared, ["pump.toml"], THEIRS.encode()):
        found = as_user(ALICE, resolves, shared, {"HOME": str(shared.home)})
    assert found <= {"", str(1 << 30)} and "" in found


def trusts(shared: Shared, environ: dict[str, str]) -> list[bool]:
    """Returns whether she trusts their file; they prevent her from trusting her own."""
    trust.WAIT_S = 0.02
    believed = []
    for _ in range(TURNS // 4):
        with contextlib.suppress(trust.TrustError):
            believed.append(trust.trusted("/shared/pump.toml", THEIRS.encode(), environ))
        with pytest.raises(trust.TrustError):
            trust.change("/mine/pump.toml", MINE.encode(), environ)
    return believed


def test_a_list_of_trust_that_three_users_put_in_place_is_not_believed(shared: Shared) -> None:
    """The state folder is open to all, and the attackers hold its locks."""
    environ = {"XDG_STATE_HOME": str(shared.folder)}
    (shared.folder / "pump").mkdir()
    os.chown(shared.folder / "pump", ALICE, ALICE)
    (shared.folder / "pump").chmod(0o777)
    trusting = {"/shared/pump.toml": trust.digest(THEIRS.encode())}
    with (
        planting(shared, ["pump/trusted.json"], json.dumps(trusting).encode()),
        together(holds_lock, shared.folder),
    ):
        assert True not in as_user(ALICE, trusts, shared, environ)


def holds_lock(say: Say, folder: Path) -> None:
    fd = os.open(folder / "pump", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    say("locks")
    signal.pause()


# ---- recordings and reports ----


def records(shared: Shared) -> list[str]:
    """Returns her recordings and reports that were written."""
    os.umask(0o077)
    where = place.open_folder(str(shared.folder / "run"))
    done = []
    for _ in range(TURNS):
        for name in ("run", "page"):
            with contextlib.suppress(OSError):
                (shared.folder / name).unlink()
        with contextlib.suppress(OSError):
            draft = place.Draft("run", where)
            os.write(draft.fd, outputs.TRACE_MAGIC + SECRET.encode())
            with contextlib.closing(draft):
                draft.publish()
            done.append("run")
        with contextlib.suppress(OSError):
            outputs.write(str(shared.folder / "page"), PAGE + SECRET, outputs.PAGE)
            done.append("page")
    return done


def test_what_three_users_put_in_place_of_a_recording_neither_leads_it_away_nor_reads_it(
    shared: Shared,
) -> None:
    with planting(shared, ["run", "page", "run.part-01234567"], PAGE.encode()):
        done = as_user(ALICE, records, shared)
    assert shared.sticky or {"run", "page"} <= set(done), "no attempt wrote both files"


def opens_beneath(shared: Shared) -> int:
    inside = str(shared.folder)
    found = 0
    for _ in range(5 * TURNS):
        with contextlib.suppress(OSError):
            (shared.folder / "a").mkdir()
        with contextlib.suppress(OSError):
            (shared.folder / "a" / "b").mkdir()
        with contextlib.suppress(OSError):
            fd = place.open_folder(f"{inside}/a/b/run", inside)
            there = Path(f"/proc/self/fd/{fd}").readlink()
            os.close(fd)
            assert there.is_relative_to(inside), there
            found += 1
    return found


def test_a_folder_that_three_users_swap_for_links_leads_no_recording_out(shared: Shared) -> None:
    with planting(shared, ["a", "a/b"]):
        opened = as_user(ALICE, opens_beneath, shared)
    assert opened or shared.sticky, "now and then it is a folder"


def reads(shared: Shared) -> int:
    """Counts failed reads. Each read ends in time; each error has one line."""
    refused = 0
    for _ in range(TURNS):
        for name in ("run", "pipe"):
            try:
                info.summary(str(shared.folder / name))
            except (TraceError, OSError) as error:
                assert "\n" not in str(error)
                refused += 1
    return refused


def test_what_three_users_put_in_place_of_a_recording_keeps_no_reader_waiting(
    shared: Shared,
) -> None:
    as_user(BOB, os.mkfifo, shared.folder / "pipe")
    with planting(shared, ["run", "run.part-01234567"], outputs.TRACE_MAGIC):
        assert as_user(ALICE, reads, shared) > TURNS


# ---- an installation ----


def replaces(made: Path, parts: list[str]) -> list[str]:
    """Returns the parts that this user could change in any way."""
    done = []
    for part in parts:
        path = made / part
        for attempt in (
            lambda path=path: path.rename(path.with_name("away")),
            lambda path=path: (path / "x").touch(),
            lambda path=path: path.open("ab").close(),
            lambda path=path: path.chmod(0o777),
        ):
            with contextlib.suppress(OSError):
                attempt()
                done.append(part)
    return done


def test_what_three_users_together_can_replace_of_an_installation_is_refused(made: Path) -> None:
    assert refusal(made) == ""
    for user in ATTACKERS:
        assert as_user(user, replaces, made, list(WEAK)) == [], "of what is taken"
    parts = ("venv/bin/pumpd", "base/bin", "venv/pyvenv.cfg")
    for user, part in zip(ATTACKERS, parts, strict=True):
        os.chown(made / part, user, user)
    for user, part in zip(ATTACKERS, parts, strict=True):
        told = refusal(made)
        assert any(f" {made / one} belongs to user" in told for one in parts), told
        assert as_user(user, replaces, made, [part]), "the attack itself"
        os.chown(made / part, 0, 0)
        (made / part).chmod(0o755)
