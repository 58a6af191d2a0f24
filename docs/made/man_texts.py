"""What man pages say beside the options: descriptions, examples, variables, exit statuses.

Written by hand; man_pages.py makes pages of it. Settings' variables come from the code.
"""

from __future__ import annotations

Rows = tuple[tuple[str, str], ...]

DESCRIPTION: dict[str, tuple[str, ...]] = {
    "pump-run": (
        "pump-run runs a command whose CUDA programs may use more memory than the GPU has. The "
        "command does not change. A preloaded library turns the program's GPU memory into CUDA "
        "Unified Memory, and a process beside the job (pumpd) brings what the next operations "
        "need onto the GPU before they run. The rest lies in the host's memory.",
        "Results keep their bits. A job that fits into the GPU is left alone. If pumpd dies, the "
        "job goes on under plain Unified Memory. One line on standard error says at the end what "
        "pump did; standard output belongs to the command.",
    ),
    "pump": (
        "pump looks at running jobs (jobs, top), at recordings (trace, report, simulate), at "
        "settings (config) and at this machine (doctor, profiles). compare and fit run a command "
        "several times and measure it. enable and disable serve programs without pump-run in front "
        "of them, kernel makes a kernel for notebooks. metrics, install-service, uninstall-service "
        "and cdi are for administrators.",
    ),
    "pumpd": (
        "pump-run starts one pumpd for each job, and it ends with the job; users need not call "
        "it. pumpd serve is the service that shares the GPUs of a machine among jobs; "
        "pump install-service installs it.",
    ),
}

EXAMPLES: dict[str, Rows] = {
    "pump-run": (
        ("pump-run python train.py", "Use what is free on the card."),
        ("pump-run --budget 20GiB python train.py", "Leave room for other programs."),
        ("pump-run --policy planned python train.py", "Learn what repeats; move memory ahead."),
        ("pump-run --record run.pump python train.py", "Record, then: pump report run.pump"),
        (
            "pump-run --virtual a100-pcie4 --virtual-set memory=2GiB python train.py",
            "Use a virtual GPU, on a machine without one.",
        ),
        ("PUMP_DISABLE=1 pump-run python train.py", "Run the command as if pump were not there."),
    ),
    "pump": (
        ("pump doctor -- python train.py", "Ask what on this machine works against pump."),
        ("pump top", "Watch the running jobs."),
        ("pump compare -- python train.py", "Measure each policy, and the command without pump."),
        ("pump fit --number 64 -- python train.py --batch 64", "Search the largest batch."),
        ("pump simulate run.pump --sweep", "Estimate the speed with other memory."),
        ("pump config show --origin", "Show the settings in this folder and their sources."),
    ),
    "pumpd": (
        ("pumpd serve", "Share GPUs: as root for all users, else for this user."),
        ("pumpd serve --config config.toml", "Take the settings of another file."),
    ),
}

VARIABLES: dict[str, Rows] = {
    "pump-run": (
        ("PUMP_DISABLE", "1: run the command without pump."),
        ("PUMP_SERVICE", "The service's socket, or none: no service."),
        ("PUMP_SUMMARY", "A file for pump's counters as JSON (%p: the process id)."),
        ("PUMP_BLOCK_EVENTS", "0: do not listen to what PyTorch reports of its blocks."),
        ("PUMP_VIRTUAL_KERNELS", "Libraries of host functions for the virtual GPU's kernels."),
    ),
    "pump": (("PUMP_SERVICE", "The service's socket, or none: no service."),),
    "pumpd": (("XDG_RUNTIME_DIR", "Where a user's own service has its socket."),),
}

STATUS: dict[str, Rows] = {
    "pump-run": (
        ("N", "The command's own exit status; its signals are passed on, too."),
        ("2", "A bad option or setting; nothing was run."),
        ("126", "The command cannot be executed."),
        ("127", "The command was not found."),
    ),
    "pump": (
        ("0", "The verb did what was asked."),
        ("1", "doctor: not ready; compare, fit: a run failed; else: a file could not be used."),
        ("2", "Bad input: one line names the word and the remedy."),
        ("130", "Ctrl-C."),
    ),
    "pumpd": (
        ("0", "The job or the service has ended."),
        ("1", "Descriptors or memory do not suffice to begin."),
        ("2", "Bad input: one line names the word and the remedy."),
    ),
}
