"""pumpd: the process beside a job that decides what its shim should move."""
