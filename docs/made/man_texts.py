"""The parts of the man pages other than options: descriptions, examples, variables, exit statuses.

Written by hand; man_pages.py makes the pages. The variables of settings come from the code.
"""

from __future__ import annotations

Rows = tuple[tuple[str, str], ...]

DESCRIPTION: dict[str, tuple[str, ...]] = {
    "pump-run": (
        "pump-run runs a command whose CUDA programs may use more memory than the GPU has. The "
        "command itself does not change. A preloaded library turns the program's GPU memory into "
        "CUDA Unified Memory. A second process (pumpd) predicts which memory the next operations "
        "need, and prefetches it to the GPU. The rest stays in host RAM.",
        "Results are bit-identical, because pump only moves data. A job that fits on the GPU runs "
        "as usual. If pumpd dies, the job continues with demand paging. At the end, pump prints "
        "one line on standard error; standard output belongs to the command.",
    ),
    "pump": (
        "pump run starts a job. pump jobs and pump top show running jobs; pump report explains a "
        "recording. pump compare and pump fit run a command several times and measure it. pump "
        "doctor checks this machine, and pump config the settings. Administrators share GPUs "
        "between jobs with pump service, and serve programs without pump-run with pump enable.",
        "JSON that pump prints or writes begins with its schema and version, such as "
        "pump.jobs/1. The version grows when a key is removed or changes its meaning.",
        "Old names of verbs (install-service, uninstall-service, metrics, kernel, cdi, profiles) "
        "work in version 0.1 for the last time; a line on standard error gives the new name.",
    ),
    "pumpd": (
        "pump-run starts one pumpd for each job, which ends with the job; users do not call it. "
        "pumpd serve is the service that shares the GPUs of a machine between jobs; pump service "
        "install installs it.",
    ),
}

EXAMPLES: dict[str, Rows] = {
    "pump-run": (
        ("pump-run python train.py", "Use the free memory of the GPU."),
        ("pump-run --budget 20GiB python train.py", "Leave memory for other programs."),
        (
            "pump-run --policy planned python train.py",
            "Learn the repeating pattern of a training loop, and prefetch by it.",
        ),
        ("pump-run --record run.pump python train.py", "Record, for: pump report run.pump"),
        (
            "pump-run --virtual a100-pcie4 --virtual-set memory=2GiB python train.py",
            "Use a virtual GPU with 2 GiB, on a machine without a GPU.",
        ),
        ("PUMP_DISABLE=1 pump-run python train.py", "Run the command without pump."),
    ),
    "pump": (
        (
            "pump doctor -- python train.py",
            "Check that pump works here and serves it.",
        ),
        ("pump top", "Watch the running jobs."),
        ("pump compare -- python train.py", "Time the command without pump and under each policy."),
        ("pump fit --number 64 -- python train.py --batch 64", "Find the largest batch size."),
        ("pump simulate run.pump --sweep", "Estimate the speed with more or less GPU memory."),
        ("pump config show --origin", "Print the settings that apply here, with their sources."),
    ),
    "pumpd": (
        ("pumpd serve", "Share GPUs: as root for all users, otherwise for this user."),
        ("pumpd serve --config config.toml", "Read the settings from another file."),
    ),
}

VARIABLES: dict[str, Rows] = {
    "pump-run": (
        ("PUMP_DISABLE", "1: run the command without pump."),
        ("PUMP_SERVICE", "The socket of the service; none: use no service."),
        ("PUMP_SUMMARY", "Write pump's counters as JSON to this file (%p: the process id)."),
        ("PUMP_BLOCK_EVENTS", "0: ignore the block events that PyTorch reports."),
        (
            "PUMP_VIRTUAL_KERNELS",
            "Libraries with host functions for the virtual GPU's kernels: paths.",
        ),
    ),
    "pump": (("PUMP_SERVICE", "The socket of the service; none: use no service."),),
    "pumpd": (("XDG_RUNTIME_DIR", "The folder of the socket of a user's own service."),),
}

REFUSED = ("2", "Refused: bad input, or a broken installation. One line names cause and remedy.")

STATUS: dict[str, Rows] = {
    "pump-run": (
        ("N", "The exit status of the command."),
        REFUSED,
        ("126", "The command cannot be executed."),
        ("127", "The command was not found."),
        ("128 + N", "The command was ended by signal N, as shells report it."),
    ),
    "pump": (
        ("0", "Done, or a positive answer."),
        (
            "1",
            "A negative answer, or the output could not be written. doctor: not ready; compare, "
            "fit: a run failed, or you declined; config check: the file has faults.",
        ),
        REFUSED,
        ("126, 127", "run: the command cannot be executed, was not found."),
        (
            "128 + N",
            "Ended by signal N; 130 is Ctrl-C. run otherwise ends with the exit status of the "
            "command.",
        ),
    ),
    "pumpd": (
        ("0", "The job or the service has ended."),
        ("1", "Too few descriptors, or too little memory, to start."),
        REFUSED,
    ),
}
