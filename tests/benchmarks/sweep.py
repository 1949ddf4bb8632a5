"""Sweeps over three decades of grid size: configurations a second, and peak memory. Printed, never asserted."""

from __future__ import annotations

import json
import subprocess
import sys

DECADES = {
    10**4: ("gpus=8..64:*2", "micro-batch=1..10", "seq-len=1024..65536:1024", "grad-accum=1..4"),
    10**5: ("gpus=8..64:*2", "micro-batch=1..100", "seq-len=1024..65536:1024", "grad-accum=1..4"),
    10**6: ("gpus=8..1024:*2", "micro-batch=1..128", "seq-len=1024..131072:1024", "grad-accum=1..8"),
    10**7: ("gpus=8..1024:*2", "micro-batch=1..1024", "seq-len=1024..131072:1024", "grad-accum=1..10"),
}
"""Axes whose grid has about so many configurations."""
FRAMEWORKS = {"paper": "zero3", "pytorch": "zero3", "deepspeed": "zero2", "megatron": "zero1"}
SCRIPT = """
import json, resource, sys, time
from zerocalc.api import job
from zerocalc.questions.sweep import prepare
framework, strategy, where, *over = sys.argv[1:]
def build(point):
    return job("llama-3-8b", node="dgx-h100", framework=framework, strategy=strategy, **point)
list(prepare(build, ["micro-batch=1", "seq-len=1024", "gpus=8"]).grid.batches())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
sweep = prepare(build, over, where=where or None)
for batch in sweep.grid.batches():
    sweep.tally.take(batch)
seconds = time.process_time() - start
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([sweep.tally.evaluated, sweep.tally.found, seconds, before / 1024, after / 1024]))
"""


def measured(framework: str, where: str, over: tuple[str, ...]) -> list[float]:
    """Configurations, rows, seconds, and peak memory in MiB before and after, of a fresh process."""
    command = [sys.executable, "-c", SCRIPT, framework, FRAMEWORKS[framework], where, *over]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    answer: list[float] = json.loads(output)
    return answer


def main() -> None:
    """Print throughput and memory of every decade, and how they grow from one to the next."""
    for framework in FRAMEWORKS:
        previous = None
        for over in DECADES.values():
            size, rows, seconds, before, after = measured(framework, "fits and step_s_upper < 2", over)
            line = f"sweep {framework}: {size:,} configurations, {rows:,} kept, {size / seconds / 1e6:.2f} million a second"
            line += f", {after:.0f} MiB ({after - before:+.0f})"
            if previous is not None:
                line += f"; against the decade before: time x{seconds / previous[0]:.1f}, memory x{after / previous[1]:.2f}"
            print(line)
            previous = (seconds, after)
        size, _, seconds, _, after = measured(framework, "", DECADES[10**6])
        print(
            f"sweep {framework}: every column of every row: {size / seconds / 1e6:.2f} million a second, {after:.0f} MiB"
        )


if __name__ == "__main__":
    main()
