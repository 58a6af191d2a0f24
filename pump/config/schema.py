"""The tables of administrators' files and of rules, and which tables a file may hold. No I/O.

The table [job] is in settings.py, which pump-run imports; it imports this module only if there is
a file to read. Annotations are not postponed, because settings() reads them.
"""

from typing import Annotated, NamedTuple

from pump.config import checks, rule_checks, service_checks
from pump.config.settings import DEFAULTS, JobConfig, Setting


class Limits(NamedTuple):
    """The administrator's limits for every job. A job that asks for more gets the limit and a
    warning."""

    budget: Annotated[
        str,
        Setting(
            "The largest budget of a job.",
            "90%",
            checks.amount,
            without="the GPU's memory",
            kind=str | int,
        ),
    ] = ""
    limit: Annotated[
        str,
        Setting(
            "The largest limit of a job.",
            "64GiB",
            checks.amount,
            without="the memory that the host can spare",
            kind=str | int,
        ),
    ] = ""
    priority: Annotated[
        int,
        Setting(
            "The highest priority of a job.",
            7,
            checks.priority,
            least=-checks.PRIORITY_MAX,
            most=checks.PRIORITY_MAX,
        ),
    ] = checks.PRIORITY_MAX


class Service(NamedTuple):
    """The settings of the system service, `pumpd serve`."""

    lease_s: Annotated[
        float,
        Setting(
            "Seconds after which a lease without a heartbeat expires.", 10.0, least=0.5, most=180.0
        ),
    ] = 10.0
    reserve: Annotated[
        str,
        Setting(
            "The memory of each GPU that the service keeps free.",
            "3%",
            checks.amount,
            kind=str | int,
        ),
    ] = "3%"
    turns: Annotated[
        bool,
        Setting(
            "Whether jobs that need much more memory than a GPU has take turns of 8 to 30 s on it.",
            False,
            checks.truth,
        ),
    ] = True
    jobs_per_user: Annotated[
        int,
        Setting("How many jobs one user may register at the same time.", 64, least=1, most=10_000),
    ] = 256
    observers: Annotated[
        list[str],
        Setting(
            'Users, and groups as "@name", who see the jobs of all users, like root.',
            ["prometheus", "@operators"],
            service_checks.people,
        ),
    ] = []  # noqa: RUF012  (never changed)
    root_sees_all: Annotated[
        bool,
        Setting(
            "Whether root and the service's own user see the jobs of all users and have reserved "
            "connections. Set it to false in clusters, where any pod may run under these user ids.",
            False,
            checks.truth,
        ),
    ] = True
    log_level: Annotated[
        str,
        Setting("The lowest level that the service logs.", "info", checks.log_level),
    ] = DEFAULTS.log_level


class Match(NamedTuple):
    """The processes that a rule serves. All patterns that are set must match."""

    executable: Annotated[
        str,
        Setting(
            "The program's file with links resolved. A pattern without `/` is compared with the "
            "last part of the path.",
            "python3*",
            rule_checks.pattern,
            without="any",
        ),
    ] = ""
    command: Annotated[
        str,
        Setting(
            "The command line, with blanks between the arguments.",
            "*train.py*",
            rule_checks.pattern,
            without="any",
        ),
    ] = ""
    cgroup: Annotated[
        str,
        Setting(
            "The process's cgroup, as in /proc/self/cgroup.",
            "/user.slice/*",
            rule_checks.pattern,
            without="any",
        ),
    ] = ""
    without_pumpd: Annotated[
        bool,
        Setting(
            "Whether a process is served even if no pumpd can be started for it. It then uses "
            "demand paging.",
            True,
            checks.truth,
        ),
    ] = False


SHARES = Setting(
    "The weights of users when GPUs are shared, by user name, or by group as "
    '"@name". Other users have the weight 1.',
    {"alice": 4, "@students": 1},
    service_checks.shares,
    kind=dict[str, int],
    default={},
)

CONFIG = {"job": JobConfig, "limits": Limits, "shares": SHARES, "service": Service}
"""Tables of a configuration file. Users choose the keys of SHARES."""
RULE = {"match": Match, "job": JobConfig}
"""Tables of a rule of `pump enable`: a file of jobs.d."""
ADMINISTRATORS = ("limits", "shares", "service")
"""Tables that only the administrator's file may hold."""
