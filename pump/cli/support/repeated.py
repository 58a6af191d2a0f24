"""Runs a job's command several times, for the verbs that measure it: options, folders, the start.

The job is started by pump-run in the present folder, so settings come from where they always
come; the command then starts in the run's own folder (pump/measure/folders.py).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from pump.cli.run import parts_of
from pump.cli.support import command, environment, options
from pump.cli.support.lines import BadInputError
from pump.config import layers
from pump.config.job import JobConfig
from pump.measure import folders, runs
from pump.names import one_line, quoted

PUMP_RUN = "import sys; from pump.cli.run import main; sys.argv[0] = 'pump-run'; sys.exit(main())"
IN_FOLDER = 'cd -- "$0" && exec "$@"'
PASSED_ON = (
    "All options of pump-run but %s may be given, too (--budget, --virtual and so on). Each run "
    "starts in a folder of its own that mirrors the present one: the command finds the files that "
    "lie here, and what it writes newly to relative names stays apart from the other runs. A file "
    "that is here already, or has an absolute name, is one file for all runs."
)


class _PassOn(argparse.Action):
    """Collects an option of pump-run as it was typed; pump-run's own parser checks it later."""

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
    """Add the options that these verbs share. own: pump-run's options that the verb decides."""
    parser.set_defaults(passed=[], own=[*own, "--record"])
    parser.add_argument("--yes", action="store_true", help="do not ask before the first run")
    parser.add_argument(
        "--folder",
        metavar="DIR",
        help="keep the runs' folders and logs in DIR, which must not exist "
        "(default: a temporary folder, removed at the end unless a run failed)",
    )
    parser.add_argument(
        "--time-from",
        metavar="PATTERN",
        help="regular expression: its first group is the time of a run in seconds, at its last "
        "match in the run's output, such as 'took ([0-9.]+) s' (default: the whole run's time)",
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
    parser.add_argument("command", nargs=argparse.REMAINDER, help="[--] command: what is run")


class Repeated:
    """A command to be run several times, and where. Raises BadInputError where it cannot."""

    def __init__(self, asked: argparse.Namespace) -> None:
        words = asked.command[1:] if asked.command[:1] == ["--"] else asked.command
        if not words:
            raise BadInputError("no command given; put it at the end, behind --")
        environ = dict(os.environ)
        if environment.disabled(environ):
            raise BadInputError("PUMP_DISABLE is set, so pump would do nothing; unset it")
        self.command: list[str] = words
        self.pattern = _pattern(asked.time_from)
        typed = options.parse([*asked.passed, "--", *words])
        try:
            resolved = layers.resolve(typed.settings, environ, layers.places(typed.config, environ))
        except layers.ConfigInputError as error:
            raise BadInputError(str(error)) from None
        self.config: JobConfig = resolved.apply(typed.job())
        parts = parts_of(self.config, environ)
        self._environ = environ
        self._child = environment.for_job(self.config, parts, environ)
        command.find(words[0], environ)
        self.options: list[str] = [*asked.passed]
        if self.config.devices and not typed.settings.get("devices"):  # for runs without pump, too
            self.options += ["--device", ",".join(self.config.devices)]
        if not self.config.name:
            self.options += ["--name", one_line(os.path.basename(words[0]))[:64] or "job"]
        self._place = asked.folder
        self._made = False
        self.folder = Path(asked.folder or "").absolute()
        self.keep = bool(asked.folder)

    def gpu(self) -> str:
        """A line about the GPUs that the command sees. Raises BadInputError where it has none."""
        from pump.cli.doctor import probe

        answer = probe.ask(self._child)
        names = [d["name"] for d in answer.get("devices", [])] if isinstance(answer, dict) else []
        if not names:
            raise BadInputError("the driver gives no GPU; pump doctor says why")
        shown = one_line(", ".join(dict.fromkeys(names)))
        if self.config.virtual is None:
            return shown
        return f"VIRTUAL, {shown}: times are those of a model, not of hardware"

    def begin(self) -> None:
        """Make the folder of the runs' folders and logs. Raises BadInputError."""
        try:
            if self._place:
                self.folder.mkdir()
            else:
                self.folder = Path(tempfile.mkdtemp(prefix="pump-runs-"))
        except OSError as error:
            what = f"--folder: cannot make {quoted(str(error.filename))}: {error.strerror}"
            raise BadInputError(what) from None
        self._made = True

    def once(
        self, name: str, words: Sequence[str], policy: str | None, plain: bool, stop: runs.Stop
    ) -> runs.Ran:
        """Run the command as `words` in a folder called `name`. policy: None: as settings say.
        plain: without pump. Raises BadInputError where the run cannot begin."""
        folder, log = self.folder / name, self.folder / f"{name}.log"
        passed = [*self.options, *(["--policy", policy] if policy else [])]
        if self.config.record:
            passed += ["--record", str(self.folder / f"{name}.recording")]
        line = [sys.executable, "-P", "-c", PUMP_RUN, *passed]
        line += ["--", "sh", "-c", IN_FOLDER, str(folder), *words]
        environ = {**self._environ, **({"PUMP_DISABLE": "1"} if plain else {})}
        try:
            folders.mirror(Path.cwd(), folder, self.folder)
            ran = runs.run(line, environ, log, stop)
            if not self.keep and not ran.failure():
                shutil.rmtree(folder, ignore_errors=True)
        except OSError as error:
            where = quoted(str(error.filename or folder))
            raise BadInputError(f"run {name} cannot begin: {where}: {error.strerror}", 1) from None
        return ran

    def seconds(self, ran: runs.Ran) -> float | None:
        """The time of a run that has succeeded; None where --time-from finds none."""
        return ran.seconds if self.pattern is None else ran.last(self.pattern)

    def times(self) -> str:
        """What a time is, for people."""
        if self.pattern is None:
            return "whole runs, their start included"
        pattern = quoted(os.fsdecode(self.pattern.pattern))
        return f"what the command prints itself (--time-from {pattern})"

    def failed(self, ran: runs.Ran) -> str:
        """How a run failed otherwise than for lack of memory, or that it printed no time; "" where
        it did not. Then its log is kept."""
        said = ran.failure()
        if not said and self.seconds(ran) is None:
            said = "--time-from matched nothing in its output"
        self.keep = self.keep or bool(said and not ran.out_of_memory)
        return said

    def broken(self, text: str, log: str) -> NoReturn:
        """Show the end of a log. Raises BadInputError with `text`, status 1."""
        sys.stderr.write(runs.tail(Path(log)) + "\n")
        raise BadInputError(f"{text}; all of its output: {quoted(log)}", 1)

    def close(self) -> None:
        """Remove the folders, unless they are to be kept."""
        if self._made and not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def may_begin(text: str, yes: bool) -> bool:
    """Whether the user agrees. Raises BadInputError where there is no terminal to ask at."""
    if yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise BadInputError(f"{text} Add --yes to begin")
    sys.stderr.write(f"{text} Begin? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _pattern(text: str | None) -> re.Pattern[bytes] | None:
    if text is None:
        return None
    try:
        found = re.compile(os.fsencode(text))
    except (re.error, RecursionError, OverflowError) as error:
        raise BadInputError(f"--time-from: no regular expression: {error}") from None
    if found.groups < 1:
        raise BadInputError("--time-from has no group; put the number into one: 'took ([0-9.]+) s'")
    return found
