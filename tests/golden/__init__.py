"""A few answers as people see them. `python -m tests.golden.cases` rewrites them; read the diff before committing."""
