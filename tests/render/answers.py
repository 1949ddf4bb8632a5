"""One answer of every kind, built once, for every renderer to be tried on."""

from __future__ import annotations

from functools import cache

import zerocalc
from zerocalc.questions.params import params
from zerocalc.questions.presets import preset, presets

CASES = {
    "bare": lambda: zerocalc.job("70b", dp=64, gpu="80GB"),
    "small": lambda: zerocalc.job("124m", dp=64, gpu="16GiB"),
    "no_gpu": lambda: zerocalc.job("7b", dp=8),
    "real": lambda: zerocalc.job("llama-2-70b", gpus=64, gpu="a100-80gb"),
    "offload": lambda: zerocalc.job("13b", gpus=16, node="dgx-h100", offload_optimizer="cpu"),
    "parallel": lambda: zerocalc.job("llama-3-8b", gpus=64, gpu="h100", tp=4, pp=2),
    "experts": lambda: zerocalc.job("mixtral-8x7b", gpus=64, gpu="h100", ep=8),
    "largest": lambda: zerocalc.job(10**15, dp=1, gpu="1GB"),
}


@cache
def job(name):
    return CASES[name]()


@cache
def comparison(name):
    return zerocalc.compare(job(name))


@cache
def every_answer():
    """Kind and case -> result, for all kinds."""
    answers = {f"compare-{name}": comparison(name) for name in CASES}
    answers |= {f"estimate-{name}": zerocalc.estimate(job(name)) for name in CASES}
    for quantity in ("params", "gpus", "strategy"):
        answers[f"solve-{quantity}"] = zerocalc.solve(job("bare"), quantity)
    answers["solve-none"] = zerocalc.solve(job("largest"), "strategy")
    for quantity in ("model_states", "sent", "host"):
        answers[f"explain-{quantity}"] = zerocalc.explain(job("offload"), quantity)
    answers["params"] = params("mixtral-8x7b")
    answers["presets"] = presets("nodes")
    answers["presets-settings"] = presets("settings")
    answers["preset"] = preset("gpus", "h100")
    answers["preset-model"] = preset("models", "gpt2")
    return answers


KEYS = sorted(every_answer())
