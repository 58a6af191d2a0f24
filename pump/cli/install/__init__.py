"""The verbs of pump install: a Jupyter kernel, a CDI specification, shell completions."""
