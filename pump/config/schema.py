"""The schema of pump's configuration files: one Struct for each table. No I/O.

The only description of the files. Each field has its type and bounds (msgspec checks them), its
meaning and an example (docs/reference/configuration.md and `pump config example` are made
from them), and as `check` the function that converts its value to pump's form, the same as for
options and environment variables.

Imports msgspec: pump-run imports it only where there is a file to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from pump.config import checks, rule_checks, service_checks
from pump.config import job as defaults


def _about(
    description: str,
    example: object,
    check: Callable[..., object] | None = None,
    without: str = "",
    **bounds: Any,
) -> Meta:
    """What is known of a field. `without`: what holds where it is not set, in words."""
    extra = {"check": check, "without": without}
    return Meta(description=description, examples=[example], extra=extra, **bounds)


def _choice(
    description: str, words: Iterable[str], example: str, check: Callable[[str], object]
) -> Meta:
    """What is known of a field that takes one of some words."""
    return _about(f"{description}: one of {', '.join(words)}.", example, check)


class JobTable(Struct):
    """What one job asks for; every setting is an option of pump-run and a variable as well."""

    name: Annotated[
        str,
        _about(
            "What the job is called in `pump jobs`, `pump top` and metrics.",
            "llama-finetune",
            checks.name,
            "the script's or command's name",
        ),
    ] = ""
    priority: Annotated[
        int,
        _about(
            "What the system service shares GPUs by, -10 to 10: the greater, the sooner served. "
            "A job above 0 never waits for its turn.",
            5,
            checks.priority,
            ge=-checks.PRIORITY_MAX,
            le=checks.PRIORITY_MAX,
        ),
    ] = defaults.DEFAULT_PRIORITY
    budget: Annotated[
        str | int,
        _about(
            "GPU memory that each process may keep resident on each GPU: a size, or a share of "
            "the GPU's memory.",
            "20GiB",
            checks.amount,
            "what is free",
        ),
    ] = ""
    limit: Annotated[
        str | int,
        _about(
            "Memory that all processes of the job together may convert: a size, a percentage of "
            "what the host can give, or a multiple of the memory of the job's GPUs.",
            "1.5x",
            checks.amount,
            "what the host can give",
        ),
    ] = ""
    report: Annotated[
        str,
        _about(
            "The free memory that CUDA reports to the program: what is left of its `budget`, or of "
            "its `limit`. Frameworks that take a share of free memory oversubscribe with the "
            "latter.",
            "limit",
            checks.report,
        ),
    ] = defaults.DEFAULT_REPORT
    policy: Annotated[
        str, _choice("How pump decides what moves", defaults.POLICIES, "window", checks.policy)
    ] = defaults.DEFAULT_POLICY
    duplicates: Annotated[
        str,
        _about(
            "Whether memory that was only read leaves the GPU without a copy: the host's copy "
            "stays valid (`READ_MOSTLY`). `auto` does it where the profile of the virtual GPU says "
            "that it pays, and on no real GPU; `pump simulate --profile-from` reports whether it "
            "pays on a GPU.",
            "on",
            checks.duplicates,
        ),
    ] = defaults.DEFAULT_DUPLICATES
    granularity: Annotated[
        str,
        _about(
            "`native` leaves frameworks' allocators alone (but for JAX's, which cannot exceed the "
            "GPU), `tensor` makes them allocate each tensor in stream order, `auto` decides for "
            "each framework, and does so where no known conflict prevents it.",
            "auto",
            checks.granularity,
        ),
    ] = defaults.DEFAULT_GRANULARITY
    keep_device: Annotated[
        list[str],
        _about(
            "Rules for what stays device memory, beside NCCL's, NVSHMEM's and UCX's: "
            "`below=SIZE`, `library=NAME`, `ipc`, `stream-ordered`, `vmm`; `none` drops all "
            "rules before it.",
            ["below=8MiB", "library=libmine"],
            checks.keep_device,
            "those of NCCL, NVSHMEM, UCX and `ipc`",
        ),
    ] = field(default_factory=list)
    devices: Annotated[
        list[str | int],
        _about(
            "The GPUs that the program sees, by index (as nvidia-smi counts) or UUID.",
            [0, 1],
            checks.devices,
            "all that the environment lets it see",
        ),
    ] = field(default_factory=list)
    record: Annotated[
        str,
        _about(
            "File to record to what the program asks of the GPU (`pump trace`, `pump report`); "
            "relative to where pump-run starts. An older recording there is replaced at the end.",
            "run.pump",
            checks.file_name,
            "no recording",
        ),
    ] = ""
    record_command: Annotated[
        bool,
        _about(
            "Whether recordings hold command lines, which may contain secrets.",
            False,
            checks.truth,
        ),
    ] = True
    keep_learned: Annotated[
        bool,
        _about(
            "Whether what policy `planned` learns of a program is kept for its next run, in "
            "`~/.cache/pump/learned` (`$XDG_CACHE_HOME`): kinds of operations, and which parts of "
            "its memory they use; no names and no contents.",
            False,
            checks.truth,
        ),
    ] = True
    log_level: Annotated[
        str, _choice("How much pump logs", defaults.LOG_LEVELS, "info", checks.log_level)
    ] = defaults.DEFAULT_LOG_LEVEL
    log_file: Annotated[
        str,
        _about(
            "File that log lines are appended to; relative to where pump-run starts.",
            "pump.log",
            checks.file_name,
            "standard error",
        ),
    ] = ""
    quiet: Annotated[
        bool,
        _about(
            "Whether only pump's errors reach standard error, without notes, warnings or the "
            "job's last line.",
            True,
            checks.truth,
        ),
    ] = False


class LimitsTable(Struct):
    """The administrator's bounds for every job. A job that asks for more gets the bound, and a
    line says so."""

    budget: Annotated[
        str | int,
        _about("The most that a job's budget may be.", "90%", checks.amount, "the card's memory"),
    ] = ""
    limit: Annotated[
        str | int,
        _about(
            "The most that a job's limit may be.", "64GiB", checks.amount, "what the host can give"
        ),
    ] = ""
    priority: Annotated[
        int,
        _about(
            "The greatest priority that a job may ask for.",
            7,
            checks.priority,
            ge=-checks.PRIORITY_MAX,
            le=checks.PRIORITY_MAX,
        ),
    ] = checks.PRIORITY_MAX


class ServiceTable(Struct):
    """The system service, `pumpd serve`."""

    lease_s: Annotated[
        float,
        _about("Seconds that a lease holds without a heartbeat.", 10.0, ge=0.5, le=180.0),
    ] = 10.0
    reserve: Annotated[
        str | int,
        _about("GPU memory that is never given out, on each GPU.", "3%", checks.amount),
    ] = "3%"
    turns: Annotated[
        bool,
        _about(
            "Whether jobs that want much more than a GPU has take turns on it, of 8 to 30 s.",
            False,
            checks.truth,
        ),
    ] = True
    jobs_per_user: Annotated[
        int, _about("Jobs that one user may have registered at a time.", 64, ge=1, le=10_000)
    ] = 256
    observers: Annotated[
        list[str],
        _about(
            'Users, and groups as "@name", that see the jobs of all users, as root does.',
            ["prometheus", "@operators"],
            service_checks.people,
        ),
    ] = field(default_factory=list)
    root_sees_all: Annotated[
        bool,
        _about(
            "Whether root and the service's own user see the jobs of all users, and have "
            "connections reserved. Say no in clusters, where any pod may have these numbers.",
            False,
            checks.truth,
        ),
    ] = True
    log_level: Annotated[
        str,
        _about("How much the service logs.", "info", checks.log_level),
    ] = defaults.DEFAULT_LOG_LEVEL


class ConfigFile(Struct):
    """A configuration file. Only /etc/pump/config.toml may hold [limits], [shares], [service]."""

    job: JobTable = field(default_factory=JobTable)
    limits: LimitsTable = field(default_factory=LimitsTable)
    shares: Annotated[
        dict[str, int],
        _about(
            "What a user's jobs count when GPUs are shared: weights by user name, or by group "
            'as "@name"; users that are not named have 1.',
            {"alice": 4, "@students": 1},
            service_checks.shares,
        ),
    ] = field(default_factory=dict)
    service: ServiceTable = field(default_factory=ServiceTable)


class MatchTable(Struct):
    """Which processes a rule serves; all patterns that are given must match."""

    executable: Annotated[
        str,
        _about(
            "The program's file, links resolved; a pattern without `/` means the last part of its "
            "path.",
            "python3*",
            rule_checks.pattern,
            "any",
        ),
    ] = ""
    command: Annotated[
        str,
        _about(
            "The command line, blanks between the words.",
            "*train.py*",
            rule_checks.pattern,
            "any",
        ),
    ] = ""
    cgroup: Annotated[
        str,
        _about(
            "The process's cgroup, as /proc/self/cgroup has it.",
            "/user.slice/*",
            rule_checks.pattern,
            "any",
        ),
    ] = ""
    without_pumpd: Annotated[
        bool,
        _about(
            "Whether a process is served where no pumpd can be started for it: then it runs on "
            "demand paging.",
            True,
            checks.truth,
        ),
    ] = False


class RuleFile(Struct):
    """A rule of `pump enable`: a file of jobs.d. Its [job] is that of a configuration file."""

    match: MatchTable = field(default_factory=MatchTable)
    job: JobTable = field(default_factory=JobTable)


ADMINISTRATORS = ("limits", "shares", "service")
"""Tables that only the administrator's file may hold."""

AT_ONCE, TRUSTED, NEVER = "at once", "once trusted", "never"

FOLDER: dict[str, str] = {
    "name": AT_ONCE,
    "priority": AT_ONCE,
    "budget": AT_ONCE,
    "limit": AT_ONCE,
    "report": AT_ONCE,
    "policy": AT_ONCE,
    "duplicates": AT_ONCE,
    "granularity": AT_ONCE,  # sets variables of frameworks, to values that pump knows
    "keep_device": AT_ONCE,  # `library` is compared with what is loaded, and opens nothing
    "devices": AT_ONCE,
    "record": TRUSTED,  # beneath the folder alone
    "record_command": TRUSTED,  # may put into a file what the user wants to keep out of it
    "keep_learned": TRUSTED,  # the same
    "log_level": AT_ONCE,
    "log_file": NEVER,
    "quiet": AT_ONCE,
}
"""When a setting of [job] in a folder's own pump.toml applies: docs/decisions/0026-trust.md. The
file may have come with a folder that the user has cloned. A setting that is not in this table
never applies. One that names a path, a command or a library to load is not AT_ONCE."""
