"""What several verbs use: options, lines, the environment of a job, its pumpd's start."""
