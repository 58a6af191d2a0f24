"""pump-run and pump run: check options and settings, start pumpd, set the environment, execute the
command.

Imports only a few modules of the standard library: pump-run must start fast, because scripts may
run it for each command.
"""

from __future__ import annotations

import contextlib
import os
import sys

from pump.base import paths
from pump.cli import devices, lab
from pump.cli.support import command, environment, exports, options
from pump.cli.support.lines import BadInputError, say
from pump.config import layers
from pump.config.checks import LOG_LEVELS
from pump.config.settings import JobConfig
from pump.config.values import BadValueError

HELP = "run a CUDA program under pump; the same as pump-run"
PROCESS_1 = 1
COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
"""Values of LC_CTYPE that Python may set in the C locale (PEP 538)."""
TALKATIVE = LOG_LEVELS[LOG_LEVELS.index("info") :]


def main(argv: list[str] | None = None) -> int:
    """Runs pump-run. Returns the exit status of an error; otherwise this process becomes the job,
    so the AssertionError is never reached. `argv`: arguments without the program's name (default:
    the arguments of this process)."""
    command.restore_signals()
    if os.getpid() == PROCESS_1 and not environment.disabled(os.environ):
        from pump.cli.support import init

        init.stay()
    try:
        environ = _inherited()
        _run(_resolve(options.parse(sys.argv[1:] if argv is None else argv), environ), environ)
    except BadInputError as error:
        say(options.PROGRAM, str(error))
        return error.status
    raise AssertionError("unreachable: the command replaces this process")


def _inherited() -> dict[str, str]:
    """Returns the environment of this process, without an LC_CTYPE that Python itself has set."""
    environ = dict(os.environ)
    if environ.get("LC_CTYPE") in COERCED:
        with contextlib.suppress(OSError), open("/proc/self/environ", "rb") as file:
            if not any(entry.startswith(b"LC_CTYPE=") for entry in file.read().split(b"\0")):
                del environ["LC_CTYPE"]
    return environ


def _resolve(asked: options.Asked, environ: dict[str, str]) -> JobConfig:
    """Returns the job's configuration from all sources. Prints which settings are lowered or
    ignored."""
    resolved = asked.resolve(environ)
    config = resolved.apply(asked.job())
    for note in resolved.notes:
        _note(config, note)
    _check_files(resolved)
    return config


def _note(config: JobConfig, text: str) -> None:
    if not config.quiet:
        say(options.PROGRAM, text)


def _check_files(resolved: layers.Resolved) -> None:
    """Raises BadInputError if an output file from the environment or a configuration file cannot
    be written. Files from options have already been checked."""
    for key, check in options.WRITABLE.items():
        if key in resolved.values and resolved.origins[key] != layers.OPTION:
            try:
                check(resolved.values[key])
            except BadValueError as error:
                raise BadInputError(f"{resolved.origins[key]}: {key}: {error}") from None


def _run(config: JobConfig, environ: dict[str, str]) -> None:
    parts = parts_of(config, environ)
    program = command.find(config.command[0], environ)
    environment.for_job(config, parts, environ)  # raises before anything has started
    if parts.shim:
        if command.privileged(program):
            say(
                options.PROGRAM,
                f"{program} runs with elevated privileges, so it and its children run without "
                "pump; start the children with pump-run",
            )
        for note in environment.notes(config, environ):
            _note(config, note)
        if config.log_level in TALKATIVE and not config.log_file:
            _note(config, decided(config))
            for choice in environment.choices(config, environ):
                _note(config, f"granularity {choice}")
        socket_path = _pumpd(_with_duplicates(config, parts.virtual), environ, parts.virtual)
        parts = parts._replace(
            socket_path=socket_path,
            ledger=_ledger(),
            job=os.urandom(8).hex(),
            job_pid=os.getpid(),
        )
    elif config.record:
        say(options.PROGRAM, "records nothing, because PUMP_DISABLE is set; unset it to record")
    command.execute(program, config.command, environment.for_job(config, parts, environ))


def decided(config: JobConfig) -> str:
    """Returns one line about the job's policy, budget and limit, with the reasons for defaults."""
    budget = _amount(config.budget) or "the GPU's free memory, because no budget is set"
    limit = _amount(config.limit) or "the available host memory, because no limit is set"
    return f"policy {config.policy}; budget {budget}; limit {limit}"


def _amount(text: str) -> str:
    from pump.report.words import size

    return size(int(text)) if text.isdecimal() else text


def parts_of(config: JobConfig, environ: dict[str, str]) -> environment.Parts:
    """Returns the libraries, the virtual GPU and the devices of the job. Raises BadInputError if
    one is missing."""
    disabled = environment.disabled(environ)
    try:
        shim = None if disabled else paths.library(environment.SHIM)
    except paths.MissingFileError as error:
        raise BadInputError(str(error)) from None
    if config.virtual is not None:
        virtual = lab.get("--virtual").prepare(config)
        return environment.Parts(shim, virtual, hooks_driver=exports.hooks_driver)
    if not disabled and not devices.driver_found(environ):
        raise BadInputError(
            f"no NVIDIA driver here ({devices.DRIVER} cannot be loaded); "
            "to use a virtual GPU, add --virtual a100-pcie4"
        )
    visible = devices.resolve(config.devices) if config.devices else None
    return environment.Parts(shim, visible_devices=visible, hooks_driver=exports.hooks_driver)


def _with_duplicates(config: JobConfig, virtual: lab.Virtual | None) -> JobConfig:
    """Returns the job with `auto` replaced by "on" or "off". A real GPU gets "off", because its
    link and driver are unknown here."""
    if config.duplicates != "auto":
        return config
    pay = virtual is not None and virtual.duplicates
    return config._replace(duplicates="on" if pay else "off")


def _ledger() -> str | None:
    try:
        return paths.ledger_folder()
    except (paths.UnsafeDirectoryError, OSError) as error:
        say(options.PROGRAM, f"host memory that other jobs convert is not counted: {error}")
        return None


def _pumpd(config: JobConfig, environ: dict[str, str], virtual: lab.Virtual | None) -> str | None:
    """Starts pumpd, and returns its socket, None if it cannot start. Prepares the recording, and
    raises BadInputError if this is not possible."""
    from pump.cli.support import launch

    recorded = None
    if config.record:
        from pump.cli.support import recording

        folder, notes = recording.prepare(config.record, config.record_beneath)
        for note in notes:
            _note(config, note)
        facts = recording.job_facts(config, virtual.facts if virtual else None)
        recorded = launch.Recording(folder, facts)
    try:
        return launch.start_pumpd(config, environ, recorded)
    except launch.NoPumpdError as error:
        without = "prefetching and recording" if config.record else "prefetching"
        say(options.PROGRAM, f"runs without {without}, pumpd cannot start: {error}")
        return None
    finally:
        if recorded is not None:
            os.close(recorded.folder)
