"""The commands whose output is kept, and how to write it again."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.cli.running import call

FOLDER = Path(__file__).parent
CASES = {
    "compare-70b.txt": "compare 70b --dp 64 --gpu 80GB",
    "compare-70b.md": "compare 70b --dp 64 --gpu 80GB -f markdown",
    "compare-70b.csv": "compare 70b --dp 64 --gpu 80GB -f csv",
    "compare-13b-offload.txt": "compare 13b -n 16 --gpu 40GB --gpus-per-node 8 --host-memory 512GiB --offload-optimizer cpu -q",
    "estimate-70b.txt": "estimate 70b --dp 64 --gpu 80GB --strategy zero3 -q",
    "solve-70b.txt": "solve gpus 70b --gpu 80GB -q",
    "explain-70b.txt": "explain optimizer_states 70b --dp 64 --strategy zero1",
}


def answer(name: str) -> str:
    """What a case prints now."""
    done = call(*shlex.split(CASES[name]))
    assert (done.code, done.err) == (0, "")
    return done.out


if __name__ == "__main__":
    for name in CASES:
        (FOLDER / name).write_text(answer(name), encoding="utf-8")
