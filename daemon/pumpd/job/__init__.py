"""A job's own pumpd: the supervisor, the spawner of workers, and the server of control requests."""
