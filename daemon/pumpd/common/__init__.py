"""Shared code of pumpd's processes: handshake, log lines, settings, threads."""
