"""Recordings of jobs: their file format, writer, reader and summary."""
