"""Whole processes, in pairs: what a command costs against the interpreter that it cannot do without."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

FLOOR = """
import click
from typing import Literal
from pydantic import BaseModel
for i in range(12):
    fields = {"a": int, "b": str, "c": float | None, "d": list[int], "e": Literal["x", "y"]}
    type(f"Model{i}", (BaseModel,), {"__annotations__": fields})
"""
PAIRS = {
    "compare --format json / click + pydantic + a dozen models": (
        ["-m", "zerocalc", "compare", "llama-2-70b", "-n", "64", "--gpu", "a100-80gb", "--format", "json"],
        ["-c", FLOOR],
    ),
    "--help / import click": (["-m", "zerocalc", "--help"], ["-c", "import click"]),
}
RUNS = 11
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Bytecode is cached, as an installation leaves it; the floor's own packages always are."""


def seconds(arguments: list[str]) -> float:
    """Wall seconds of one run, output thrown away."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True, env=ENVIRONMENT)
    return time.perf_counter() - start


def peak_mib(arguments: list[str]) -> float:
    """Peak resident memory of one run, in MiB."""
    script = (
        "import resource, subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]], stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    output = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=ENVIRONMENT,
    )
    return int(output.stdout) / 1024


def main() -> None:
    """Print the median of the pairwise ratios, with their range."""
    for name, (ours, floor) in PAIRS.items():
        seconds(ours), seconds(floor)
        ratios = sorted(seconds(ours) / seconds(floor) for _ in range(RUNS))
        print(
            f"{name}: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); {peak_mib(ours):.1f} MiB"
        )
