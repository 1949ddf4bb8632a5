"""Answers with their curves, built once, for every picture to be tried on."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import zerocalc
from zerocalc.questions.curve import curves

from .answers import CASES

BATCH = {"micro_batch": 1, "seq_len": 8192, "checkpointing": "full"}
JOBS = {
    **CASES,
    "timed": lambda: zerocalc.job("llama-3-8b", gpus=16, node="dgx-h100", tokens="1t", **BATCH),
    "odd": lambda: zerocalc.job("llama-3-8b", gpus=48, gpu="h100", tp=4, **BATCH),
}
PICTURED = sorted(
    [*(f"compare-{name}" for name in JOBS), "compare-frameworks", "estimate-timed", "estimate-offload"]
)


@cache
def pictured(key):
    """A `compare` or `estimate` answer with its curves."""
    kind, _, name = key.partition("-")
    if name == "frameworks":
        job = JOBS["timed"]()
        result = zerocalc.compare(
            job, strategies=["zero2", "zero3", "hsdp"], frameworks=["paper", "deepspeed", "pytorch"]
        )
    else:
        job = JOBS[name]()
        result = zerocalc.estimate(job) if kind == "estimate" else zerocalc.compare(job)
    return replace(result, curves=curves(job, result.results))
