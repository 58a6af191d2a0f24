"""Starts a job's pumpd alongside the job: neither as its child nor as its parent.

DESIGN
  Since pump-run becomes the job by exec, a child of pump-run would be a child of the job. A
  program that waits for all its children would then wait for pumpd. So a double fork starts
  pumpd: the middle process ends at once, and pump-run waits for it. The new parent of pumpd is
  init, which is pump-run itself if that is process 1 of a container (init.py).

  The job must not wait for pumpd's imports. So pump-run binds the socket and passes it on
  listening. A client may connect before pumpd has started, and gets its answer afterwards. The
  only descriptors of pumpd are the socket, a pidfd that shows the end of the job, /dev/null, its
  log and the folder of its recording. The job's limits on files, memory and time of one process
  (setrlimit(2)) are raised for pumpd as far as this user may. Niceness, affinity, oom_score_adj
  and cgroup stay, because they limit the job as a whole.

  After an error here the job still runs, but without prefetching.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import signal
import socket
import stat
from collections.abc import Mapping
from typing import NamedTuple

from pump.base import paths
from pump.base.names import of_job
from pump.base.processes import pidfd_of
from pump.cli.support import environment
from pump.cli.support.lines import say
from pump.config.settings import JobConfig

BACKLOG = 64
PUMPD_LISTENER_FD = 3
PUMPD_JOB_FD = 4
PUMPD_RECORD_FD = 5
_SAFE_FD = 10
FILES_LEAST = 4096
STACK_LEAST_BYTES = 8 << 20
"""Minimum limits of open files and of the stack for pumpd, if the job's limits are lower."""


class NoPumpdError(Exception):
    """pumpd could not be started; the text gives the reason."""


class Recording(NamedTuple):
    """The data of a recording for pumpd, in addition to its path.

    folder: a descriptor of the file's folder. job: the job's part of its header, JSON.
    """

    folder: int
    job: str


def start_pumpd(
    config: JobConfig,
    environ: Mapping[str, str],
    recording: Recording | None = None,
    other_pid: int = 0,
) -> str:
    """Starts pumpd for the job that this process becomes; returns the socket's path.

    `recording`: required if config.record is set; the caller closes its descriptor.
    `other_pid`: process id of the job's first process, if this process does not become the job.

    Raises NoPumpdError; then leaves no descriptor, child or folder.
    """
    job_pid = other_pid or os.getpid()
    listener, path = _listen(job_pid)
    try:
        job_fd = pidfd_of(job_pid)  # None: pumpd polls /proc instead
        command = _pumpd_command(config, path, job_pid, job_fd is not None, recording)
        if not other_pid and not config.quiet and (place := _stderr()):
            command += ["--stderr", place]
        _spawn(
            _Descriptors(
                listener.fileno(), job_fd, recording and recording.folder, config.log_file
            ),
            command,
            environment.for_pumpd(environ),
        )
    except OSError as error:
        _remove(path)
        raise NoPumpdError(f"{path}: {error.strerror}") from None
    finally:
        listener.close()
    if job_fd is not None:
        os.close(job_fd)
    return path


def _listen(job_pid: int) -> tuple[socket.socket, str]:
    """Returns the job's listening socket and its path, in the first usable folder of the user, else
    in a new folder for this job. Reports folders that are not private. Raises NoPumpdError."""
    reasons = []
    for base in (*paths.runtime_bases(), ""):
        try:
            directory = paths.make_job_directory(base or paths.make_temporary_base(), job_pid)
        except paths.UnsafeDirectoryError as error:
            say("pump-run", f"using another folder for pumpd's socket: {error}")
            continue
        except OSError as error:
            reasons.append(f"{error.filename}: {error.strerror}")
            continue
        path = os.path.join(directory, paths.SOCKET_NAME)
        listener = None
        try:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            paths.bind(listener, path, 0o600)
            listener.listen(BACKLOG)
            return listener, path
        except OSError as error:  # no sockets on this file system, or no free descriptor
            if listener is not None:
                listener.close()
            _remove(path)
            reasons.append(f"{path}: {error.strerror}")
    raise NoPumpdError("; ".join(reasons))


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
    paths.remove_job_directory(os.path.dirname(path))


def _pumpd_command(
    config: JobConfig, path: str, job_pid: int, with_pidfd: bool, recording: Recording | None
) -> list[str]:
    command = paths.isolated("pumpd", "job")
    command += ["--fd", str(PUMPD_LISTENER_FD), "--socket", path, "--job-pid", str(job_pid)]
    if with_pidfd:
        command += ["--job-pidfd", str(PUMPD_JOB_FD)]
    command += ["--policy", config.policy, "--log-level", config.log_level]
    command += ["--priority", str(config.priority)]
    command += [f"--name={config.name or of_job(config.command)}"]  # it may begin with "-"
    command += ["--named"] if config.name else []
    for service in paths.service_sockets():
        command += ["--service", service]
    if config.budget:
        command += ["--budget", config.budget]
    if config.log_file:
        command += ["--log-file", config.log_file]
    command += ["--placement", config.placement]
    if config.duplicates == "on":
        command += ["--duplicates", "yes"]
    if config.keep_learned:
        command += ["--keep-learned", "yes"]
    if recording is not None:
        command += ["--record", config.record, "--record-job", recording.job]
        command += ["--record-fd", str(PUMPD_RECORD_FD)]
        command += [] if config.record_command else ["--record-command", "no"]
    return command


def _stderr() -> str:
    """Returns device, inode and path of standard error, so that pumpd can open it again if a signal
    ends the job. Returns "" unless standard error is a terminal, or a file that is open for
    appending, since others write to it after the job. The reader of a pipe would wait for pumpd."""
    try:
        found = os.fstat(2)
        if os.isatty(2):
            path = os.ttyname(2)
        elif stat.S_ISREG(found.st_mode) and fcntl.fcntl(2, fcntl.F_GETFL) & os.O_APPEND:
            path = os.readlink("/proc/self/fd/2")
        else:
            return ""
        return f"{found.st_dev}:{found.st_ino}:{path}"
    except OSError:
        return ""


class _Descriptors(NamedTuple):
    """All descriptors that pumpd inherits: the listening socket, the job's pidfd, the folder of
    its recording, and the log file (given by path) as stderr."""

    listener: int
    job: int | None
    record: int | None
    log_file: str


def _spawn(descriptors: _Descriptors, command: list[str], environ: dict[str, str]) -> None:
    middle = os.fork()
    if middle == 0:
        with contextlib.suppress(BaseException):
            # A new process group keeps the terminal's signals away from pumpd. pumpd does not get
            # a new session: Linux divides CPU time by session first (autogroup, sched(7)), so a
            # process that mostly sleeps could wait for seconds next to busy processes.
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            if os.fork() == 0:
                _become_pumpd(descriptors, command, environ)
        os._exit(0)
    # Fails if the kernel has reaped the child (SIGCHLD is ignored), or if a filter refuses waitpid.
    with contextlib.suppress(OSError):
        os.waitpid(middle, 0)


def _raise_limits() -> None:
    """Raises each limit to its `least` value, or removes it. If this user may not, raises it as far
    as the hard limit."""
    import resource

    least = {"NOFILE": FILES_LEAST, "STACK": STACK_LEAST_BYTES}
    for name in ("AS", "CPU", "DATA", "FSIZE", "NOFILE", "NPROC", "RSS", "STACK"):
        which = getattr(resource, f"RLIMIT_{name}")
        wanted = least.get(name, resource.RLIM_INFINITY)
        try:
            soft, hard = resource.getrlimit(which)
        except OSError:  # a system call filter: pumpd keeps the job's limits
            return
        if soft == resource.RLIM_INFINITY or soft >= wanted != resource.RLIM_INFINITY:
            continue
        for most in (max(wanted, hard, key=_height), hard):
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(which, (min(wanted, most, key=_height), most))
                break


def _height(limit: int) -> float:
    return math.inf if limit < 0 else limit  # RLIM_INFINITY is -1


def _become_pumpd(descriptors: _Descriptors, command: list[str], environ: dict[str, str]) -> None:
    null = os.open("/dev/null", os.O_RDWR)
    log = null
    if descriptors.log_file:  # for Python's own message if pumpd cannot be imported
        with contextlib.suppress(OSError):  # such as a pipe without a reader yet
            log = paths.open_log(descriptors.log_file)
    given = {0: null, 1: null, 2: log, PUMPD_LISTENER_FD: descriptors.listener}
    if descriptors.job is not None:
        given[PUMPD_JOB_FD] = descriptors.job
    if descriptors.record is not None:
        given[PUMPD_RECORD_FD] = descriptors.record
    # Use numbers above all targets first: with a closed stdin the listener may be number 0.
    above = {at: fcntl.fcntl(fd, fcntl.F_DUPFD, _SAFE_FD) for at, fd in given.items()}
    for target, fd in above.items():
        os.dup2(fd, target)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in given:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed
                os.close(int(name))
    with contextlib.suppress(OSError):
        os.chdir("/")
    os.umask(0o077)
    _raise_limits()
    with contextlib.suppress(OSError):
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):  # KILL, STOP and the C library's own
            signal.signal(number, signal.SIG_DFL)
    os.execve(command[0], command, environ)
