"""DeepSpeed's engine against what real processes allocated and sent: every run, to the byte."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerocalc import units
from zerocalc.architectures import architecture
from zerocalc.architectures.lora import lora_layout
from zerocalc.errors import SpecError, UnknownNameError
from zerocalc.evaluate import evaluate, plans
from zerocalc.formulas.registry import Applied, Grouped
from zerocalc.frameworks.deepspeed import SETTINGS, STRATEGIES
from zerocalc.frameworks.deepspeed.buckets import FlatGroup, all_reduce_calls, fill, reduce_calls
from zerocalc.frameworks.deepspeed.modules import Param, gradient_order, module_tree
from zerocalc.frameworks.deepspeed.stage3_comm import quantized_groups
from zerocalc.frameworks.deepspeed.trace import Gatherer, Limits, step_events
from zerocalc.layout import Architecture, Layout, Tensor, Unit
from zerocalc.presets import load_optimizer, load_precision, optimizer_bytes_per_param
from zerocalc.readers import deepspeed_keys
from zerocalc.specs.job import Job, ModelSpec, Offload, OptimizerSpec, Parallelism, Precision, Workload
from zerocalc.totals import phases_of

if TYPE_CHECKING:
    from zerocalc.frameworks.terms import Plan

DATA = json.loads((Path(__file__).parents[1] / "data" / "measured" / "ds" / "runs.json").read_text())
RUNS = {run["name"]: run for run in DATA["runs"]}
STRATEGY_OF_STAGE = ("ddp", "zero1", "zero2", "zero3")
FAMILY = {
    "llama_untied": "llama",
    "llama_tied": "llama",
    "llama_odd": "llama",
    "mixtral": "mixtral",
    "gpt2": "gpt2",
}

OWNERS = {
    "master_weights": ("optimizer.param_groups", "opt.fp32_partitioned_groups_flat"),
    "exp_avg": ("optimizer.state.exp_avg",),
    "exp_avg_sq": ("optimizer.state.exp_avg_sq",),
    "step_counters": ("optimizer.state.step",),
    "gradient_norm": ("opt._global_grad_norm",),
    "overflow_tracker": ("opt.inf_or_nan_tracker",),
    "module_buffers": ("module.buffers",),
    "updated_params": ("opt.param_buffer_of_bit16_for_cpu_offload_groups",),
    "accumulated_grads": ("opt.accumulated_grads_in_cpu",),
}
"""Our terms at rest, and the attributes of DeepSpeed's objects that own the same storages."""


@cache
def model_of(name: str) -> Architecture:
    return architecture({"model_type": FAMILY[name], **DATA["models"][name]["config"]})


@cache
def types_of(precision: str, optimizer: str = "adamw") -> tuple[Precision, OptimizerSpec]:
    row, states = load_precision(precision), load_optimizer(optimizer)
    types = Precision(
        name=row.id, param_dtype=row.param_dtype, grad_dtype=row.grad_dtype, reduce_dtype=row.reduce_dtype,
        frozen_dtype=row.param_dtype, master_dtype=row.master_dtype, moment_dtype=row.moment_dtype,
    )  # fmt: skip
    k = optimizer_bytes_per_param(states, row)
    return types, OptimizerSpec(name=optimizer, bytes_per_param=k, row=states, precision_row=row)


def job_of(model: Architecture | int, *, world: int, strategy: str = "zero3", **wanted: Any) -> Job:
    types, optimizer = types_of(wanted.get("precision", "mixed-bf16"), wanted.get("optimizer", "adamw"))
    known = isinstance(model, Architecture)
    return Job(
        model=ModelSpec(
            num_params=model.layout.num_params if known else model, architecture=model if known else None
        ),
        precision=types,
        optimizer=optimizer,
        parallelism=Parallelism(world_size=world, **wanted.get("parallelism", {})),
        strategy=strategy,
        framework="deepspeed",
        settings=wanted.get("settings", {}),
        offload=Offload(**wanted.get("offload", {})),
        workload=Workload(**wanted.get("workload", {})),
    )


def measured_job(run: dict[str, Any]) -> Job:
    config = run["ds_config"]
    zero = dict(config["zero_optimization"])
    stage, offload = zero.pop("stage"), zero.pop("offload_optimizer", None)
    settings = zero | {"optimizer_class": run["optimizer_class"], "activation_device": "cpu"}
    if "data_types" in config:
        settings["grad_accum_dtype"] = config["data_types"]["grad_accum_dtype"]
    if "communication_data_type" in config:
        settings["communication_data_type"] = config["communication_data_type"]
    return job_of(
        model_of(run["model"]),
        world=run["world"],
        strategy=STRATEGY_OF_STAGE[stage],
        precision="mixed-bf16" if "bf16" in config else "fp32",
        settings=settings,
        offload={"optimizer": "cpu"} if offload else {},
        workload={
            "grad_accum": config["gradient_accumulation_steps"],
            "checkpointing": "full" if run["checkpointing"] else "none",
            "micro_batch": 1,
            "seq_len": 32,
        },
    )


def plan_of(job: Job) -> Plan:
    ((_, plan),) = plans(job)
    return plan


@cache
def measured_plan(name: str) -> Plan:
    return plan_of(measured_job(RUNS[name]))


def named(plan: Plan, name: str, phase: str = "at_rest", tier: str | None = None) -> int:
    return sum(
        term.bytes
        for term in plan.terms
        if term.name == name and phase in term.phases and tier in (None, term.tier)
    )


def sent(plan: Plan) -> dict[tuple[str, str, str, int], tuple[int, int]]:
    found: dict[tuple[str, str, str, int], tuple[int, int]] = {}
    for row in plan.collectives:
        key = (row.phase, row.op, row.dtype, row.group_size)
        count, total = found.get(key, (0, 0))
        found[key] = (count + row.count, total + row.full_bytes)
    return found


TIGHT = {
    "stage3_param_persistence_threshold": 0,
    "stage3_max_reuse_distance": 0,
    "stage3_max_live_parameters": 0,
}


class TestMeasured:
    @pytest.mark.parametrize("name", RUNS)
    def test_live_bytes_between_steps(self, name: str) -> None:
        held = sum(term.bytes for term in measured_plan(name).terms if "at_rest" in term.phases)
        assert held == RUNS[name]["live_bytes"]

    @pytest.mark.parametrize("name", RUNS)
    def test_each_owner_between_steps(self, name: str) -> None:
        owners, plan = RUNS[name]["owners"], measured_plan(name)
        for term, attributes in OWNERS.items():
            assert named(plan, term) == sum(owners.get(attribute, 0) for attribute in attributes), term

    @pytest.mark.parametrize("name", RUNS)
    def test_every_collective_of_a_steady_step(self, name: str) -> None:
        wanted = {tuple(row[:4]): tuple(row[4:]) for row in RUNS[name]["collectives"]}
        assert sent(measured_plan(name)) == wanted

    @pytest.mark.parametrize("name", RUNS)
    def test_peak_of_a_step(self, name: str) -> None:
        phases = phases_of(measured_plan(name).terms)
        peak = max(total for phase, total in phases.items() if phase != "initialization")
        assert peak == pytest.approx(max(RUNS[name]["peak_bytes"].values()), rel=0.05)

    @pytest.mark.parametrize("name", FAMILY)
    def test_layouts_are_the_measured_models(self, name: str) -> None:
        layout = model_of(name).layout
        assert [[n, list(t.shape)] for n, t in layout.named_tensors()] == DATA["models"][name]["param_shapes"]


HELPERS = {name: getattr(units, name) for name in ("ceil", "ceil_div", "smallest", "largest")}


def recomputed(amount: Any) -> int:
    """A term's bytes from its printed expression and inputs alone."""
    if isinstance(amount, Applied):
        return int(eval(amount.expression, {"__builtins__": {}}, {**HELPERS, **amount.inputs}))
    if isinstance(amount, Grouped):
        return sum(count * recomputed(applied) for count, applied in amount.groups)
    return sum(count * applied.value for _, count, applied in amount.parts)


@pytest.mark.parametrize(
    "name", ["ds.z0.gpt2.w2", "ds.z2.llama_odd.w3", "ds.z3.llama_odd.w3", "ds.z3.llama_untied.tight.hpz2.w4"]
)
def test_every_figure_follows_from_its_expression(name: str) -> None:
    plan = measured_plan(name)
    for term in plan.terms:
        assert recomputed(term.amount) == term.bytes, term.name
    for row in plan.collectives:
        assert recomputed(row.full) == row.full_bytes
        assert recomputed(row.sent) == row.sent_bytes


class TestWorked:
    """Values that were worked out or measured elsewhere; the model is two matrices of 262,144 parameters."""

    @staticmethod
    def two_matrices() -> Architecture:
        shapes = (("up", (1024, 256)), ("down", (256, 1024)))
        units = tuple(Unit(name, (Tensor(f"{name}.weight", shape),)) for name, shape in shapes)
        return Architecture("mlp", Layout(units))

    @pytest.mark.parametrize("steps", [1, 3])
    def test_stage_3_without_reuse(self, steps: int) -> None:
        settings = TIGHT | {"stage3_prefetch_bucket_size": 0}
        job = job_of(self.two_matrices(), world=4, settings=settings, workload={"grad_accum": steps})
        full = {
            op: total for (_, op, _, _), (_, total) in sent(plan_of(job)).items() if op == "reduce_scatter"
        }
        gathered = sum(row.full_bytes for row in plan_of(job).collectives if row.op == "all_gather")
        assert gathered == 2_097_152 * steps
        assert full["reduce_scatter"] == 1_048_576 * steps

    @pytest.mark.parametrize(("steps", "inside"), [(1, 1_048_576), (3, 5_242_880)])
    def test_hpz_gathers_across_nodes_once_a_step(self, steps: int, inside: int) -> None:
        settings = TIGHT | {"stage3_prefetch_bucket_size": 0, "zero_hpz_partition_size": 2}
        job = job_of(self.two_matrices(), world=4, settings=settings, workload={"grad_accum": steps})
        plan = plan_of(job)
        by_ring = {
            size: sum(r.full_bytes for r in plan.collectives if r.op == "all_gather" and r.group_size == size)
            for size in (2, 4)
        }
        assert by_ring == {2: inside, 4: 1_048_576}
        assert named(plan, "secondary_params") == 0
        assert named(plan, "secondary_params", "backward") == 2 * 524_288 // 2

    def test_stage_3_of_llama_3_8b(self) -> None:
        plan = plan_of(job_of(8_030_261_248, world=8, settings={"optimizer_class": "fusedadam"}))
        states = sum(term.bytes for term in plan.terms if term.state)
        assert states == 16_060_522_496
        assert named(plan, "reduce_bucket") == 1_000_000_000
        assert named(plan, "fp32_grads", "optimizer_step") == 4_000_000_000

    def test_sub_groups_bound_the_step(self) -> None:
        tensor = Tensor("w.weight", (1000, 1000))
        model = Architecture("stack", Layout((Unit("blocks", (tensor,), count=8, is_layer=True),)))
        whole = plan_of(job_of(model, world=4))
        cut = plan_of(job_of(model, world=4, settings={"sub_group_size": 500_000}))
        assert named(whole, "fp32_grads", "optimizer_step") == 4 * 2_000_000
        assert named(cut, "fp32_grads", "optimizer_step") == 4 * 500_000
        norms = [row.count for row in cut.collectives if row.tensor == "gradient_norm"]
        assert norms == [4]
        assert named(cut, "step_counters") == 4 * 4


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "zero2", "zero3"])
def test_elements_below_a_byte_are_not_lost(strategy: str) -> None:
    job = job_of(1_000_000, world=4, strategy=strategy)
    model = job.model.model_copy(update={"num_trainable_params": 1000})
    precision = job.precision.model_copy(update={"frozen_dtype": "nf4"})
    plan = plan_of(job.model_copy(update={"model": model, "precision": precision}))
    (frozen,) = (t for t in plan.terms if t.part == "frozen" and t.state == "params")
    assert frozen.bytes == 999_000 // 2 // frozen.sharded_over


class TestOffload:
    def test_optimizer_on_the_host_below_stage_3(self) -> None:
        plan = plan_of(
            job_of(model_of("llama_untied"), world=2, strategy="zero2", offload={"optimizer": "cpu"})
        )
        on_gpu = sum(t.bytes for t in plan.terms if t.tier == "gpu" and t.state and "at_rest" in t.phases)
        assert on_gpu == 14_520_832
        host = sum(t.bytes for t in plan.terms if t.tier == "cpu" and t.state and "at_rest" in t.phases)
        assert host == 16 * 7_260_416 // 2
        assert named(plan, "largest_tensor_buffer", tier="cpu") == 2 * 8000 * 256

    def test_sub_groups_of_a_bare_count_are_counted_not_listed(self) -> None:
        settings = {"sub_group_size": 1000, "offload_optimizer.ratio": 0.25}
        plan = plan_of(job_of(10**15, world=8, offload={"optimizer": "cpu"}, settings=settings))
        assert [row.count for row in plan.collectives if row.tensor == "gradient_norm"] == [10**12 // 8]
        assert named(plan, "master_weights", tier="gpu") == 3 * named(plan, "master_weights", tier="cpu")
        assert named(plan, "optimizer_temporaries", "optimizer_step") == 2 * 4 * 1000

    def test_twin_flow_keeps_the_first_sub_groups_on_the_gpu(self) -> None:
        tensor = Tensor("w.weight", (1000, 1000))
        model = Architecture("stack", Layout((Unit("blocks", (tensor,), count=8, is_layer=True),)))
        settings = {"sub_group_size": 500_000, "offload_optimizer.ratio": 0.5}
        plan = plan_of(job_of(model, world=4, offload={"optimizer": "cpu"}, settings=settings))
        assert (
            named(plan, "master_weights", tier="gpu")
            == named(plan, "master_weights", tier="cpu")
            == 4_000_000
        )

    def test_nvme_needs_pinned_buffers_on_the_host(self) -> None:
        offload = {"optimizer": "nvme", "params": "nvme"}
        plan = plan_of(job_of(10_000_000_000, world=8, offload=offload))
        assert named(plan, "optimizer_swap_buffers", tier="cpu") == 4 * 4 * 1_000_000_000
        assert named(plan, "params", tier="cpu") == 2 * 1_000_000_000
        assert named(plan, "params", tier="nvme") == 2 * 250_000_000
        assert named(plan, "param_swap_buffers", tier="cpu") == 5 * 2 * 100_000_256
        assert named(plan, "master_weights", tier="nvme") == 4 * 1_250_000_000

    def test_parameters_stay_in_host_memory_up_to_max_in_cpu(self) -> None:
        offload = {"params": "nvme"}
        plan = plan_of(job_of(1_000_000_000, world=8, offload=offload))
        assert named(plan, "params", tier="cpu") == 250_000_000
        assert named(plan, "params", tier="nvme") == 0
        assert named(plan, "param_swap_buffers", tier="cpu") == 5 * 2 * 100_000_256

    def test_gradients_go_down_and_parameters_come_up(self) -> None:
        job = job_of(model_of("llama_untied"), world=2, strategy="zero2", offload={"optimizer": "cpu"})
        host = evaluate(job)[0].communication.links.host
        assert (host.to_host_bytes, host.from_host_bytes) == (4 * 3_630_208, 2 * 3_630_208)


class TestStrategies:
    def test_no_hsdp(self) -> None:
        assert "hsdp" not in STRATEGIES
        assert {"ddp", "zero1", "zero2", "zero3", "mics", "zeropp"} == STRATEGIES

    def test_mics_shards_within_the_group_and_reduces_at_the_boundary(self) -> None:
        job = job_of(
            model_of("llama_untied"), world=8, strategy="mics", settings=dict(TIGHT),
            parallelism={"sharding_group_size": 2}, workload={"grad_accum": 3},
        )  # fmt: skip
        plan = plan_of(job)
        whole = 14_520_832
        assert named(plan, "params") == whole // 2
        scattered = sum(r.full_bytes for r in plan.collectives if r.op == "reduce_scatter")
        replicas = [r for r in plan.collectives if r.group == "replica"]
        assert scattered == 3 * whole
        assert [(r.group_size, r.full_bytes) for r in replicas] == [(4, whole // 2)]

    def test_zeropp_sends_what_the_papers_count_across_nodes(self) -> None:
        layout = Layout((Unit("blocks", (Tensor("w.weight", (4096, 4096)),), count=8, is_layer=True),))
        job = job_of(
            Architecture("stack", layout), world=64, strategy="zeropp", parallelism={"gpus_per_node": 8},
            settings=TIGHT | {"stage3_prefetch_bucket_size": 0},
        )  # fmt: skip
        volume = evaluate(job)[0].communication.inter_node_volume_params
        # Half for int8 weights, a quarter of a node's share for int4 gradients; scales come on top.
        assert volume == pytest.approx(0.5 + 0.25 / 8, abs=0.01)

    def test_zeropp_without_settings_says_what_it_takes(self) -> None:
        job = job_of(7_000_000_000, world=64, strategy="zeropp", parallelism={"gpus_per_node": 8})
        assert any("zero_hpz_partition_size = 8" in text for text in plan_of(job).assumptions)

    @pytest.mark.parametrize(
        ("elements", "groups"), [(8000, 1), (16000, 2), (64, 1), (8 * 9973, 9973), (7, 1)]
    )
    def test_quantisation_groups(self, elements: int, groups: int) -> None:
        assert quantized_groups(elements) == groups

    @settings(deadline=None)
    @given(elements=st.integers(0, 10**6).map(lambda eighths: 8 * eighths))
    def test_quantisation_groups_are_the_first_that_divide(self, elements: int) -> None:
        groups = max(1, -(-elements // 8000))
        while groups < elements and elements % (8 * groups):
            groups += 1
        while elements % (16 * groups) == 0 and elements > groups * 8000:
            groups *= 2
        assert quantized_groups(elements) == groups

    def test_time_grows_with_the_tensors_not_with_their_square(self) -> None:
        tensors = tuple(Tensor(f"w{index}.weight", (8, 8)) for index in range(10))
        model = Architecture("stack", Layout((Unit("blocks", tensors, count=2000, is_layer=True),)))
        plan = plan_of(job_of(model, world=4))
        assert (
            sum(row.full_bytes for row in plan.collectives if row.op == "reduce_scatter") == 2 * 64 * 20_000
        )

    def test_neither_size_nor_micro_steps_cost_time(self) -> None:
        job = job_of(10**15, world=8, strategy="zeropp", workload={"grad_accum": 10**7})
        assert sum(row.count for row in plan_of(job).collectives if row.op == "all_gather") > 10**7

    def test_states_shrink_with_more_ranks(self) -> None:
        for strategy in ("zero1", "zero2", "zero3"):
            held = [
                sum(
                    t.bytes
                    for t in plan_of(job_of(model_of("llama_odd"), world=n, strategy=strategy)).terms
                    if t.state
                )
                for n in (1, 2, 4, 8, 16)
            ]
            assert held == sorted(held, reverse=True)

    def test_stages_hold_the_papers_bytes(self) -> None:
        rest = {
            strategy: sum(
                t.bytes for t in plan_of(job_of(7_500_000_000, world=64, strategy=strategy)).terms if t.state
            )
            for strategy in ("ddp", "zero1", "zero2", "zero3")
        }
        assert rest == {
            "ddp": 120_000_000_000,
            "zero1": 31_406_250_000,
            "zero2": 16_640_625_000,
            "zero3": 1_875_000_000,
        }

    def test_fp32_keeps_a_master_copy_in_stages_1_to_3(self) -> None:
        for strategy in ("ddp", "zero1", "zero2", "zero3"):
            plan = plan_of(job_of(1_000_000, world=2, strategy=strategy, precision="fp32"))
            assert (named(plan, "master_weights") > 0) is (strategy != "ddp")

    def test_bf16_master_weights_and_moments(self) -> None:
        settings = {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
        plan = plan_of(job_of(8_000_000, world=4, settings=settings))
        assert sum(t.bytes for t in plan.terms if t.state) == 2_000_000 * (2 + 2 + 2 + 2 + 2)

    def test_low_bit_states_see_one_flat_tensor(self) -> None:
        plan = plan_of(job_of(model_of("llama_untied"), world=2, strategy="zero2", optimizer="adam8bit"))
        share = 7_260_416 // 2
        assert named(plan, "state1") == share + 4 * -(-share // 256)

    def test_experts_in_their_own_group(self) -> None:
        job = job_of(model_of("mixtral"), world=8, strategy="zero2", parallelism={"ep": 4})
        parts = {t.part: t.sharded_over for t in plan_of(job).terms if t.name == "master_weights"}
        assert parts == {"dense": 8, "expert": 2}


class TestInitialization:
    def test_weights_stand_beside_their_flat_copy(self) -> None:
        plan = plan_of(job_of(6_738_415_616, world=8, strategy="zero2"))
        whole, share = 2 * 6_738_415_616, 6_738_415_616 // 8
        assert phases_of(plan.terms)["initialization"] == 2 * whole + 12 * share

    def test_they_are_flattened_on_the_host_where_both_do_not_fit(self) -> None:
        job = job_of(6_738_415_616, world=8, strategy="zero2")
        small = job.model_copy(
            update={"machine": job.machine.model_copy(update={"capacity_bytes": 24 * 10**9})}
        )
        assert named(plan_of(small), "unflattened_params", "initialization") == 0


class TestSettings:
    def test_rows_are_documented(self) -> None:
        for row in SETTINGS:
            assert row.doc
            assert row.strategies <= STRATEGIES
            assert {field.name for field in fields(row)} >= {"name", "default", "changed"}

    def test_a_setting_of_another_stage_is_reported(self) -> None:
        job = job_of(1_000_000, world=2, strategy="zero1", settings={"stage3_prefetch_bucket_size": 7})
        assert any(
            "stage3_prefetch_bucket_size has no effect under zero1" in text for text in plan_of(job).warnings
        )

    @pytest.mark.parametrize("name", ["allgather_bucket_size", "allgather_partitions", "reduce_scatter"])
    def test_a_setting_that_moves_nothing_is_reported(self, name: str) -> None:
        job = job_of(1_000_000, world=2, strategy="zero2", settings={name: 0 if "size" in name else False})
        assert any(text.startswith(f"{name} changes nothing") for text in plan_of(job).warnings)

    def test_unknown_names_and_wrong_types(self) -> None:
        with pytest.raises(UnknownNameError, match="reduce_bucket_size"):
            plan_of(job_of(1_000_000, world=2, settings={"reduce_bucket": 1}))
        with pytest.raises(SpecError, match="overlap_comm"):
            plan_of(job_of(1_000_000, world=2, settings={"overlap_comm": "maybe"}))

    def test_the_default_bucket_is_a_gigabyte(self) -> None:
        plan = plan_of(job_of(model_of("llama_untied"), world=2, strategy="zero2"))
        assert named(plan, "reduce_buckets", "backward") == 1_000_000_000
        overlapped = plan_of(
            job_of(model_of("llama_untied"), world=2, strategy="zero2", settings={"overlap_comm": True})
        )
        assert named(overlapped, "reduce_buckets", "backward") == 2_000_000_000

    def test_sequence_parallelism_reduces_in_fp32(self) -> None:
        job = job_of(1_000_000, world=4, strategy="zero2", parallelism={"cp": 2})
        assert {r.dtype for r in plan_of(job).collectives if r.tensor == "grads"} == {"fp32"}

    def test_the_model_limit_bounds_persistent_parameters(self) -> None:
        free = plan_of(job_of(model_of("llama_untied"), world=2))
        bound = plan_of(
            job_of(model_of("llama_untied"), world=2, settings={"stage3_model_persistence_threshold": 70_000})
        )
        assert named(free, "persistent_params") == 2_101_760
        assert named(bound, "persistent_params") == 2 * (65_536 + 9 * 256)


class TestBuckets:
    PARAMS = (Param("a", 6, False), Param("b", 3, False), Param("c", 20, False), Param("d", 1, True))

    def test_a_tensor_larger_than_the_bucket_goes_alone(self) -> None:
        assert [[p.name for p in bucket] for bucket in fill(self.PARAMS, 10)] == [["a", "b"], ["c"], ["d"]]

    def test_slices_by_owner(self) -> None:
        flat = FlatGroup(self.PARAMS, ranks=4, alignment=2, start_alignment=1)
        assert flat.partition == 8
        bucket = list(self.PARAMS[:2])
        assert reduce_calls(bucket, flat) == {8: 1, 1: 1}
        assert all_reduce_calls(bucket, flat, 10) == {9: 1}
        assert all_reduce_calls([self.PARAMS[2]], flat, 6) == {7: 1, 8: 1, 5: 1}
        assert sum(part.numel * part.ranks for param in self.PARAMS for part in flat.slices(param)) == 30

    @settings(max_examples=300, deadline=None)
    @given(
        sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6),
        ranks=st.integers(1, 40),
        alignment=st.integers(1, 4),
        start=st.integers(1, 4),
        size=st.integers(0, 50),
    )
    def test_runs_of_whole_partitions_are_what_single_ones_are(
        self, sizes: list[int], ranks: int, alignment: int, start: int, size: int
    ) -> None:
        params = [Param(f"p{index}", numel, False) for index, numel in enumerate(sizes)]
        flat = FlatGroup(params, ranks=ranks, alignment=alignment, start_alignment=start)
        single = [(s.rank + k, s.numel) for p in params for s in flat.slices(p) for k in range(s.ranks)]
        assert sum(numel for _, numel in single) == sum(sizes)
        owned: Counter[int] = Counter()
        for rank, numel in single:
            owned[rank] += numel
        assert max(owned.values()) <= flat.partition
        assert reduce_calls(params, flat) == Counter(owned.values())
        calls = [0]
        for numel in owned.values():
            calls[-1] += numel
            if calls[-1] > size:
                calls.append(0)
        assert all_reduce_calls(params, flat, size) == Counter(call for call in calls if call)
        overlap = [
            sum(p.numel for p in params if flat.owners(p)[0] <= rank <= flat.owners(p)[1])
            for rank in range(ranks)
        ]
        assert flat.largest_overlap(params, padded=False) == max(overlap)
        ends = [
            max(0, (r + 1) * flat.partition - max(flat.num_elements, r * flat.partition))
            for r in range(ranks)
        ]
        assert flat.largest_overlap(params, padded=True) == max(map(sum, zip(overlap, ends, strict=True)))

    @pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3"])
    def test_time_does_not_grow_with_the_ranks(self, strategy: str) -> None:
        plan = plan_of(job_of(model_of("llama_untied"), world=10**7, strategy=strategy))
        assert plan.terms


class TestTrace:
    def limits(self, **wanted: Any) -> Limits:
        return Limits(**{"prefetch": 0, "max_live": 0, "max_reuse": 0, "persistent": frozenset()} | wanted)

    def test_order_of_execution_and_of_gradients(self) -> None:
        root = module_tree([(model_of("llama_tied").layout, False)])
        order = [param.name for param in gradient_order(root)]
        assert order[0] == "model.norm.weight"
        assert order[-1] == "model.embed_tokens.weight"
        last = "model.layers.3."
        assert order[1:4] == [last + f"mlp.{name}_proj.weight" for name in ("down", "up", "gate")]
        assert order[9] == last + "input_layernorm.weight"

    def test_nothing_is_gathered_twice_with_a_long_reuse_distance(self) -> None:
        root = module_tree([(model_of("llama_untied").layout, False)])
        trace = Gatherer(step_events(root, checkpointing=True), self.limits(max_reuse=10**9)).run()
        assert {gather.phase for gather in trace.gathers} == {"forward"}
        assert trace.live_peak["backward"] == 7_260_416

    def test_an_adapter_is_not_replayed_for_the_model_without_it(self) -> None:
        """A trace is kept for the next job with the same layouts; here only the adapter tells two jobs apart."""
        settings = {"stage3_param_persistence_threshold": 0}
        plain = job_of(model_of("llama_untied"), world=2, settings=settings)
        adapter = lora_layout(model_of("llama_untied").layout, rank=4, targets=["q_proj"])
        adapted = plain.model_copy(update={"model": plain.model.model_copy(update={"adapter": adapter})})
        gathered = [
            sum(row.full_bytes for row in plan_of(job).collectives if row.op == "all_gather")
            for job in (adapted, plain, adapted)
        ]
        assert gathered[1] < gathered[0] == gathered[2]

    def test_without_reuse_one_module_is_live_at_a_time(self) -> None:
        root = module_tree([(model_of("llama_untied").layout, False)])
        trace = Gatherer(step_events(root, checkpointing=False), self.limits()).run()
        assert trace.live_peak["forward"] == 2_048_000
        assert trace.live_at_turn == 0

    def test_checkpointing_gathers_all_but_the_last_module_of_a_layer_again(self) -> None:
        root = module_tree([(model_of("llama_untied").layout, False)])
        counts = [
            len(Gatherer(step_events(root, checkpointing=flag), self.limits()).run().gathers)
            for flag in (False, True)
        ]
        assert counts[1] - counts[0] == 4 * 8


def test_every_setting_that_the_reader_hands_on_is_known() -> None:
    groups = (
        deepspeed_keys.PRECISION,
        deepspeed_keys.ZERO,
        deepspeed_keys.OFFLOAD,
        deepspeed_keys.ACTIVATIONS,
    )
    handed = {
        row.to.removeprefix("settings.")
        for group in groups
        for row in group
        if row.to.startswith("settings.")
    }
    assert handed <= {row.name for row in SETTINGS}


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "zero2", "zero3"])
def test_nothing_trained_holds_and_sends_parameters_only(strategy: str) -> None:
    job = job_of(model_of("llama_untied"), world=4, strategy=strategy)
    frozen = job.model_copy(update={"model": job.model.model_copy(update={"num_trainable_params": 0})})
    plan = plan_of(frozen)
    assert {term.state for term in plan.terms if term.state} == {"params"}
    assert {row.tensor for row in plan.collectives} <= {"params"}
