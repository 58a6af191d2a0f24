"""A job's settings: collects them from all sources, checks them, and converts them to one form."""
