"""A plan is the best of what fits: against a search that evaluates everything."""

import itertools

import pytest

from zerocalc.api import job
from zerocalc.errors import UsageError, ZerocalcError
from zerocalc.evaluate import evaluate
from zerocalc.questions.free import divisors
from zerocalc.questions.plan import job_of, plan


def planned(model, **words):
    return job(model, micro_batch=1, seq_len=4096, **words)


def exhaustive(base, batch, strategies, offloads, levels):
    """Every configuration that fits, by single estimates: (upper, lower, strategy, level, offloads, micro-batch)."""
    found = []
    for strategy, (optimizer, params), level in itertools.product(strategies, offloads, levels):
        per_rank = batch // base.parallelism.data_parallel_size
        for micro in divisors(per_rank):
            work = {"micro_batch": micro, "grad_accum": per_rank // micro, "checkpointing": level}
            variant = base.model_copy(
                update={
                    "strategy": strategy,
                    "workload": base.workload.model_copy(update=work),
                    "offload": type(base.offload)(optimizer=optimizer, params=params),
                }
            )
            try:
                result, _ = evaluate(variant)
            except ZerocalcError:
                continue
            memory = result.memory
            if result.fits and memory.cpu.fits is not False and memory.nvme.fits is not False:
                found.append(
                    (
                        result.time.step_s.upper,
                        result.time.step_s.lower,
                        strategy,
                        level,
                        (optimizer, params),
                        micro,
                    )
                )
    return sorted(found)


@pytest.mark.parametrize(
    ("model", "gpus"),
    [("llama-3-8b", 8), ("llama-3-8b", 64), ("llama-3-70b", 64), ("mixtral-8x7b", 32), ("gpt2", 8)],
)
def test_the_winner_is_the_best_of_everything(model, gpus):
    base = planned(model, gpus=gpus, node="dgx-h100")
    answer = plan(base, fixed=(), global_batch=gpus * 16)
    strategies = ("ddp", "zero1", "zero2", "zero3", *(("hsdp",) if gpus > 8 else ()))
    offloads = list(itertools.product(("none", "cpu", "nvme"), repeat=2))
    found = exhaustive(base, gpus * 16, strategies, offloads, ("none", "selective", "full"))
    best = answer.plans[0]
    assert (best.step_s_upper, best.step_s_lower) == pytest.approx(found[0][:2], rel=1e-12)
    least_relief = {}
    for upper, lower, strategy, level, offload, micro in found:
        least_relief.setdefault((strategy, micro), []).append((level, offload, upper, lower))
    for row in answer.plans:
        alike = [entry[:2] for entry in least_relief[row.strategy, row.micro_batch]]
        assert (row.checkpointing, (row.offload_optimizer, row.offload_params)) in alike
    assert answer.num_fitting <= len(found)
    assert [p.step_s_upper for p in answer.plans] == sorted(p.step_s_upper for p in answer.plans)


def test_each_line_is_a_single_estimate():
    base = planned("llama-3-8b", gpus=16, node="dgx-h100")
    answer = plan(base, fixed=(), top=20)
    for row in answer.plans:
        result, _ = evaluate(job_of(base, row))
        assert (result.fits, result.memory.gpu.peak_bytes) == (True, row.peak_bytes)
        assert row.micro_batch * row.grad_accum * row.data_parallel_size == answer.global_batch
        assert result.time.step_s.upper == pytest.approx(row.step_s_upper, rel=1e-12)


def test_what_is_fixed_stays():
    base = planned("llama-3-8b", gpus=8, node="dgx-h100", strategy="zero2", checkpointing="full")
    answer = plan(base, fixed=("strategy", "checkpointing"))
    assert {(row.strategy, row.checkpointing) for row in answer.plans} == {("zero2", "full")}


def test_megatron_searches_the_degrees():
    answer = plan(
        planned("llama-3-70b", gpus=64, node="dgx-h100", framework="megatron", strategy="zero1"), fixed=()
    )
    assert answer.plans
    assert any(row.tp > 1 for row in answer.plans)
    assert all(row.tp * row.pp * row.cp * row.data_parallel_size == 64 for row in answer.plans)


def test_settings_can_be_tried():
    base = planned("llama-3-8b", gpus=16, node="dgx-h100")
    answer = plan(base, fixed=(), over={"set.loss": ["eager", "fused"], "strategy": ["zero3"]}, top=50)
    assert {row.settings["loss"] for row in answer.plans} >= {"fused"}


def test_nothing_fits_says_what_is_closest():
    answer = plan(
        planned("llama-3-70b", gpus=8, node="dgx-h100"), fixed=("offload_optimizer", "offload_params")
    )
    assert answer.plans == []
    assert answer.closest.headroom_bytes < 0
    assert any("GPUs" in line for line in answer.advice)


@pytest.mark.parametrize(
    ("words", "message"),
    [({"gpus": 8}, "needs the GPU's memory"), ({"gpus": 8, "gpu": "80GB"}, "needs the GPU's rates")],
)
def test_what_a_plan_needs(words, message):
    with pytest.raises(UsageError, match=message):
        plan(planned("7b", **words))


@pytest.mark.parametrize(
    ("text", "batch"), [("64", 64), (None, 1024), ("1Mtokens", 240), ("524288 tok", 128), (48, 48)]
)
def test_global_batch(text, batch):
    assert plan(planned("gpt2", gpus=16, node="dgx-h100"), global_batch=text, fixed=()).global_batch == batch


def test_a_batch_that_cannot_be_divided():
    with pytest.raises(UsageError, match="no configuration can be"):
        plan(planned("gpt2", gpus=16, node="dgx-h100"), global_batch=24, fixed=())
