"""Files, paths, names and output that every part of pump uses. Imports no other part of pump."""
