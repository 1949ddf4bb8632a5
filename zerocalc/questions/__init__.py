"""Questions asked of estimates: compare, solve, explain, and whatever comes next."""
