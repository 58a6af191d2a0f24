"""The verbs of pump service that write and remove systemd units."""
