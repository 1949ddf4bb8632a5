"""How the worked examples are computed, by topic."""
