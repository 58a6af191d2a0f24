"""The laboratory's verbs and options."""
