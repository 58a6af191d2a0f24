"""The commands that people type: pump-run, and one file for each verb of pump."""
