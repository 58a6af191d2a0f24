"""A job's leases from the system service, and the job's use of GPUs."""
