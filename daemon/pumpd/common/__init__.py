"""What several parts of pumpd use: the first exchange, log lines, settings, threads."""
