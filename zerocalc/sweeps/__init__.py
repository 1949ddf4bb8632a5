"""A grid of jobs answered by the code that answers one: traced once, replayed on arrays.

`axes` says what is varied; `tape`, `whole` and `real` record the arithmetic of one estimate, `replay` does it again for
every point; `grid` puts both together; `where` and `pick` choose among the rows.
"""
