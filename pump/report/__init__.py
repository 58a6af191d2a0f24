"""Reports on recordings, for users: figures, advice, text, a page."""
