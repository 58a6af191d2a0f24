"""What a user may ask of a job, checked and brought into one form."""
