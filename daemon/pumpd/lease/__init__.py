"""A job's leases from the system service, and what the job uses."""
