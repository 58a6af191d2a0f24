"""What a recording tells of a run, for people: figures, advice, text, a page."""
