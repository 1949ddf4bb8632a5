"""The papers' ideal against the papers' own tables, and what must hold for every job."""

from __future__ import annotations

import json
from fractions import Fraction
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zerocalc
from tests.worked.kept import OPTIMIZERS
from zerocalc.evaluate import evaluate, plans
from zerocalc.strategies import COMPARED, STRATEGIES

WORKED = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[1] / "data/worked.json").read_text())["cases"]
}
SMALL = settings(max_examples=60, deadline=None)


def states(model, strategy, **words):
    """Model states on one GPU."""
    result, _ = evaluate(zerocalc.job(model, strategy=strategy, **words))
    return result.memory.gpu.model_states_bytes


def sent(model, strategy, **words):
    result, _ = evaluate(zerocalc.job(model, strategy=strategy, **words))
    return result.communication.sent_bytes_per_rank


@pytest.mark.parametrize(
    "case", [c for c in WORKED.values() if c["id"].startswith("zero_table1_")], ids=lambda c: c["id"]
)
@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3"])
def test_zero_table_1(case, strategy):
    params, dp = case["inputs"]["params"], case["inputs"]["dp"]
    assert states(params, strategy, dp=dp) == case["expect"][strategy]


def test_zero_figure_1():
    expect = WORKED["zero_fig1_7.5B_64"]["expect"]
    assert [states("7.5b", s, dp=64) for s in COMPARED] == list(expect.values())


def test_gpt2_of_the_zero_paper_holds_24_gb():
    assert states("1.5b", "ddp", dp=1) == WORKED["zero_gpt2_1.5B_states"]["expect"]


@pytest.mark.parametrize(("strategy", "volume"), [("ddp", 2), ("zero1", 2), ("zero2", 2), ("zero3", 3)])
@pytest.mark.parametrize("dp", [1, 64])
def test_volumes_of_the_zero_paper(strategy, volume, dp):
    result, _ = evaluate(zerocalc.job("7.5b", dp=dp, strategy=strategy))
    assert result.communication.volume_params == volume
    assert result.communication.volume_ratio_to_ddp == volume / 2


@pytest.mark.parametrize(
    ("case", "strategy", "key"),
    [
        (f"comm_step_L8B_n8_a{a}", strategy, key)
        for a in (1, 4)
        for strategy, key in (
            ("ddp", "ddp_no_sync"), ("zero1", "zero1_ideal"), ("zero2", "zero2_ideal"), ("zero3", "zero3"),
        )
    ],
)  # fmt: skip
def test_bytes_sent_per_optimizer_step(case, strategy, key):
    row = WORKED[case]
    accum = row["inputs"]["micro_steps"]
    assert sent(row["inputs"]["params"], strategy, dp=8, grad_accum=accum) == row["expect"][key]


def test_fp32_reduction_widens_only_the_gradients():
    row = WORKED["comm_zero3_fp32reduce_L8B_n8"]
    assert sent(row["inputs"]["params"], "zero3", dp=8, reduce_dtype="fp32") == row["expect"]


def test_hsdp_inside_and_across_groups():
    row = WORKED["comm_hsdp_L8B_n32"]
    result, _ = evaluate(zerocalc.job(row["inputs"]["params"], gpus=32, shard_size=8, strategy="hsdp"))
    by_op = {}
    for collective in result.communication.collectives:
        by_op[collective.op] = by_op.get(collective.op, 0) + collective.sent_bytes
    assert by_op == {
        "all_gather": row["expect"]["intra_ag"],
        "reduce_scatter": row["expect"]["intra_rs"],
        "all_reduce": row["expect"]["inter_all_reduce"],
    }


def test_zeropp_sends_a_quarter_across_nodes():
    row = WORKED["zeropp_volume_18B"]
    for strategy, key in (("zero3", "zero3"), ("zeropp", "zeropp")):
        result, _ = evaluate(zerocalc.job("18b", gpus=64, gpus_per_node=8, strategy=strategy))
        assert result.communication.inter_node_volume_params * 2 * 18 * 10**9 == row["expect"][key]


def test_hpz_memory():
    row = WORKED["hpz_memory_100B"]
    words = {"gpus": 1024, "gpus_per_node": 16}
    assert states("100b", "zero3", **words) == row["expect"]["zero3"]
    assert states("100b", "zeropp", **words) == row["expect"]["hpz"]
    assert states("100b", "ddp", **words) == row["expect"]["dp"]


@pytest.mark.parametrize(
    ("strategy", "gpu", "host"), [("zero2", 2, 14), ("zero1", 4, 12), ("zero3", Fraction(2, 16), 14)]
)
def test_zero_offload_splits_16_psi(strategy, gpu, host):
    result, _ = evaluate(
        zerocalc.job("10b", dp=16, strategy=strategy, offload_optimizer="cpu", gpus_per_node=16)
    )
    assert result.memory.gpu.model_states_bytes == gpu * 10**10
    assert result.memory.cpu.bytes_per_rank * 16 == host * 10**10
    assert result.memory.cpu.bytes_per_node == host * 10**10


def test_zero_offload_moves_the_minimum():
    row = WORKED["zoffload_pcie_10B"]
    result, _ = evaluate(zerocalc.job("10b", dp=16, strategy="zero2", offload_optimizer="cpu"))
    host = result.communication.links.host
    assert host.to_host_bytes == host.from_host_bytes == row["expect"]["per_rank_each_way"]
    assert 16 * (host.to_host_bytes + host.from_host_bytes) == row["expect"]["total"]


@pytest.mark.parametrize(
    "case", [c for c in WORKED.values() if c["id"].startswith("zinf_fig2a_")], ids=lambda c: c["id"]
)
def test_zero_infinity_figure_2a(case):
    i, expect = case["inputs"], case["expect"]
    job = zerocalc.job(
        f"{i['nl']}x{i['hd']}", gpus=16, strategy="zero3", precision="zero-infinity",
        offload_optimizer="nvme", offload_params="nvme", gpus_per_node=16,
    )  # fmt: skip
    result, _ = evaluate(job)
    assert job.model.num_params == expect["params"]
    assert result.memory.nvme.bytes_per_node == expect["model_states"]
    assert result.memory.gpu.peak_bytes == expect["MSWM"]


def test_a_trillion_parameters_on_one_dgx_2():
    job = zerocalc.job(
        "128x25600", gpus=16, node="dgx-2", nvme_memory="28TB", strategy="zero3", precision="zero-infinity",
        offload_optimizer="nvme", offload_params="nvme",
    )  # fmt: skip
    result, _ = evaluate(job)
    assert job.model.num_params == 1_006_632_960_000
    assert result.fits
    assert result.memory.nvme.fits


def test_deepseek_v3_as_trained():
    row = WORKED["dsv3_per_gpu"]
    i, expect = row["inputs"], row["expect"]
    job = zerocalc.job(
        i["total"], expert_params=i["routed"], gpus=i["gpus"], pp=i["pp"], ep=i["ep"], strategy="zero1",
        precision="deepseek-v3",
    )  # fmt: skip
    result, _ = evaluate(job)
    assert job.parallelism.data_parallel_size == expect["dp"]
    assert job.parallelism.expert_shard_size == expect["edp"]
    params = {t.part: t.inputs["num_params"] for t in result.memory.gpu.terms if t.name == "params"}
    assert params == {"dense": expect["other_params_gpu"], "expert": expect["expert_params_gpu"]}
    # The case divides without rounding; whole elements are sharded here, so a rank may hold one element's 8 bytes more.
    assert 0 <= result.memory.gpu.model_states_bytes - expect["bytes"] < 8


@pytest.mark.parametrize(
    ("gpus", "tp", "cp", "pp", "dp"), [(8192, 8, 1, 16, 64), (16384, 8, 1, 16, 128), (16384, 8, 16, 16, 8)]
)
def test_llama_3_405b_layouts(gpus, tp, cp, pp, dp):
    """Llama 3 herd of models, table 4: data-parallel degrees that follow from the others."""
    job = zerocalc.job("llama-3.1-405b", gpus=gpus, tp=tp, cp=cp, pp=pp, strategy="zero2")
    assert job.parallelism.data_parallel_size == dp
    assert job.parallelism.shard_size == dp * cp
    names = [view.name for view, _ in plans(job)]
    assert names == ["stage 0", "stages 1-14", "stage 15"]


def test_optimizer_bytes_of_the_table():
    row = WORKED["opt_bytes_L8B"]
    for key, (optimizer, precision) in OPTIMIZERS.items():
        job = zerocalc.job(
            row["inputs"]["params"], dp=1, optimizer=optimizer, precision=precision, strategy="ddp"
        )
        result, _ = evaluate(job)
        held = sum(t.bytes for t in result.memory.gpu.terms if t.state == "optimizer_states")
        assert held == row["expect"][key], key


def test_adafactor_keeps_a_row_and_a_column(tmp_path):
    row = WORKED["adafactor_matrix"]
    rows, columns = row["inputs"]["R"], row["inputs"]["C"]
    from zerocalc.layout import Architecture, Layout, Tensor, Unit

    job = zerocalc.job("1b", dp=1, optimizer="adafactor", precision="fp32", strategy="ddp")
    layout = Layout((Unit("w", (Tensor("w.weight", (rows, columns)),)),))
    model = job.model.model_copy(
        update={"num_params": rows * columns, "architecture": Architecture("one", layout)}
    )
    result, _ = evaluate(job.model_copy(update={"model": model}))
    assert (
        sum(t.bytes for t in result.memory.gpu.terms if t.state == "optimizer_states")
        == row["expect"]["factored"]
    )


jobs = st.fixed_dictionaries(
    {
        "model": st.integers(1, 10**13),
        "dp": st.integers(1, 4096),
        "precision": st.sampled_from(
            ["mixed-bf16", "mixed-fp16", "fp32", "bf16-pure", "bf16-fp32-grads", "deepseek-v3"]
        ),
        "optimizer": st.sampled_from(["adamw", "sgd", "sgd-momentum", "lion", "adam8bit"]),
    }
)


@SMALL
@given(words=jobs)
def test_each_stage_holds_no_more_than_the_one_before(words):
    held = [states(words["model"], s, **{k: v for k, v in words.items() if k != "model"}) for s in COMPARED]
    assert held == sorted(held, reverse=True)


@SMALL
@given(words=jobs)
def test_one_rank_shards_nothing(words):
    alone = {k: v for k, v in words.items() if k != "model"} | {"dp": 1}
    assert len({states(words["model"], s, **alone) for s in COMPARED}) == 1
    assert {sent(words["model"], s, **alone) for s in COMPARED} == {0}


@SMALL
@given(words=jobs, more=st.integers(1, 4096))
def test_more_ranks_never_hold_more_and_never_less_than_the_floor(words, more):
    rest = {k: v for k, v in words.items() if k not in {"model", "dp"}}
    for strategy in COMPARED:
        few, _ = evaluate(zerocalc.job(words["model"], strategy=strategy, dp=words["dp"], **rest))
        many, _ = evaluate(zerocalc.job(words["model"], strategy=strategy, dp=words["dp"] + more, **rest))
        assert (
            few.memory.gpu.model_states_bytes
            >= many.memory.gpu.model_states_bytes
            >= many.memory.gpu.floor_bytes
        )


@SMALL
@given(
    words=jobs,
    strategy=st.sampled_from(sorted(STRATEGIES)),
    tier=st.sampled_from(["none", "cpu", "nvme"]),
    tp=st.sampled_from([1, 2, 8]),
    pp=st.sampled_from([1, 4]),
    experts=st.booleans(),
)
def test_all_shards_of_all_ranks_and_tiers_cover_the_whole(words, strategy, tier, tp, pp, experts):
    """Conservation: summed over the ranks of one sharding group, every state is there once, and no bytes are lost."""
    model = words["model"] + 1
    rest = {k: v for k, v in words.items() if k not in {"model", "dp"}}
    job = zerocalc.job(
        model, strategy=strategy, gpus=words["dp"] * 8 * tp * pp, tp=tp, pp=pp, shard_size=8, gpus_per_node=8,
        expert_params=model // 2 if experts else 0, **rest,
    )  # fmt: skip
    job = job.model_copy(update={"offload": job.offload.model_copy(update={"optimizer": tier})})
    if zerocalc.evaluate.inapplicable(job):
        return
    for _, plan in plans(job):
        for term in plan.terms:
            if term.state is None or term.name == "secondary_params":
                continue
            whole = ceil(term.amount.inputs["bytes_per_param"] * term.amount.inputs["num_params"])
            assert term.bytes * term.sharded_over >= whole
            assert (term.bytes - 1024) * term.sharded_over < whole + 1024 * term.sharded_over


@SMALL
@given(words=jobs, strategy=st.sampled_from(COMPARED))
def test_the_json_alone_recomputes_every_term(words, strategy):
    rest = {k: v for k, v in words.items() if k != "model"}
    answer = zerocalc.plain(
        zerocalc.estimate(zerocalc.job(words["model"], strategy=strategy, gpu="80GB", **rest))
    )
    result = json.loads(json.dumps(answer))["results"][0]
    names = {"ceil": ceil, "ceil_div": lambda a, b: -(-a // b), "__builtins__": {}}
    gpu = result["memory"]["gpu"]
    for term in gpu["terms"]:
        inputs = {k: Fraction(str(v)) if isinstance(v, float) else v for k, v in term["inputs"].items()}
        assert eval(term["formula"], names, inputs) == term["bytes"]
    for row in result["communication"]["collectives"]:
        assert eval(row["formula"], names, row["inputs"]) == row["sent_bytes"]
    assert gpu["model_states_bytes"] == sum(t["bytes"] for t in gpu["terms"] if t["state"])
    for phase, total in gpu["phases"].items():
        assert total == sum(t["bytes"] for t in gpu["terms"] if phase in t["phases"])
    assert gpu["peak_bytes"] == max(gpu["phases"].values()) == gpu["phases"][gpu["peak_phase"]]
    assert result["headroom_bytes"] == result["capacity_bytes"] - result["reserve_bytes"] - gpu["peak_bytes"]
    assert result["fits"] == (result["headroom_bytes"] >= 0)


def test_sharding_over_a_group_of_one_is_said():
    answer = zerocalc.estimate(zerocalc.job("7b", gpus=8, tp=8, strategy="zero3"))
    assert any("group of one" in warning for warning in answer.warnings)


def test_frozen_parameters_have_no_gradients_and_no_states():
    result, _ = evaluate(zerocalc.job("10b", dp=1, strategy="ddp", trainable="1%"))
    assert result.memory.gpu.model_states_bytes == 2 * 10**10 + 14 * 10**8


def test_a_quantised_base_costs_half_a_byte():
    result, _ = evaluate(zerocalc.job("10b", dp=1, strategy="ddp", trainable="0", frozen_dtype="nf4"))
    assert result.memory.gpu.model_states_bytes == 5 * 10**9


def test_a_reference_model_is_held_beside_the_trained_one():
    plain, _ = evaluate(zerocalc.job("10b", dp=8, strategy="zero3"))
    both, _ = evaluate(zerocalc.job("10b", dp=8, strategy="zero3", also=["reference:10b"]))
    assert both.memory.gpu.model_states_bytes - plain.memory.gpu.model_states_bytes == 2 * 10**10 // 8
