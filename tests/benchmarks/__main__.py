"""`python -m tests.benchmarks`: every benchmark, as ratios measured in one run. Nothing here fails a test."""

from __future__ import annotations

from tests.benchmarks import startup, sweep

if __name__ == "__main__":
    startup.main()
    sweep.main()
