"""Code that several verbs share: options, messages, a job's environment, the start of its pumpd."""
