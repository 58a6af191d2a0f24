"""Recordings of jobs: the file format, its writer, its reader, a summary of it."""
