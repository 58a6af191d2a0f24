"""The settings that pumpd passes to a worker, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from pump.config.settings import DEFAULTS


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of one worker, the process that serves one client.

    `policy`: name of the policy, as in `pump-run --policy`.
    `log_level`: error, warning, info or debug.
    `log_file`: absolute path of the log file to append to; None for no log.
    `client_pid`: the client's process ID, from its peer credentials; 0 if the client runs in a PID
        namespace that pumpd cannot see.
    `record`: absolute path of the job's recording, or None.
    `record_folder`: descriptor of the recording's folder, or None to open it by its path.
    `record_command`: whether recordings contain command lines.
    `record_job`: pump-run's facts about the job for the recording's header: a JSON object, or "".
    `job_name`: the job's name in lists of jobs; "" for the name of its command.
    `priority`: the job's priority, from -10 to 10.
    `client_number`: the client's number in the job, from 1, in order of admission. A client that
        reconnects gets a new number.
    `client_command`: the client's command line in a recorded job; empty if it is not visible.
    `duplicates`: whether evictions skip the copy of clean memory.
    `placement`: where kernels read memory that does not fit: "migrate", "auto" or "remote".
    `learned_folder`: absolute path of the folder for learned access patterns; "" to keep none.
    `notes_folder`: the job's folder, for the numbers of a client that is killed; "" for no notes.
    """

    policy: str
    log_level: str
    log_file: str | None
    client_pid: int
    record: str | None = None
    record_folder: int | None = None
    record_command: bool = True
    record_job: str = ""
    client_number: int = 1
    job_name: str = ""
    priority: int = DEFAULTS.priority
    client_command: tuple[str, ...] = ()
    duplicates: bool = False
    placement: str = DEFAULTS.placement
    learned_folder: str = ""
    notes_folder: str = ""
