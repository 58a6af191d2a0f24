"""pumpd's model of a client: blocks, their locations, and the window of issued operations."""
