"""The table of a job's settings: JobConfig, with one field for each. No I/O.

From a field come the key in files, the variable PUMP_<KEY>, the option of pump-run, the check of
each value and the documentation. The tables of administrators and of rules are in schema.py.

Standard library only, because pump-run imports the module. NamedTuple, because dataclass imports
`inspect`. Annotations are not postponed, because settings() reads them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pump.config import checks, keep
from pump.config.checks import POLICIES, PRIORITY_MAX

AT_ONCE, TRUSTED, NEVER = "at once", "once trusted", "never"
"""When a setting in a folder's own pump.toml applies: docs/decisions/0026-trust.md. The file may
have come with a folder that the user has cloned. A setting with the path, command or library to
load must not be AT_ONCE."""

EVERYDAY, SHARING, OUTPUT = "everyday", "sharing GPUs", "recording and output"
QUIETER = "quieter"
"""Groups of pump-run's options. Options of QUIETER follow -v in the group OUTPUT."""


class Option(NamedTuple):
    """An option of pump-run.

    `usage`: "--name METAVAR", or the names of an option without a value.
    `help`: "{default}" stands for the default; help does not list an option without this text.
    `group`: the option's group in the help; "" for options that it does not list.
    `action`: argparse's action, or "once" to refuse a second value.
    `each`: checks one value of an option that may be repeated; then the setting's own check gets
        the list of them.
    """

    usage: str
    help: str = ""
    group: str = ""
    action: str = "store"
    each: Callable[[str], object] | None = None


class Setting(NamedTuple):
    """All about a setting, except its key, type and default, which are those of its field.

    `description`, `example`: for docs/reference/configuration.md and `pump config example`.
    `check`: converts a value from any source to the field's form. Raises BadValueError.
    `folder`: when a folder's own file may set it: AT_ONCE, TRUSTED or NEVER.
    `without`: describes the value if the setting is not set; "" to show the default.
    `shim`: whether the job's environment has its variable, for the shim and for `pump jobs`.
    `not_in_rules`: why a rule of `pump enable` cannot set it; "" if it can.
    `least`, `most`: bounds of a number in files.
    `kind`, `default`: the type in files, if not the field's, and the default; from settings().
    """

    description: str
    example: object
    check: Callable[[Any], Any] = lambda value: value
    folder: str = NEVER
    without: str = ""
    option: Option = Option("")
    shim: bool = False
    not_in_rules: str = ""
    least: float | None = None
    most: float | None = None
    kind: Any = None
    default: Any = None


def settings(table: Any) -> dict[str, Setting]:
    """Returns the settings of a table, a NamedTuple, by key. A single setting has the key ""."""
    if isinstance(table, Setting):
        return {"": table}
    return {
        key: hint.__metadata__[0]._replace(
            kind=hint.__metadata__[0].kind or hint.__origin__, default=table._field_defaults[key]
        )
        for key, hint in table.__annotations__.items()
        if hasattr(hint, "__metadata__")
    }


class JobConfig(NamedTuple):
    """The settings of one job. Each is also an environment variable, and most are options of
    pump-run.

    All are checked for form. Amounts are decimal bytes, "80%" or "1.5x"; paths are absolute; "" if
    not set. Other fields:
    `command`: program and arguments, never empty.
    `virtual`: name or path of a device profile, None for a real GPU.
    `virtual_settings`: changes to that profile, by key.
    `record_beneath`: if a folder's own file requests the recording: the folder that must contain
        the recording, reached without symbolic links. "" if the user requests it.
    `budget_most`, `limit_most`: the administrator's bounds, or "".
    """

    command: list[str]
    name: Annotated[
        str,
        Setting(
            "The job's name in `pump jobs`, `pump top` and metrics.",
            "llama-finetune",
            checks.name,
            AT_ONCE,
            "the name of the script or command",
            Option(
                "--name NAME",
                "the job's name in pump jobs and pump top (default: the name of its script)",
                SHARING,
            ),
            shim=True,
        ),
    ] = ""
    priority: Annotated[
        int,
        Setting(
            "The job's priority for the system service, -10 to 10; higher is served first. A job "
            "above 0 never waits for its turn.",
            5,
            checks.priority,
            AT_ONCE,
            option=Option(
                "--priority N",
                "-10 to 10: jobs with a higher priority get GPU memory first (default: {default})",
                SHARING,
            ),
            least=-PRIORITY_MAX,
            most=PRIORITY_MAX,
        ),
    ] = 0
    budget: Annotated[
        str,
        Setting(
            "The GPU memory that each process may keep resident on each GPU: a size, or a share "
            "of the GPU's memory.",
            "20GiB",
            checks.amount,
            AT_ONCE,
            "the memory that is free",
            Option(
                "--budget SIZE",
                "GPU memory that each process may keep resident on each GPU (default: what is "
                "free)",
                EVERYDAY,
            ),
            shim=True,
            kind=str | int,
        ),
    ] = ""
    limit: Annotated[
        str,
        Setting(
            "The memory that all processes of the job together may convert. Either a size, a "
            "percentage of the memory that the host can spare, or a multiple of the GPUs' memory.",
            "1.5x",
            checks.amount,
            AT_ONCE,
            "the memory that the host can spare",
            Option(
                "--limit SIZE",
                "managed memory that all processes of the job may allocate in total (default: "
                "what the host can spare)",
                EVERYDAY,
            ),
            shim=True,
            kind=str | int,
        ),
    ] = ""
    report: Annotated[
        str,
        Setting(
            "The free memory that CUDA reports to the program: the rest of its `budget`, or of its "
            "`limit`. With `limit`, frameworks that take a share of free memory oversubscribe.",
            "limit",
            checks.report,
            AT_ONCE,
            option=Option("--report NAME"),
            shim=True,
        ),
    ] = "budget"
    policy: Annotated[
        str,
        Setting(
            f"The policy that decides what to prefetch and evict: one of {', '.join(POLICIES)}.",
            "planned",
            checks.policy,
            AT_ONCE,
            option=Option(
                "--policy NAME",
                f"how pump decides what to move: {', '.join(POLICIES)} (default: {{default}})",
                EVERYDAY,
                "once",
            ),
        ),
    ] = "planned"
    duplicates: Annotated[
        str,
        Setting(
            "Whether unmodified memory leaves the GPU without a copy, because the host's copy "
            "stays valid (`READ_MOSTLY`): `auto`, `on` or `off`. `auto` does this only on the "
            "virtual GPU, if its profile shows a gain. For a real GPU, `pump simulate "
            "--profile-from REPORT.json` reports whether it would gain.",
            "on",
            checks.duplicates,
            AT_ONCE,
            option=Option("--duplicates WHEN"),
        ),
    ] = "auto"
    placement: Annotated[
        str,
        Setting(
            "Where kernels read memory that does not fit on the GPU: `migrate` moves it there. "
            "`auto` tries to leave allocations that kernels often lack on the host, and keeps what "
            "is faster. `remote` leaves them there.",
            "auto",
            checks.placement,
            AT_ONCE,
            option=Option("--placement WHERE"),
        ),
    ] = "migrate"
    granularity: Annotated[
        str,
        Setting(
            "`native` keeps the frameworks' allocators, except JAX's, which cannot exceed the GPU. "
            "`tensor` makes frameworks allocate each tensor in stream order. `auto` does so for "
            "each framework without a known conflict.",
            "auto",
            checks.granularity,
            AT_ONCE,  # sets frameworks' variables, only to values that pump knows
            option=Option(
                "--granularity NAME",
                "native: keep the allocators of frameworks; tensor: make them allocate each tensor "
                "in stream order; auto: tensor for each framework without a known conflict "
                "(default: {default})",
                EVERYDAY,
            ),
            shim=True,
            not_in_rules="frameworks read it before cuInit",
        ),
    ] = "native"
    keep_device: Annotated[
        list[str],
        Setting(
            "Additional rules for memory that stays device memory: `below=SIZE`, `library=NAME`, "
            "`ipc`, `stream-ordered` or `vmm`. `none` drops all rules before it, the default ones "
            "included.",
            ["below=8MiB", "library=libmine"],
            checks.keep_device,
            AT_ONCE,  # `library` is only compared with loaded libraries
            "memory of NCCL, NVSHMEM and UCX, and `ipc`",
            Option(
                "--keep-device RULE",
                "memory to keep as plain device memory, such as buffers of NCCL and UCX: "
                "below=SIZE, library=NAME, ipc, stream-ordered or vmm; none drops all earlier "
                "rules; may be repeated",
                EVERYDAY,
                "append",
                keep.parse,
            ),
            shim=True,
        ),
    ] = keep.DEFAULT
    devices: Annotated[
        list[str],
        Setting(
            "The GPUs that the program sees, by nvidia-smi's index or by UUID.",
            [0, 1],
            checks.devices,
            AT_ONCE,
            "all GPUs that the environment allows",
            Option(
                "--device LIST",
                "GPUs by index (as nvidia-smi counts) or UUID, separated by commas",
                EVERYDAY,
            ),
            not_in_rules="CUDA reads it before cuInit",
            kind=list[str | int],
        ),
    ] = []  # noqa: RUF012  (never changed)
    record: Annotated[
        str,
        Setting(
            "The file that the program's GPU operations are recorded to, for `pump report` and "
            "`pump simulate`; relative to the folder where pump-run starts. At the end it replaces "
            "an older recording of that name.",
            "run.pump",
            checks.file_name,
            TRUSTED,  # only within the folder
            "no recording",
            Option(
                "--record FILE",
                "record the program's GPU operations, for pump report; replaces an older recording "
                "in FILE once the new one is complete",
                OUTPUT,
            ),
            not_in_rules="recordings need pump-run",
        ),
    ] = ""
    record_command: Annotated[
        bool,
        Setting(
            "Whether recordings contain command lines, which may hold secrets.",
            False,
            checks.truth,
            TRUSTED,  # may write secrets to a file
            option=Option("--record-command yes|no"),
            not_in_rules="recordings need pump-run",
        ),
    ] = True
    keep_learned: Annotated[
        bool,
        Setting(
            "Whether policy `planned` stores what it learned about a program for the next run, in "
            "`~/.cache/pump/learned` (`$XDG_CACHE_HOME`). It stores kinds of operations and the "
            "parts of memory that they use, without names or contents.",
            False,
            checks.truth,
            TRUSTED,  # may store private data
            option=Option("--keep-learned yes|no"),
        ),
    ] = True
    log_level: Annotated[
        str,
        Setting(
            f"The lowest level that pump logs: one of {', '.join(checks.LOG_LEVELS)}.",
            "info",
            checks.log_level,
            AT_ONCE,
            option=Option("--log-level LEVEL"),
            shim=True,
        ),
    ] = "warning"
    log_file: Annotated[
        str,
        Setting(
            "The file that log lines are appended to, relative to the folder where pump-run "
            "starts.",
            "pump.log",
            checks.file_name,
            NEVER,
            "standard error",
            Option("--log-file FILE", "append log lines to FILE (default: standard error)", OUTPUT),
            shim=True,
        ),
    ] = ""
    quiet: Annotated[
        bool,
        Setting(
            "Whether pump prints only errors: no notes, no warnings and no last line.",
            True,
            checks.truth,
            AT_ONCE,
            option=Option(
                "-q --quiet",
                "print only pump's errors: no notes, no warnings, no last line",
                QUIETER,
                "store_const",
            ),
            shim=True,
        ),
    ] = False
    virtual: str | None = None
    virtual_settings: dict[str, str] = {}  # noqa: RUF012  (never changed)
    record_beneath: str = ""
    budget_most: str = ""
    limit_most: str = ""

    def variables(self, keys: Iterable[str]) -> dict[str, str]:
        """Returns the variables of fields, in the form that shim and pumpd read."""
        found = {}
        for key in keys:
            value = getattr(self, key)
            text = ",".join(value) if isinstance(value, list) else str(value)
            found[variable(key)] = str(int(value)) if isinstance(value, bool) else text
        return found


DEFAULTS = JobConfig(command=[])
JOB = settings(JobConfig)


def variable(key: str) -> str:
    """Returns the environment variable of a setting."""
    return f"PUMP_{key.upper()}"


class Layer(NamedTuple):
    """The settings of one source, in JobConfig's form.

    origins: the source of each key, for users. notes: sentences about ignored settings.
    record_beneath: as in JobConfig.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    notes: Sequence[str] = ()
    record_beneath: str = ""
