"""Measures commands against each other: runs, rounds, paired statistics, conclusions."""
