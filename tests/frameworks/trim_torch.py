"""Trim measured PyTorch runs to the facts that tests need: `python -m tests.frameworks.trim_torch RESULTS...`.

Two folders were trimmed: the shared measurements, and further runs of the same harness (torch 2.13, gloo on CPU) made
after the code was written: small buckets, worlds of 3 and 4, other models and options.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1] / "data" / "measured" / "torch"
PHASES = {"fwd": "forward", "bwd": "backward", "opt": "optimizer_step"}
OPS = {
    "allgather_base": "all_gather", "allgather": "all_gather", "reduce_scatter_base": "reduce_scatter",
    "allreduce": "all_reduce", "broadcast": "broadcast",
}  # fmt: skip


def collectives(by_phase: dict[str, Any]) -> dict[str, list[int]]:
    """`phase|op|dtype|group size` -> calls and full bytes of a step."""
    totals: dict[str, list[int]] = {}
    for phase, calls in by_phase.items():
        for name, facts in calls.items():
            op, dtype, group = name.split("|")
            key = f"{PHASES[phase.rpartition('.')[2]]}|{OPS[op]}|{dtype}|{group[1:]}"
            total = totals.setdefault(key, [0, 0])
            total[0] += facts["count"]
            total[1] += facts["full_bytes"]
    return totals


def peaks(by_phase: dict[str, Any], elsewhere: int = 0) -> dict[str, int]:
    """The largest forward, backward and optimizer step, without what the harness itself holds."""
    found: dict[str, int] = {}
    for phase, facts in by_phase.items():
        key = PHASES[phase.rpartition(".")[2]]
        found[key] = max(found.get(key, 0), facts["bytes"] - elsewhere)
    return found


def rank_facts(rank: dict[str, Any], *, reduces_by_bucket: bool) -> dict[str, int]:
    """What one rank holds between steps, gradients kept."""
    state, split = rank["state"], rank["marks"]["live_after_step_split"]
    facts = {name: state[name]["storage_bytes"] for name in ("params", "grads", "buffers")}
    facts |= {name: held["storage_bytes"] for name, held in state["opt"].items()}
    if reduces_by_bucket:
        facts["gradient_buckets"] = split.get("allreduce_in", 0) + split.get("other_from_fwd", 0)
    facts["live"] = rank["marks"]["live_after_step"] - split.get("other_from_init", 0)
    return facts


def run_of(data: dict[str, Any]) -> dict[str, Any]:
    """One run of a small model."""
    first = data["ranks"][0]
    mesh = first["marks"]["live_after_step_split"].get("other_from_init", 0)
    by_bucket = data["config"]["kind"] in {"ddp", "zero1"}
    return {
        "config": {key: value for key, value in data["config"].items() if key != "name"},
        "world": data["world"],
        "fake": data.get("backend") == "fake",
        "rank_ids": data.get("rank_ids") or list(range(len(data["ranks"]))),
        "ranks": [rank_facts(rank, reduces_by_bucket=by_bucket) for rank in data["ranks"]],
        "collectives": collectives(first["collectives_by_phase"]),
        "peaks": peaks(first["peak"], mesh),
    }


RACES = {"torch.fsdp1.mlp_odd.gradop.orig.w3", "torch.fsdp2.llama_gqa.default.bf16_fp32.accum2_sync.w2"}
"""Runs in which one rank's gloo thread still held its copy of a gradient when the ledger was read."""


def main(*folders: Path) -> None:
    """Write `models.json`, `runs.json` (small models) and `traces.json` (one rank of large ones)."""
    models, runs, traces = {}, {}, {}
    for path in sorted(
        path for folder in folders for path in folder.glob("torch.*.json") if path.stem not in RACES
    ):
        data = json.loads(path.read_text())
        models[data["config"]["model"]] = {
            "config": data["model_config"],
            "param_shapes": data["param_shapes"],
        }
        runs[path.name.removesuffix(".json")] = run_of(data)
    for path in sorted(path for folder in folders for path in folder.glob("fake.fsdp2*.json")):
        data = json.loads(path.read_text())
        traces[path.name.removesuffix(".json")] = {
            "config": {key: value for key, value in data["config"].items() if key != "name"},
            "shape": data["shape"],
            "states": {"params": data["state"]["params"]["storage_bytes"]}
            | {name: held["storage_bytes"] for name, held in data["state"]["opt"].items()},
            "collectives": collectives(data["collectives_by_phase"]),
            "peaks": peaks(data["peak"]),
        }
    for name, facts in (("models", models), ("runs", runs), ("traces", traces)):
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in facts.items())
        (HERE / f"{name}.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
