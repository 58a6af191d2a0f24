"""pumpd: the daemon that decides which blocks a job's shim moves, and the system service."""
