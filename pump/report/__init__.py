"""Reports on recordings, for users: numbers, advice, text, a page."""
