"""One client's worker: its loop, its recorder, and the requests that it serves."""
