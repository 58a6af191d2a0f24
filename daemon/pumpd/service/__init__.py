"""The system service, pumpd serve: jobs, leases, quotas of users."""
