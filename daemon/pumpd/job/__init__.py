"""A job's own pumpd: the supervisor, the spawner of workers, the server of control requests."""
