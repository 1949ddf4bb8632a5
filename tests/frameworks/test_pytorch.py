"""The pytorch framework against real processes: states and messages to the byte, peaks within their tolerance."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import zerocalc
from tests.frameworks.measured import job_of, layout_from_param_shapes, rotary_buffers
from zerocalc.architectures import architecture
from zerocalc.errors import UsageError
from zerocalc.evaluate import inapplicable
from zerocalc.frameworks import pytorch
from zerocalc.frameworks.pytorch import IMPLEMENTATIONS, INAPPLICABLE, SETTINGS, STRATEGIES, plan, rank_states
from zerocalc.frameworks.pytorch.moments import BACKWARD, FORWARD
from zerocalc.frameworks.pytorch.zero_redundancy import deal
from zerocalc.layout import Buffer, Layout, Tensor, Unit
from zerocalc.rank import RankView, rank_views
from zerocalc.strategies import STRATEGIES as ALL
from zerocalc.totals import phases_of

if TYPE_CHECKING:
    from zerocalc.specs.job import Job

DATA = Path(__file__).parents[1] / "data" / "measured" / "torch"
MODELS, RUNS, TRACES = (
    json.loads((DATA / f"{name}.json").read_text()) for name in ("models", "runs", "traces")
)
STRATEGY_OF = {"FULL_SHARD": "zero3", "SHARD_GRAD_OP": "zero2", "NO_SHARD": "ddp", "HYBRID_SHARD": "hsdp"}
MOMENTS = {"forward": FORWARD, "backward": (*BACKWARD, "backward_end"), "optimizer_step": ("optimizer_step",)}


def settings_of(config: dict[str, Any], *, fake: bool) -> dict[str, Any]:
    """The settings of a measured run by PyTorch's names."""
    renamed = {
        "view": "gradient_as_bucket_view", "pview": "parameters_as_bucket_view", "bucket_mb": "bucket_cap_mb",
        "param_dtype": "param_dtype", "reduce_dtype": "reduce_dtype", "foreach": "foreach", "orig": "use_orig_params",
    }  # fmt: skip
    settings = {new: config[old] for old, new in renamed.items() if config.get(old)}
    settings |= {"foreach": config.get("foreach", False), "activation_device": "cpu"}
    if config["kind"] == "ddp":
        settings["no_sync"] = config.get("accum", 1) > 1 and not config.get("sync_every", False)
        settings["broadcast_buffers"] = config.get("broadcast_buffers", True)
        settings["ddp_comm_hook"] = "bf16_compress" if "hook" in config else "none"
    if config["kind"] == "fsdp1":
        settings["fsdp_version"] = 1
    if config["kind"] == "fsdp2":
        raf = config.get("raf", True)
        settings |= {} if raf is None else {"reshard_after_forward": raf}
        settings["wrap"] = "layers" if config.get("wrap", True) else "root_only"
        settings["requires_gradient_sync"] = not config.get("no_sync", False)
        settings["reshard_after_backward"] = not config.get("no_reshard_bwd", False)
    if config["kind"].startswith("fsdp") and not fake:
        settings["backend"] = "gloo"
    return settings


def measured_job(name: str) -> Job:
    """A measured run as a job."""
    run = RUNS[name]
    config, model = run["config"], MODELS[run["config"]["model"]]
    given = model["config"]
    family = config["model"].partition("_")[0]
    tied = bool(given.get("tie_word_embeddings", family == "gpt2"))
    layout = layout_from_param_shapes(model["param_shapes"], tied=tied, buffers=rotary_buffers(given))
    dimensions = (
        None if family in {"mlp", "mixtral"} else architecture({**given, "model_type": family}).dimensions
    )
    strategy = STRATEGY_OF.get(
        config.get("strategy", ""), {"fsdp2": "zero3"}.get(config["kind"], config["kind"])
    )
    return job_of(
        layout,
        world=run["world"],
        strategy="hsdp" if config.get("hsdp") else strategy,
        framework="pytorch",
        settings=settings_of(config, fake=run["fake"]),
        precision="bf16-pure" if config.get("bf16_params") else "fp32",
        grad_accum=config.get("accum", 1),
        group_size=config["hsdp"][1] if config.get("hsdp") else None,
        dimensions=dimensions,
        workload={"micro_batch": 1, "seq_len": 32},
    )


def traced_job(name: str) -> Job:
    """One rank of a traced large model as a job."""
    config, shape = TRACES[name]["config"], dict(TRACES[name]["shape"])
    described = architecture({**shape, "model_type": shape.pop("kind")})
    settings = {"fused": True, "activation_device": "cpu", "reduce_dtype": config.get("reduce", "fp32")}
    if config["raf"] is not None:
        settings["reshard_after_forward"] = config["raf"]
    return job_of(
        described.layout,
        world=config["world"],
        strategy="zero3",
        framework="pytorch",
        settings=settings,
        precision="mixed-bf16",
        dimensions=described.dimensions,
        workload={
            "micro_batch": 1,
            "seq_len": config["seq"],
            "checkpointing": "full" if config["ac"] else "none",
        },
    )


def view_of(job: Job) -> RankView:
    """The only rank class of a job."""
    (view,) = rank_views(job)
    return view


def messages(job: Job) -> dict[str, list[int]]:
    """Calls and full bytes of a step, as the measurements list them."""
    totals: dict[str, list[int]] = {}
    for row in plan(view_of(job)).collectives:
        total = totals.setdefault(f"{row.phase}|{row.op}|{row.dtype}|{row.group_size}", [0, 0])
        total[0] += row.count
        total[1] += row.full_bytes
    return totals


def peaks(job: Job) -> dict[str, int]:
    """The largest moment of forward, of backward, and the step."""
    phases = phases_of(term for term in plan(view_of(job)).terms if term.tier == "gpu")
    return {part: max(phases.get(moment, 0) for moment in moments) for part, moments in MOMENTS.items()}


@pytest.mark.parametrize("name", RUNS)
def test_every_rank_holds_what_was_measured(name: str) -> None:
    run, view = RUNS[name], view_of(measured_job(name))
    for rank, facts in zip(run["rank_ids"], run["ranks"], strict=True):
        held = rank_states(view, rank)
        states = {key: value for key, value in facts.items() if key != "live"}
        assert {key: held.get(key, 0) for key in states} == states
        assert sum(states.values()) == facts["live"]


@pytest.mark.parametrize("name", [name for name, run in RUNS.items() if not run["fake"]])
def test_the_answer_is_the_rank_that_holds_most(name: str) -> None:
    names = ("params", "grads", "exp_avg", "exp_avg_sq", "buffers")
    held: dict[str, int] = {}
    for term in plan(view_of(measured_job(name))).terms:
        held[term.name] = held.get(term.name, 0) + term.bytes
    most = max(RUNS[name]["ranks"], key=lambda facts: sum(facts.get(key, 0) for key in names))
    assert {key: held.get(key, 0) for key in names} == {key: most.get(key, 0) for key in names}


@pytest.mark.parametrize("name", RUNS)
def test_every_message_of_a_step_is_counted(name: str) -> None:
    assert messages(measured_job(name)) == RUNS[name]["collectives"]


@pytest.mark.parametrize("name", TRACES)
def test_large_models_hold_and_send_what_was_traced(name: str) -> None:
    job = traced_job(name)
    assert messages(job) == TRACES[name]["collectives"]
    held = rank_states(view_of(job), 0)
    assert {key: held[key] for key in TRACES[name]["states"]} == TRACES[name]["states"]


@pytest.mark.parametrize("name", TRACES)
def test_peaks_of_large_models_are_within_three_percent(name: str) -> None:
    assert peaks(traced_job(name)) == pytest.approx(TRACES[name]["peaks"], rel=0.01)


@pytest.mark.parametrize(
    "name", [name for name, run in RUNS.items() if run["config"]["model"].startswith(("llama", "gpt2"))]
)
def test_peaks_of_small_models_are_within_five_percent(name: str) -> None:
    predicted, measured = peaks(measured_job(name)), RUNS[name]["peaks"]
    assert max(predicted.values()) == pytest.approx(max(measured.values()), rel=0.05)
    assert predicted == pytest.approx(measured, rel=0.05)


def test_a_seven_billion_llama_on_64_ranks() -> None:
    job = traced_job("fake.fsdp2.llama7b.w8.s2048.noac")
    wider = job.model_copy(update={"parallelism": job.parallelism.model_copy(update={"world_size": 64})})
    recomputed = wider.model_copy(
        update={"workload": wider.workload.model_copy(update={"checkpointing": "full"})}
    )
    assert max(peaks(wider).values()) == pytest.approx(15_764_622_228, rel=1e-6)
    assert max(peaks(recomputed).values()) == pytest.approx(4_825_926_548, rel=1e-6)


def test_tensors_are_dealt_to_the_lightest_rank() -> None:
    assert deal((4, 4, 3, 9, 1), 2) == [[3, 4], [0, 1, 2]]


@cache
def a_layout() -> Any:
    model = MODELS["llama_odd"]
    return layout_from_param_shapes(model["param_shapes"], buffers=rotary_buffers(model["config"]))


@pytest.mark.parametrize(("strategy", "version"), IMPLEMENTATIONS)
def test_every_amount_follows_from_its_expression(strategy: str, version: int) -> None:
    job = job_of(
        a_layout(), world=4, strategy=strategy, framework="pytorch", settings={"fsdp_version": version},
        precision="mixed-bf16", group_size=2,
    )  # fmt: skip
    made = plan(view_of(job))
    amounts = (
        [term.amount for term in made.terms]
        + [row.full for row in made.collectives]
        + [row.sent for row in made.collectives]
    )
    scope = {"ceil": ceil, "ceil_div": lambda a, b: -(-a // b), "smallest": min, "largest": max}
    for amount in amounts:
        if "groups" in amount.inputs:
            inner = amount.expression.removeprefix("sum(times * (").removesuffix(") for groups)")
            value = sum(
                row["times"] * eval(inner, scope, dict(row["inputs"])) for row in amount.inputs["groups"]
            )
        else:
            value = eval(amount.expression, scope, dict(amount.inputs))
        assert value == amount.value


@pytest.mark.parametrize("strategy", ALL)
def test_a_strategy_pytorch_lacks_is_refused_with_the_reason(strategy: str) -> None:
    job = job_of(a_layout(), world=4, strategy=strategy, framework="pytorch", settings={}, group_size=2)
    assert (strategy in STRATEGIES) != (strategy in INAPPLICABLE)
    assert (inapplicable(job) is None) == (strategy in STRATEGIES)
    if strategy in INAPPLICABLE:
        with pytest.raises(UsageError, match="DeepSpeed"):
            plan(view_of(job))


def test_a_setting_without_effect_is_reported() -> None:
    job = job_of(
        a_layout(), world=4, strategy="ddp", framework="pytorch", settings={"reshard_after_forward": "true"}
    )
    assert any(
        "reshard_after_forward has no effect under ddp" in line for line in plan(view_of(job)).warnings
    )


@pytest.mark.parametrize("given", [3, 5])
def test_resharding_needs_a_factor_of_the_group(given: int) -> None:
    job = job_of(
        a_layout(), world=4, strategy="zero3", framework="pytorch", settings={"reshard_after_forward": given}
    )
    with pytest.raises(UsageError, match="does not divide"):
        plan(view_of(job))


def test_an_unknown_version_is_refused() -> None:
    job = job_of(a_layout(), world=4, strategy="zero3", framework="pytorch", settings={"fsdp_version": 3})
    with pytest.raises(UsageError, match="fsdp_version=3"):
        plan(view_of(job))


def test_offload_moves_parameters_gradients_and_states_together() -> None:
    job = job_of(a_layout(), world=4, strategy="zero3", framework="pytorch", settings={})
    offload = type(job.offload)(params="cpu", optimizer="cpu")
    made = plan(view_of(job.model_copy(update={"offload": offload})))
    assert {term.tier for term in made.terms if term.state is not None} == {"cpu"}
    assert any("together" in line for line in made.assumptions)


def test_settings_are_known_by_one_name() -> None:
    names = [row.name for row in SETTINGS]
    assert len(names) == len(set(names))
    assert pytorch.SETTINGS is SETTINGS


@pytest.mark.parametrize(("strategy", "version"), IMPLEMENTATIONS)
def test_a_bare_count_is_sharded_evenly_and_says_what_it_cannot_know(strategy: str, version: int) -> None:
    from zerocalc.layout import anonymous_layout

    job = job_of(
        anonymous_layout(7_000), world=4, strategy=strategy, framework="pytorch",
        settings={"fsdp_version": version}, group_size=2,
    )  # fmt: skip
    made = plan(view_of(job))
    shards = {"ddp": 1, "hsdp": 2}.get(strategy, 4)
    held = {term.name: term.bytes for term in made.terms}
    assert held["exp_avg"] == 4 * 7_000 // shards
    assert any("tensor shapes" in line for line in made.excluded)


@pytest.mark.parametrize(("strategy", "version"), IMPLEMENTATIONS)
def test_elements_below_a_byte_are_not_lost(strategy: str, version: int) -> None:
    job = job_of(
        a_layout(), world=4, strategy=strategy, framework="pytorch", settings={"fsdp_version": version},
        group_size=2,
    )  # fmt: skip
    model = job.model.model_copy(update={"num_trainable_params": 1000})
    frozen = {}
    for dtype in ("nf4", "int8"):
        precision = job.precision.model_copy(update={"frozen_dtype": dtype})
        made = plan(view_of(job.model_copy(update={"model": model, "precision": precision})))
        (frozen[dtype],) = (t.bytes for t in made.terms if t.part == "frozen" and t.state == "params")
    assert 0 < frozen["int8"] <= 2 * frozen["nf4"] <= frozen["int8"] + 1000


@pytest.mark.parametrize(("strategy", "version"), IMPLEMENTATIONS)
def test_fractional_bytes_per_parameter_are_rounded_up_to_whole_ones(strategy: str, version: int) -> None:
    job = job_of(
        a_layout(), world=4, strategy=strategy, framework="pytorch", settings={"fsdp_version": version},
        group_size=2,
    )  # fmt: skip
    given = type(job.optimizer)(name="adamw", bytes_per_param=Fraction("6.03125"))
    made = plan(view_of(job.model_copy(update={"optimizer": given})))
    assert all(type(term.bytes) is int for term in made.terms)


def test_more_ranks_than_tensors_leave_some_idle() -> None:
    job = job_of(
        a_layout(),
        world=64,
        strategy="zero1",
        framework="pytorch",
        settings={"parameters_as_bucket_view": True},
    )
    (update,) = (row for row in plan(view_of(job)).collectives if row.phase == "optimizer_step")
    assert update.count == 64
    assert rank_states(view_of(job), 63)["exp_avg"] == 0


def test_experts_are_cut_along_their_second_dimension_where_asked() -> None:
    model = MODELS["mixtral"]
    layout = layout_from_param_shapes(model["param_shapes"])
    held = {}
    for placement in ("none", "experts_dim1"):
        job = job_of(
            layout,
            world=16,
            strategy="zero3",
            framework="pytorch",
            settings={"shard_placement_fn": placement},
        )
        held[placement] = rank_states(view_of(job), 0)["params"]
    assert held["none"] == 1_068_192
    assert held["experts_dim1"] == 4 * sum(
        numel // 16 if "experts" in name else -(-shape[0] // 16) * numel // shape[0]
        for name, shape, numel in model["param_shapes"]
    )


def test_what_is_kept_after_backward_is_gathered_once_whatever_forward_frees() -> None:
    calls = {}
    for kept in (False, True):
        job = job_of(
            a_layout(), world=2, strategy="zero3", framework="pytorch", grad_accum=3,
            settings={"reshard_after_backward": not kept},
        )  # fmt: skip
        calls[kept] = messages(job)
    assert calls[True]["forward|all_gather|fp32|2"][0] * 3 == calls[False]["forward|all_gather|fp32|2"][0]
    assert calls[True]["backward|all_gather|fp32|2"] == calls[False]["backward|all_gather|fp32|2"]


def test_a_flat_parameter_takes_in_experts() -> None:
    model = MODELS["mixtral"]
    job = job_of(
        layout_from_param_shapes(model["param_shapes"]), world=2, strategy="zero3", framework="pytorch",
        settings={"fsdp_version": 1},
    )  # fmt: skip
    units = 1 + model["config"]["num_hidden_layers"]
    assert rank_states(view_of(job), 0)["step"] == 4 * units


def test_looking_for_unused_parameters_keeps_and_sends_a_mark_per_tensor() -> None:
    job = job_of(
        a_layout(), world=3, strategy="ddp", framework="pytorch", settings={"find_unused_parameters": True}
    )
    marks = 4 * len(MODELS["llama_odd"]["param_shapes"])
    assert rank_states(view_of(job), 0)["used_parameters"] == 2 * marks
    assert messages(job)["backward|all_reduce|int32|3"] == [1, marks]


@pytest.mark.parametrize(("view", "steps", "copies"), [(True, 2, 1), (True, 1, 0), (False, 2, 0)])
def test_gradients_inside_no_sync_are_no_views(view: bool, steps: int, copies: int) -> None:
    settings = {"gradient_as_bucket_view": view, "no_sync": True}
    job = job_of(
        a_layout(), world=2, strategy="ddp", framework="pytorch", settings=settings, grad_accum=steps
    )
    assert rank_states(view_of(job), 0).get("unsynchronised_grads", 0) == copies * 4 * a_layout().num_params


def test_buffers_are_broadcast_by_their_own_element_type() -> None:
    buffers = (Buffer("position_ids", (1, 512), "int64"), Buffer("scale", (64,)))
    layout = Layout((Unit("model", (Tensor("weight", (10, 10)),)),), buffers=buffers)
    job = job_of(layout, world=2, strategy="ddp", framework="pytorch", settings={})
    rows = {row.dtype: row for row in plan(view_of(job)).collectives if row.tensor == "buffers"}
    assert {dtype: row.full_bytes for dtype, row in rows.items()} == {"int64": 512 * 8, "fp32": 64 * 4}
    assert all(row.count == 1 for row in rows.values())


def test_a_packed_base_says_that_it_is_gathered_unpacked():
    words = {"dp": 8, "lora_rank": 16, "framework": "pytorch", "strategy": "zero3"}
    said = [
        any(
            "unpacked" in line
            for line in zerocalc.estimate(zerocalc.job("llama-3-8b", frozen_dtype=t, **words)).warnings
        )
        for t in ("nf4", "bf16")
    ]
    assert said == [True, False]
