"""Commands measured against each other: runs, rounds, paired statistics, what follows from them."""
