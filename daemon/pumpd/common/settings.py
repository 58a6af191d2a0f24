"""The settings that pumpd passes to a worker. Plain values."""

from __future__ import annotations

from dataclasses import dataclass

from pump.config.job import DEFAULT_PRIORITY


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of one worker, the process that serves one client.

    policy: name of the policy, as in `pump-run --policy`.
    log_level: error, warning, info or debug.
    log_file: absolute path to append to, or None for no log.
    client_pid: process id of the client by peer credentials; 0 when the client
        lives in a process namespace that pumpd cannot see.
    record: absolute path of the job's recording, or None.
    record_folder: a descriptor of that file's folder, or None to open it by its path.
    record_command: whether recordings hold command lines.
    record_job: pump-run's facts about the job for the recording's header, a JSON object; may be
        empty.
    job_name: of the job where jobs are listed; "" for its command's name.
    priority: -10 to 10, of the job.
    client_number: of the client among the job's, from 1, in order of admission; one that
        attaches again gets another number.
    client_command: the client's command line in a recorded job; empty where it cannot be
        seen.
    duplicates: whether memory that was only read leaves the GPU without a copy.
    learned_folder: absolute path of the folder in which what was learned is kept; "" for nowhere.
    notes_folder: the job's, for the figures of a client that a signal ends; "" for nowhere.
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
    priority: int = DEFAULT_PRIORITY
    client_command: tuple[str, ...] = ()
    duplicates: bool = False
    learned_folder: str = ""
    notes_folder: str = ""
