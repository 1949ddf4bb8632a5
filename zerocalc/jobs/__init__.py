"""What was typed and read -> a job: words from flags, files and project defaults, each value with its origin."""
