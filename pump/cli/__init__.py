"""The command line: pump-run, and one file for each verb of pump."""
