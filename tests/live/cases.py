"""What is run, and what zerocalc is asked about it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.live.models import SEQUENCE, config_file
from zerocalc.evaluate import plans
from zerocalc.jobs.resolve import resolve
from zerocalc.readers.deepspeed import read_deepspeed
from zerocalc.readers.reading import Given
from zerocalc.totals import phases_of

if TYPE_CHECKING:
    from pathlib import Path

    from zerocalc.frameworks.terms import Plan
    from zerocalc.specs.job import Job

WORK = {"micro_batch": 1, "seq_len": SEQUENCE}


@dataclass(frozen=True)
class Case:
    """One job: a strategy on a model, with settings by the framework's names."""

    strategy: str
    model: str
    world: int
    settings: dict[str, Any] = field(default_factory=dict)
    """Of PyTorch: zerocalc's own settings. Of DeepSpeed: keys of `zero_optimization`."""
    words: dict[str, Any] = field(default_factory=dict)
    """Further words of the job: grad_accum, shard_size, precision, offload_optimizer."""
    config: dict[str, Any] = field(default_factory=dict)
    """Top-level keys of DeepSpeed's file."""
    watch: bool = False
    """Whether the peak is watched too."""

    @property
    def name(self) -> str:
        """Strategy, model, ranks, and whatever is set."""
        given = {**self.words, **self.config, **self.settings}
        options = ",".join(f"{key}={_short(value)}" for key, value in given.items())
        return f"{self.strategy}-{self.model}-w{self.world}" + (f"-{options}" if options else "")

    @property
    def grad_accum(self) -> int:
        """Micro-steps per optimizer step."""
        return int(self.words.get("grad_accum", 1))


def _short(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")).replace('"', "").replace("[", "(").replace("]", ")")


def deepspeed_config(case: Case) -> dict[str, Any]:
    """The file a user would hand to DeepSpeed; buckets fit the models unless the case says otherwise."""
    stage = int(case.strategy.removeprefix("stage"))
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": case.grad_accum,
        "zero_optimization": {"stage": stage, "reduce_bucket_size": 300_000, **case.settings},
        **({} if case.words.get("precision") == "fp32" else {"bf16": {"enabled": True}}),
        **case.config,
    }


def pytorch_job(case: Case, folder: Path) -> Job:
    """The case by words and settings."""
    words = {
        "model": str(config_file(case.model, folder)), "gpus": case.world, "framework": "pytorch",
        "strategy": case.strategy, "precision": "fp32", **WORK, **case.words,
    }  # fmt: skip
    here = {"activation_device": "cpu", "backend": "gloo", "foreach": False}
    return resolve(_given(words), _given({**here, **case.settings}))


def deepspeed_job(case: Case, folder: Path) -> Job:
    """The case by DeepSpeed's own file, and the class of optimizer that is handed to it."""
    path = folder / "ds_config.json"
    path.write_text(json.dumps(deepspeed_config(case)))
    reading = read_deepspeed(path, dp=case.world)
    reading.values.pop("dp", None)
    words = _given({"model": str(config_file(case.model, folder)), "gpus": case.world, **WORK, **case.words})
    here = _given({"optimizer_class": "adamw", "activation_device": "cpu"})
    return resolve({**reading.values, **words}, {**reading.settings, **here})


def _given(values: dict[str, Any]) -> dict[str, Given]:
    return {name: Given(value, "flag") for name, value in values.items()}


def plan_of(job: Job) -> Plan:
    """Terms and messages of the job's only rank class."""
    ((_, plan),) = plans(job)
    return plan


def messages(plan: Plan) -> dict[str, list[int]]:
    """Calls and full bytes of a step under the recorder's keys."""
    totals: dict[str, list[int]] = {}
    for row in plan.collectives:
        total = totals.setdefault(f"{row.phase}|{row.op}|{row.dtype}|{row.group_size}", [0, 0])
        total[0] += row.count
        total[1] += row.full_bytes
    return totals


def peak(plan: Plan) -> int:
    """The most that is held at once in a step, on all tiers together: on this machine they are one."""
    phases = phases_of(plan.terms)
    return max(held for phase, held in phases.items() if phase != "initialization")


def differences(measured: dict[str, Any], predicted: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """`(measured, zerocalc)` wherever the two differ."""
    return {
        key: (measured.get(key), predicted.get(key))
        for key in (*measured, *(key for key in predicted if key not in measured))
        if measured.get(key) != predicted.get(key)
    }
