"""One client's worker: its loop, its recorder, what it does on request."""
