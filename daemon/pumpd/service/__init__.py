"""The system service, pumpd serve: jobs, leases, what users may have."""
