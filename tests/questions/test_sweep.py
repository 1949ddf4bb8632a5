"""A sweep's rows are single estimates, however they were computed."""

import itertools
import math
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import zerocalc
from zerocalc.api import job
from zerocalc.errors import ZerocalcError
from zerocalc.evaluate import evaluate
from zerocalc.questions.sweep import prepare, sweep
from zerocalc.sweeps.figures import COLUMNS

MODELS = ("llama-3-8b", "gpt2", "mixtral-8x7b", "70b", "1.5T")
STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "hsdp", "mics", "zeropp")
GPUS = ("gpus=1..64:*2", "gpus=8..64:8", "gpus=1..13", "dp=1..40:7", "dp=3,8")
BATCHES = ("micro-batch=1..9", "micro-batch=1..64:*2", "micro-batch=2")
LENGTHS = ("seq-len=1..5000:713", "seq-len=512..65536:*2")
STEPS = ("grad-accum=1..5", "grad-accum=1..64:*4")


def builder(**base):
    def build(point):
        words = {**base, **{word: text for word, text in point.items() if not word.startswith("set.")}}
        own = {word.removeprefix("set."): text for word, text in point.items() if word.startswith("set.")}
        return job(words.pop("model"), settings=own, **words)

    return build


def single(one):
    """The row of a job, from the estimate that is answered for it alone."""
    result, _ = evaluate(one)
    memory, time = result.memory, result.time
    return dict(
        zip(
            COLUMNS,
            (
                result.strategy, result.framework, memory.gpu.model_states_bytes, memory.gpu.peak_bytes,
                memory.gpu.peak_phase, result.headroom_bytes, result.fits, result.communication.sent_bytes_per_rank,
                result.communication.volume_params, memory.cpu.bytes_per_node, memory.cpu.fits,
                memory.nvme.bytes_per_node, memory.nvme.fits, time and time.step_s.lower, time and time.step_s.upper,
                time and time.tokens_per_s.lower, time and time.tokens_per_s.upper,
            ),
            strict=True,
        )
    )  # fmt: skip


def same(ours, theirs):
    if isinstance(theirs, float):
        return ours is not None and math.isclose(ours, theirs, rel_tol=1e-12)
    return ours == theirs and type(ours) is type(theirs)


def rows_and_refusals(base, over, **choices):
    running = prepare(builder(**base), over, **choices)
    try:
        rows = list(running.rows())
    except ZerocalcError:
        rows = []
    return rows, sum(running.tally.refused.values()), running.grid.size


def assert_single_estimates(base, over, rows, sample=4):
    words = [text.partition("=")[0].replace("-", "_") for text in over]
    for row in random.Random(0).sample(rows, min(sample, len(rows))):
        expected = single(builder(**base)({word: row[word] for word in words}))
        wrong = {name: (row[name], value) for name, value in expected.items() if not same(row[name], value)}
        assert not wrong, (base, {word: row[word] for word in words}, wrong)


machines = st.sampled_from(
    [{}, {"gpu": "80GB"}, {"node": "dgx-h100"}, {"gpu": "a100-80gb", "gpus_per_node": 4}]
)


@st.composite
def sweeps(draw, frameworks):
    base = {
        "framework": draw(st.sampled_from(frameworks)),
        "model": draw(st.sampled_from(MODELS)),
        "seq_len": 4096,
    }
    base |= draw(machines)
    for word, values in (
        ("offload_optimizer", ("cpu", "nvme")), ("optimizer", ("adafactor", "sgd", "adamw-8bit")),
        ("checkpointing", ("full", "selective")), ("attention", ("eager",)), ("shard_size", (8,)), ("k", ("12.3",)),
    ):  # fmt: skip
        if draw(st.integers(0, 3)) == 0:
            base[word] = draw(st.sampled_from(values))
    names = draw(st.lists(st.sampled_from(STRATEGIES), min_size=1, max_size=3, unique=True))
    over = [f"strategy={','.join(names)}", draw(st.sampled_from(GPUS)), draw(st.sampled_from(BATCHES))]
    further = [draw(st.sampled_from(axes)) for axes in (LENGTHS, STEPS, ("tp=1,2,4",)) if draw(st.booleans())]
    return base, [*over, *further]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=sweeps(["paper"]))
def test_rows_are_single_estimates(case):
    base, over = case
    rows, refused, size = rows_and_refusals(base, over)
    assert len(rows) + refused == size
    assert_single_estimates(base, over, rows)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=sweeps(["pytorch", "deepspeed", "megatron", "paper"]))
def test_rows_are_single_estimates_in_every_framework(case):
    base, over = case
    if base["model"].endswith(("b", "T")) and "-" not in base["model"]:
        base["model"] = "llama-3-8b"
    rows, refused, size = rows_and_refusals(base, over)
    assert len(rows) + refused == size
    assert_single_estimates(base, over, rows)


@pytest.mark.parametrize("framework", ["paper", "pytorch", "deepspeed", "megatron"])
def test_every_framework_once(framework):
    base = {"framework": framework, "model": "gpt2", "node": "dgx-h100", "grad_accum": 2}
    over = ["strategy=ddp,zero1", "gpus=2..16:*2", "micro-batch=1..4", "seq-len=128..1024:*2"]
    rows, refused, size = rows_and_refusals(base, over)
    assert (len(rows), refused) == (size, 0)
    assert_single_estimates(base, over, rows, sample=12)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=sweeps(["paper", "megatron"]))
def test_the_same_rows_without_numpy(case):
    base, over = case
    with_arrays, *counts = rows_and_refusals(base, over)
    without, *counts_without = rows_and_refusals(base, over, vectorised=False)
    assert counts == counts_without
    assert len(with_arrays) == len(without)
    for ours, theirs in zip(with_arrays, without, strict=True):
        assert all(same(ours[name], value) for name, value in theirs.items()), (ours, theirs)


@pytest.mark.parametrize(
    ("base", "over"),
    [
        ({"model": "1b", "dp": 8, "gpu": "80GB"}, ["model=1..1000000000000000:*10", "strategy=ddp,zero3"]),
        (
            {"model": "1Q", "micro_batch": 1, "seq_len": 4096, "node": "dgx-h100"},
            ["gpus=8..10000000:*8", "grad-accum=1,10000000"],
        ),
        (
            {"model": "gpt2", "gpu": "80GB", "gpus": 8},
            ["micro-batch=1,1000000000", "seq-len=1000,1000000000"],
        ),
        (
            {"model": "1Q", "k": "1000.7", "precision": "fp32"},
            ["gpus=1..10000000:*10", "strategy=zero1,zero3"],
        ),
    ],
)
def test_the_bounds_of_the_contract_stay_exact(base, over):
    rows, refused, size = rows_and_refusals(base, over)
    assert len(rows) + refused == size
    assert_single_estimates(base, over, rows, sample=20)
    words = [text.partition("=")[0].replace("-", "_") for text in over]
    answered = {tuple(str(row[word]) for word in words) for row in rows}
    build = builder(**base)
    grid = itertools.product(
        *([axis.text(at) for at in range(len(axis))] for axis in prepare(build, over).grid.axes)
    )
    for values in grid:
        try:
            evaluate(build(dict(zip(words, values, strict=True))))
        except ZerocalcError:
            assert values not in answered
        else:
            assert values in answered


def test_order_is_the_grid_order_and_chunks_do_not_show(monkeypatch):
    base, over = {"model": "gpt2", "node": "dgx-h100"}, ["micro-batch=1..7", "seq-len=16..64:16", "gpus=1..9"]
    whole, *_ = rows_and_refusals(base, over)
    monkeypatch.setattr("zerocalc.sweeps.grid.CHUNK", 10)
    assert rows_and_refusals(base, over)[0] == whole
    points = [(row["micro_batch"], row["seq_len"], row["gpus"]) for row in whole]
    assert points == list(itertools.product(range(1, 8), range(16, 65, 16), range(1, 10)))


def test_filter_sort_top_and_front_against_all_rows():
    base = {"model": "llama-3-8b", "node": "dgx-h100", "seq_len": 4096}
    over = ["strategy=zero1,zero2,zero3", "gpus=8..64:8", "micro-batch=1..16", "checkpointing=none,full"]
    every, *_ = rows_and_refusals(base, over)
    assert list(prepare(builder(**base), over, where="fits and peak_bytes < 70GB").rows()) == [
        row for row in every if row["fits"] and row["peak_bytes"] < 70 * 10**9
    ]
    best = list(prepare(builder(**base), over, where="fits", sort="time,peak:desc", top=9).rows())
    fitting = [row for row in every if row["fits"]]
    assert best == sorted(fitting, key=lambda row: (row["step_s_upper"], -row["peak_bytes"]))[:9]
    front = list(prepare(builder(**base), over, pareto="peak,tokens_per_s").rows())
    points = [(row["peak_bytes"], -row["tokens_per_s_lower"]) for row in every]
    beaten = {p for p in points for q in points if q != p and q[0] <= p[0] and q[1] <= p[1]}
    assert {(row["peak_bytes"], -row["tokens_per_s_lower"]) for row in front} == set(points) - beaten
    assert len(front) == len(set(points) - beaten)


def test_the_python_front_door():
    rows = list(sweep("70b", over={"dp": [8, 64], "strategy": "zero2,zero3"}, gpu="80GB"))
    assert [(row["dp"], row["strategy"], row["fits"]) for row in rows] == [
        (8, "zero2", False), (64, "zero2", False), (8, "zero3", False), (64, "zero3", True),
    ]  # fmt: skip
    assert rows[-1]["model_states_bytes"] == 17_500_000_000


def test_settings_are_axes():
    base = {"model": "70b", "node": "dgx-h100", "gpus": 64, "strategy": "zeropp"}
    over = ["set.hpz=1,8", "set.quant_block=512..2048:*4"]
    rows, _, size = rows_and_refusals(base, over)
    assert len(rows) == size == 4
    assert_single_estimates(base, over, rows)


def test_what_cannot_be_is_counted_with_its_reason():
    running = prepare(builder(model="70b", tp=8), ["gpus=1..16"])
    assert len(list(running.rows())) == 2
    assert sum(item.num_configurations for item in running.tally.reasons) == 14
    assert "not divisible" in running.tally.reasons[0].reason


@pytest.mark.parametrize(
    ("over", "choices", "message"),
    [
        ([], {}, "sweep over what"),
        (["gpus"], {}, "AXIS=VALUES"),
        (["gpu=10GB..80GB"], {}, "range of sizes"),
        (["k=1..4"], {}, "range of fractions"),
        (["mfu=0.1..0.5"], {}, "range of fractions"),
        (["gpus=8..1"], {}, "backwards"),
        (["gpus=0..8"], {}, "must be between"),
        (["gpus=1..100000000"], {}, "must be between"),
        (["gpus=1..8:*1"], {}, "step"),
        (["gpus=1..8:0"], {}, "step"),
        (["strategy=zero1..zero3"], {}, "is no number"),
        (["gpsu=8"], {}, "'gpus'?"),
        (["gpus=8", "gpus=16"], {}, "given twice"),
        (["gpus=8", "dp=16"], {}, "both varied"),
        (["gpus=8,,16"], {}, "empty"),
        (["gpus=8"], {"top": 3}, "needs an order"),
        (["gpus=8"], {"sort": "peak", "pareto": "peak,sent"}, "both choose rows"),
        (["gpus=8"], {"sort": "peek"}, "did you mean 'peak'"),
        (["gpus=8"], {"where": "peak_byte < 3"}, "did you mean 'peak_bytes'"),
        (["micro-batch=1..1000000000", "seq-len=1..1000000000"], {}, "configurations; at most"),
        (["strategy=zero9", "gpus=8"], {}, "unknown strategy"),
    ],
)  # fmt: skip
def test_bad_axes_are_one_clear_line(over, choices, message):
    with pytest.raises(ZerocalcError) as caught:
        list(prepare(builder(model="70b", gpus=8), over, **choices).rows())
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_a_huge_grid_starts_at_once():
    running = prepare(builder(model="70b"), ["gpus=1..10000000", "model=1b..1000b:1m"], where="peak < 10GB")
    first = next(running.rows())
    assert first["peak_bytes"] < 10**10
    assert running.grid.size > 10**12


def test_zerocalc_offers_it():
    assert zerocalc.sweep is sweep
