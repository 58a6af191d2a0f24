"""Runs a job's command several times, for the verbs that measure it: options, folders, the start.

pump-run starts in the current folder, so the job has its usual settings. The command itself starts
in a copy of the folder for this run (pump/measure/folders.py).

A temporary folder of runs contains a file that this process keeps locked. If no process has the
lock, the owner was killed, and the next session removes the folder.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pump.base import paths
from pump.base.names import of_job, one_line, quoted
from pump.cli.run import parts_of
from pump.cli.support import command, environment, options
from pump.cli.support.lines import BadInputError, checked
from pump.config.settings import JobConfig
from pump.config.values import parse_size
from pump.measure import folders, runs
from pump.report.words import many, size

IN_FOLDER = 'cd -- "$0" && exec "$@"'
PASSED_ON = (
    "Also accepts the options of pump-run (--budget, --virtual and so on) except %s. Each run "
    "starts in a copy of the current folder, so it cannot change the files here, not even if it "
    "is killed. Not protected: files that the program opens by an absolute path, Python "
    "environments, and the paths of --share."
)
PREFIX = "pump-runs-"
OWNER = ".owner"
"""File in a temporary folder of runs, locked by its owner while the owner lives."""
COPY_MOST = "4GiB"
LEFT_SHOWN = 3


class _PassOn(argparse.Action):
    """Collects an option of pump-run as typed; pump-run's own parser checks it later."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        more = [] if self.nargs == 0 else [values]
        namespace.passed = [*namespace.passed, option_string, *more]


def add_options(parser: argparse.ArgumentParser, own: Sequence[str]) -> None:
    """Adds the options that these verbs share. own: pump-run's options that the verb sets."""
    parser.set_defaults(passed=[], own=[*own, "--record"])
    parser.add_argument("--yes", action="store_true", help="do not ask before the first run")
    parser.add_argument(
        "--folder",
        metavar="DIR",
        help="keep the runs' folders and logs in DIR, which must not exist "
        "(default: a temporary folder, removed at the end unless a run failed)",
    )
    parser.add_argument(
        "--copy-most",
        metavar="SIZE",
        type=checked(parse_size),
        default=COPY_MOST,
        help="the most to copy of the current folder for each run, if the file system cannot share "
        f"blocks (default: {COPY_MOST})",
    )
    parser.add_argument(
        "--share",
        metavar="PATH",
        action="append",
        default=[],
        help="let runs read and write the original of this file or folder; may be repeated",
    )
    parser.add_argument(
        "--time-from",
        metavar="PATTERN",
        help="regular expression for the time of a run in the run's output, such as 'took "
        "([0-9.]+) s': its first group, in seconds, of the last match (default: the whole run)",
    )
    for action in options.parser()._actions:
        if action.dest not in ("help", "version") and not set(parser.get_default("own")) & set(
            action.option_strings
        ):
            parser.add_argument(
                *action.option_strings,
                action=_PassOn,
                nargs=action.nargs,
                dest=f"passed_{action.dest}",
                default=argparse.SUPPRESS,
                help=argparse.SUPPRESS,
            )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="[--] command: the command to run"
    )


class Repeated:
    """A command to run several times, and its folders. Raises BadInputError if it cannot run."""

    def __init__(self, asked: argparse.Namespace) -> None:
        words = asked.command[1:] if asked.command[:1] == ["--"] else asked.command
        if not words:
            raise BadInputError("no command given; add it at the end, after --")
        environ = dict(os.environ)
        if environment.disabled(environ):
            raise BadInputError("PUMP_DISABLE is set, so pump would do nothing; unset it")
        self.command: list[str] = words
        self.pattern = _pattern(asked.time_from)
        typed = options.parse([*asked.passed, "--", *words])
        self.config: JobConfig = typed.resolve(environ).apply(typed.job())
        parts = parts_of(self.config, environ)
        self._environ = environ
        self._child = environment.for_job(self.config, parts, environ)
        command.find(words[0], environ)
        self.options: list[str] = [*asked.passed]
        if self.config.devices and not typed.settings.get("devices"):  # for runs without pump, too
            self.options += ["--device", ",".join(self.config.devices)]
        self._place = asked.folder
        self._owner: int | None = None
        self.folder = Path(asked.folder or "").absolute()
        self.keep = bool(asked.folder)
        self.original = _original(asked.folder or "", asked.share)
        self._base = self._bound(asked.copy_most)

    def gpu(self) -> str:
        """Returns a line about the GPUs that the command sees. Raises BadInputError if there are
        none."""
        from pump.cli.doctor import probe

        answer = probe.ask(self._child)
        names = [d["name"] for d in answer.get("devices", [])] if isinstance(answer, dict) else []
        if not names:
            raise BadInputError("the driver finds no GPU; run: pump doctor")
        shown = one_line(", ".join(dict.fromkeys(names)))
        if self.config.virtual is None:
            return shown
        return f"VIRTUAL, {shown}: times are simulated, not measured on hardware"

    def _bound(self, copy_most: int) -> str:
        """Returns the parent of the folder of the runs. Bounds the amount of data to copy."""
        bases = [os.path.dirname(self.folder)] if self._place else _bases(self._environ)
        for base in bases:
            if self.original.shares_blocks_with(base):
                return base
        with contextlib.suppress(OSError):
            free = os.statvfs(bases[0])
            copy_most = min(copy_most, free.f_bavail * free.f_frsize // 2)
        self.original.bound(copy_most)
        return bases[0]

    def may_begin(self, text: str, yes: bool) -> bool:
        """Asks the user whether to start; returns the answer, or True with `yes`. Raises
        BadInputError if there is no terminal to ask at. With `yes`, raises it if files are too
        large to copy and not named by --share, because runs would write to the originals."""
        left = self.original.left
        named = [quoted(one.place) + _shown_size(one) for one in left[:LEFT_SHOWN]]
        more = f" and {len(left) - LEFT_SHOWN:,} more" if len(left) > LEFT_SHOWN else ""
        names = ", ".join(named) + more
        asks = sys.stdin is not None and sys.stdin.isatty()
        if left and (yes or not asks):
            raise BadInputError(
                f"too large to copy for each run: {names}; add --share {quoted(left[0].place)} to "
                "let runs write to the original, or a larger --copy-most"
            )
        if yes:
            return True
        copied = f"a copy of {many(self.original.count, 'file')} here ({size(self.original.bytes)})"
        text = f"{text} Each run gets {copied}."
        if left:
            text += f" Too large to copy, so runs write to the originals: {names}."
        if not asks:
            raise BadInputError(f"{text} Add --yes to begin")
        sys.stderr.write(f"{text} Begin? [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def begin(self) -> None:
        """Creates the folder of the runs' copies and logs, and removes the folders of killed
        sessions. Raises BadInputError."""
        try:
            if self._place:
                self.folder.mkdir(0o700)
                return
            _remove_left(_bases(self._environ))
            self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._base))
            self._owner = os.open(self.folder / OWNER, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            what = f"--folder: cannot create {quoted(str(error.filename))}: {error.strerror}"
            raise BadInputError(what) from None

    def once(
        self, name: str, words: Sequence[str], policy: str | None, plain: bool, stop: runs.Stop
    ) -> runs.Ran:
        """Runs the command as `words` in a folder called `name`. policy: None: from the settings.
        plain: without pump. Raises BadInputError if the run cannot start."""
        folder, log = self.folder / name, self.folder / f"{name}.log"
        passed = [*self.options, *(["--policy", policy] if policy else [])]
        if not self.config.name:  # pump-run would use the name of `sh`
            passed += [f"--name={of_job(self.command)}"]
        if self.config.record:
            passed += ["--record", str(self.folder / f"{name}.recording")]
        line = paths.isolated("pump-run", *passed)
        moved = [self.original.moved(word, str(folder)) for word in words]
        line += ["--", "sh", "-c", IN_FOLDER, str(folder), *moved]
        environ = {**self._environ, **({"PUMP_DISABLE": "1"} if plain else {})}
        try:
            self.original.copy(str(folder), lambda: stop.number)
            if stop.number:
                return runs.Ran(-stop.number, 0.0, log)
            ran = runs.run(line, environ, log, stop)
        except OSError as error:
            folders.remove(str(folder))
            where = quoted(str(error.filename or folder))
            raise BadInputError(f"run {name} cannot start: {where}: {error.strerror}", 1) from None
        if not self.keep and not ran.failure():
            folders.remove(str(folder))
        return ran

    def seconds(self, ran: runs.Ran) -> float | None:
        """Returns the time of a successful run; None if --time-from finds none."""
        return ran.seconds if self.pattern is None else ran.last(self.pattern)

    def times(self) -> str:
        """Describes the measured time, for people."""
        if self.pattern is None:
            return "whole runs, including their start"
        pattern = quoted(os.fsdecode(self.pattern.pattern))
        return f"printed by the command (--time-from {pattern})"

    def failed(self, ran: runs.Ran) -> str:
        """Returns how a run failed, or that it printed no time; "" if it succeeded. Keeps the logs
        after a failure, except after a lack of memory."""
        said = ran.failure()
        if not said and self.seconds(ran) is None:
            said = "--time-from matched no line of its output"
        self.keep = self.keep or bool(said and not ran.out_of_memory)
        return said

    def show(self, log: str) -> None:
        """Shows the end of a log, to explain why a run failed."""
        sys.stderr.write(runs.tail(Path(log)) + "\n")

    def broken(self, text: str, log: str) -> NoReturn:
        """Shows the end of a log. Raises BadInputError with `text`, status 1."""
        self.show(log)
        raise BadInputError(f"{text}; full output: {quoted(log)}", 1)

    def close(self) -> None:
        """Removes the folders, unless `keep` is set."""
        if self._owner is None:
            return
        if self.keep:
            (self.folder / OWNER).unlink(missing_ok=True)
        else:
            folders.remove(str(self.folder))
        os.close(self._owner)


def _original(without: str, shared: Sequence[str]) -> folders.Original:
    places = set()
    try:
        here = os.path.realpath(Path.cwd())
    except OSError as error:
        raise BadInputError(f"the current folder is gone: {error.strerror}") from None
    for name in shared:
        place = os.path.relpath(os.path.join(here, name), here)
        if place == "." or place.startswith("../") or not os.path.lexists(place):
            raise BadInputError(f"--share: there is no {quoted(name)} in this folder")
        places.add(place)
    try:
        return folders.Original(here, without, places)
    except OSError as error:
        raise BadInputError(f"cannot read the current folder: {error.strerror}") from None


def _bases(environ: Mapping[str, str]) -> list[str]:
    """Returns parents for temporary folders of runs: the usual one, and the user's cache, which is
    often on the file system of the user's files."""
    usual = [tempfile.gettempdir()]
    cache = os.path.dirname(paths.learned_folder(environ))
    with contextlib.suppress(OSError):
        if os.stat(cache).st_uid == os.geteuid():
            return [*usual, cache]
    return usual


def _remove_left(bases: Sequence[str]) -> None:
    """Removes the folders of this user's killed sessions."""
    for base in bases:
        with contextlib.suppress(OSError):
            for name in os.listdir(base):
                if name.startswith(PREFIX):
                    _remove_if_left(os.path.join(base, name))


def _remove_if_left(folder: str) -> None:
    with contextlib.suppress(OSError):  # not a killed session's folder; not ours; locked
        if os.lstat(folder).st_uid != os.geteuid():
            return
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        owner = os.open(os.path.join(folder, OWNER), flags)
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folders.remove(folder)
        finally:
            os.close(owner)


def _shown_size(left: folders.Left) -> str:
    return "" if left.bytes is None else f" ({size(left.bytes)})"


def _pattern(text: str | None) -> re.Pattern[bytes] | None:
    if text is None:
        return None
    try:
        found = re.compile(os.fsencode(text))
    except (re.error, RecursionError, OverflowError) as error:
        raise BadInputError(f"--time-from: must be a regular expression: {error}") from None
    if found.groups < 1:
        raise BadInputError(
            "--time-from: must have a group for the number, such as 'took ([0-9.]+) s'"
        )
    return found
