"""What pumpd believes about a client: blocks, where they are, and the window."""
