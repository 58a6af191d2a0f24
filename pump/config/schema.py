"""The schema of pump's configuration files: one Struct for each table. No I/O.

This is the only description of the files. msgspec checks the type and the bounds of each field.
Descriptions and examples go to docs/reference/configuration.md and `pump config example`. The
function `check` converts the value to pump's form, as for options and environment variables.

Imports msgspec: pump-run imports this module only if there is a file to read.
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
    """Returns the metadata of a field. without: describes the value if the field is not set."""
    extra = {"check": check, "without": without}
    return Meta(description=description, examples=[example], extra=extra, **bounds)


def _choice(
    description: str, words: Iterable[str], example: str, check: Callable[[str], object]
) -> Meta:
    """Returns the metadata of a field that holds one of `words`."""
    return _about(f"{description}: one of {', '.join(words)}.", example, check)


class JobTable(Struct):
    """The settings of one job. Each is also an environment variable, and most are options of
    pump-run."""

    name: Annotated[
        str,
        _about(
            "The job's name in `pump jobs`, `pump top` and metrics.",
            "llama-finetune",
            checks.name,
            "the name of the script or command",
        ),
    ] = ""
    priority: Annotated[
        int,
        _about(
            "The job's priority for the system service, -10 to 10; higher is served first. A job "
            "above 0 never waits for its turn.",
            5,
            checks.priority,
            ge=-checks.PRIORITY_MAX,
            le=checks.PRIORITY_MAX,
        ),
    ] = defaults.DEFAULT_PRIORITY
    budget: Annotated[
        str | int,
        _about(
            "The GPU memory that each process may keep resident on each GPU: a size, or a share "
            "of the GPU's memory.",
            "20GiB",
            checks.amount,
            "the memory that is free",
        ),
    ] = ""
    limit: Annotated[
        str | int,
        _about(
            "The memory that all processes of the job together may convert. Either a size, a "
            "percentage of the memory that the host can spare, or a multiple of the GPUs' memory.",
            "1.5x",
            checks.amount,
            "the memory that the host can spare",
        ),
    ] = ""
    report: Annotated[
        str,
        _about(
            "The free memory that CUDA reports to the program: the rest of its `budget`, or of its "
            "`limit`. With `limit`, frameworks that take a share of free memory oversubscribe.",
            "limit",
            checks.report,
        ),
    ] = defaults.DEFAULT_REPORT
    policy: Annotated[
        str,
        _choice(
            "The policy that decides what to prefetch and evict",
            defaults.POLICIES,
            defaults.DEFAULT_POLICY,
            checks.policy,
        ),
    ] = defaults.DEFAULT_POLICY
    duplicates: Annotated[
        str,
        _about(
            "Whether unmodified memory leaves the GPU without a copy, because the host's copy "
            "stays valid (`READ_MOSTLY`): `auto`, `on` or `off`. `auto` does this only on the "
            "virtual GPU, if its profile shows a gain. For a real GPU, `pump simulate "
            "--profile-from REPORT.json` reports whether it would gain.",
            "on",
            checks.duplicates,
        ),
    ] = defaults.DEFAULT_DUPLICATES
    granularity: Annotated[
        str,
        _about(
            "`native` keeps the frameworks' allocators, except JAX's, which cannot exceed the GPU. "
            "`tensor` makes frameworks allocate each tensor in stream order. `auto` does so for "
            "each framework without a known conflict.",
            "auto",
            checks.granularity,
        ),
    ] = defaults.DEFAULT_GRANULARITY
    keep_device: Annotated[
        list[str],
        _about(
            "Additional rules for memory that stays device memory: `below=SIZE`, `library=NAME`, "
            "`ipc`, `stream-ordered` or `vmm`. `none` drops all rules before it, the default ones "
            "included.",
            ["below=8MiB", "library=libmine"],
            checks.keep_device,
            "memory of NCCL, NVSHMEM and UCX, and `ipc`",
        ),
    ] = field(default_factory=list)
    devices: Annotated[
        list[str | int],
        _about(
            "The GPUs that the program sees, by nvidia-smi's index or by UUID.",
            [0, 1],
            checks.devices,
            "all GPUs that the environment allows",
        ),
    ] = field(default_factory=list)
    record: Annotated[
        str,
        _about(
            "The file that the program's GPU operations are recorded to, for `pump report` and "
            "`pump simulate`; relative to the folder where pump-run starts. At the end it replaces "
            "an older recording of that name.",
            "run.pump",
            checks.file_name,
            "no recording",
        ),
    ] = ""
    record_command: Annotated[
        bool,
        _about(
            "Whether recordings contain command lines, which may hold secrets.",
            False,
            checks.truth,
        ),
    ] = True
    keep_learned: Annotated[
        bool,
        _about(
            "Whether policy `planned` stores what it learned about a program for the next run, in "
            "`~/.cache/pump/learned` (`$XDG_CACHE_HOME`). It stores kinds of operations and the "
            "parts of memory that they use, without names or contents.",
            False,
            checks.truth,
        ),
    ] = True
    log_level: Annotated[
        str,
        _choice("The lowest level that pump logs", defaults.LOG_LEVELS, "info", checks.log_level),
    ] = defaults.DEFAULT_LOG_LEVEL
    log_file: Annotated[
        str,
        _about(
            "The file that log lines are appended to, relative to the folder where pump-run "
            "starts.",
            "pump.log",
            checks.file_name,
            "standard error",
        ),
    ] = ""
    quiet: Annotated[
        bool,
        _about(
            "Whether pump prints only errors: no notes, no warnings and no last line.",
            True,
            checks.truth,
        ),
    ] = False


class LimitsTable(Struct):
    """The administrator's limits for every job. A job that asks for more gets the limit and a
    warning."""

    budget: Annotated[
        str | int,
        _about("The largest budget of a job.", "90%", checks.amount, "the GPU's memory"),
    ] = ""
    limit: Annotated[
        str | int,
        _about(
            "The largest limit of a job.",
            "64GiB",
            checks.amount,
            "the memory that the host can spare",
        ),
    ] = ""
    priority: Annotated[
        int,
        _about(
            "The highest priority of a job.",
            7,
            checks.priority,
            ge=-checks.PRIORITY_MAX,
            le=checks.PRIORITY_MAX,
        ),
    ] = checks.PRIORITY_MAX


class ServiceTable(Struct):
    """The settings of the system service, `pumpd serve`."""

    lease_s: Annotated[
        float,
        _about("Seconds after which a lease without a heartbeat expires.", 10.0, ge=0.5, le=180.0),
    ] = 10.0
    reserve: Annotated[
        str | int,
        _about("The memory of each GPU that the service keeps free.", "3%", checks.amount),
    ] = "3%"
    turns: Annotated[
        bool,
        _about(
            "Whether jobs that need much more memory than a GPU has take turns of 8 to 30 s on it.",
            False,
            checks.truth,
        ),
    ] = True
    jobs_per_user: Annotated[
        int, _about("How many jobs one user may register at the same time.", 64, ge=1, le=10_000)
    ] = 256
    observers: Annotated[
        list[str],
        _about(
            'Users, and groups as "@name", who see the jobs of all users, like root.',
            ["prometheus", "@operators"],
            service_checks.people,
        ),
    ] = field(default_factory=list)
    root_sees_all: Annotated[
        bool,
        _about(
            "Whether root and the service's own user see the jobs of all users and have reserved "
            "connections. Set it to false in clusters, where any pod may run under these user ids.",
            False,
            checks.truth,
        ),
    ] = True
    log_level: Annotated[
        str,
        _about("The lowest level that the service logs.", "info", checks.log_level),
    ] = defaults.DEFAULT_LOG_LEVEL


class ConfigFile(Struct):
    """A configuration file. Only /etc/pump/config.toml may hold [limits], [shares], [service]."""

    job: JobTable = field(default_factory=JobTable)
    limits: LimitsTable = field(default_factory=LimitsTable)
    shares: Annotated[
        dict[str, int],
        _about(
            "The weights of users when GPUs are shared, by user name, or by group as "
            '"@name". Other users have the weight 1.',
            {"alice": 4, "@students": 1},
            service_checks.shares,
        ),
    ] = field(default_factory=dict)
    service: ServiceTable = field(default_factory=ServiceTable)


class MatchTable(Struct):
    """The processes that a rule serves. All patterns that are set must match."""

    executable: Annotated[
        str,
        _about(
            "The program's file with links resolved. A pattern without `/` is compared with the "
            "last part of the path.",
            "python3*",
            rule_checks.pattern,
            "any",
        ),
    ] = ""
    command: Annotated[
        str,
        _about(
            "The command line, with blanks between the arguments.",
            "*train.py*",
            rule_checks.pattern,
            "any",
        ),
    ] = ""
    cgroup: Annotated[
        str,
        _about(
            "The process's cgroup, as in /proc/self/cgroup.",
            "/user.slice/*",
            rule_checks.pattern,
            "any",
        ),
    ] = ""
    without_pumpd: Annotated[
        bool,
        _about(
            "Whether a process is served even if no pumpd can be started for it. It then uses "
            "demand paging.",
            True,
            checks.truth,
        ),
    ] = False


class RuleFile(Struct):
    """A rule of `pump enable`: a file of jobs.d. Its [job] is the table of a configuration file."""

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
    "granularity": AT_ONCE,  # sets frameworks' variables, only to values that pump knows
    "keep_device": AT_ONCE,  # `library` is only compared with loaded libraries
    "devices": AT_ONCE,
    "record": TRUSTED,  # only within the folder
    "record_command": TRUSTED,  # may write secrets to a file
    "keep_learned": TRUSTED,  # may store private data
    "log_level": AT_ONCE,
    "log_file": NEVER,
    "quiet": AT_ONCE,
}
"""When a setting of [job] in a folder's own pump.toml applies: docs/decisions/0026-trust.md. The
file may have come with a folder that the user has cloned. A setting that is not in this table
never applies. A setting with the path, command or library to load must not be AT_ONCE."""
