"""DeepSpeed's stages 0 to 3 in real processes: what the fullest rank holds and every message, difference 0."""

from __future__ import annotations

from functools import partial

import pytest

from tests.live.cases import Case, deepspeed_job, differences, messages, peak, plan_of

pytestmark = [pytest.mark.live, pytest.mark.filterwarnings("ignore")]

stage0, stage1, stage2, stage3 = (partial(Case, f"stage{stage}") for stage in range(4))
FP32 = {"precision": "fp32"}
ACCUMULATE_IN_FP32 = {"data_types": {"grad_accum_dtype": "fp32"}}
REDUCE_IN_FP32 = {"communication_data_type": "fp32"}
OFFLOAD = {"offload_optimizer": {"device": "cpu", "pin_memory": False}}
NEVER_KEPT = {
    "stage3_param_persistence_threshold": 0, "stage3_max_reuse_distance": 0, "stage3_max_live_parameters": 0,
}  # fmt: skip


def steps(count, **words):
    return {"grad_accum": count, **words}


STAGE_0 = [
    *(stage0(model, 2) for model in ("llama_tied", "gpt2")),
    stage0("llama", 2, words=steps(3)),
    stage0("mixtral", 2, words=FP32),
    stage0("gpt2", 2, words=FP32, config={"communication_data_type": "bf16"}),
    stage0("llama_odd", 3, words=steps(2), config=REDUCE_IN_FP32),
]
BELOW_3 = [
    *(stage(model, 2) for stage in (stage1, stage2) for model in ("llama_tied", "gpt2", "mixtral")),
    stage1("llama", 2, {"overlap_comm": True, "reduce_bucket_size": 100_000}),
    stage2("llama", 2, {"overlap_comm": True, "reduce_bucket_size": 100_000}, steps(3)),
    *(stage("gpt2", 2, {"use_multi_rank_bucket_allreduce": False}) for stage in (stage1, stage2)),
    *(
        stage("llama", 2, {"contiguous_gradients": False, "reduce_bucket_size": 1_000_000})
        for stage in (stage1, stage2)
    ),
    *(stage("llama_odd", 3, {}, steps(2), ACCUMULATE_IN_FP32) for stage in (stage1, stage2)),
    *(stage("gpt2_untied", 4, {}, steps(3), ACCUMULATE_IN_FP32) for stage in (stage1, stage2)),
    *(stage("llama_odd", 3, OFFLOAD, steps(2)) for stage in (stage1, stage2)),
    *(stage("mixtral", 4, OFFLOAD, steps(3)) for stage in (stage1, stage2)),
    *(stage("gpt2", 2, {}, steps(2), REDUCE_IN_FP32) for stage in (stage1, stage2)),
    *(stage("llama_odd", 3, {"parameter_alignment": True}, steps(2)) for stage in (stage1, stage2)),
    *(stage("llama_odd", 4, {"round_robin_gradients": True}) for stage in (stage1, stage2)),
    *(stage("llama_tied", 3, {}, FP32) for stage in (stage1, stage2)),
    stage2("gpt2_untied", 2, {}, steps(2, **FP32)),
    *(stage("llama", 2, {"reduce_bucket_size": 10_000}) for stage in (stage1, stage2)),
    *(stage("gpt2", 2, {**OFFLOAD, "overlap_comm": True}, steps(2)) for stage in (stage1, stage2)),
    *(stage("gpt2", 2, OFFLOAD, FP32) for stage in (stage1, stage2)),
    stage1("llama", 2, {}, steps(2), {**ACCUMULATE_IN_FP32, **REDUCE_IN_FP32}),
    stage1("gpt2", 3, {"reduce_bucket_size": 50_000}, config={"gradient_clipping": 1.0}),
    stage2("llama", 4, {"reduce_bucket_size": 1_000_000, "use_multi_rank_bucket_allreduce": False}, steps(2)),
]
STAGE_3 = [
    *(stage3(model, 2) for model in ("llama_tied", "gpt2", "mixtral")),
    stage3("llama", 2, NEVER_KEPT),
    stage3("gpt2", 2, {**NEVER_KEPT, "reduce_bucket_size": 80_000}, steps(3)),
    stage3("llama_tied", 2, {**NEVER_KEPT, "stage3_prefetch_bucket_size": 0}, {"checkpointing": "full"}),
    stage3("llama", 2, {"stage3_param_persistence_threshold": 40_000}),
    stage3(
        "llama",
        2,
        {"stage3_param_persistence_threshold": 40_000, "stage3_model_persistence_threshold": 200_000},
    ),
    stage3("llama", 2, {"stage3_param_persistence_threshold": 200, "stage3_prefetch_bucket_size": 100_000}),
    stage3("llama", 2, {"stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 2_000_000}),
    stage3("gpt2", 2, {"stage3_prefetch_bucket_size": 0, "stage3_max_live_parameters": 300_000}),
    stage3("llama", 2, {"sub_group_size": 400_000}, steps(2)),
    stage3("llama", 2, {"contiguous_gradients": False}),
    stage3("gpt2_untied", 2, {"reduce_scatter": False}),
    stage3("llama", 2, OFFLOAD, steps(3)),
    stage3("llama", 2, {}, steps(2), ACCUMULATE_IN_FP32),
    stage3("llama", 2, {**OFFLOAD, "offload_param": {"device": "cpu", "pin_memory": False}}),
    stage3("llama", 2, {**OFFLOAD, "sub_group_size": 400_000}, steps(2)),
    stage3("gpt2", 2, {"reduce_scatter": False, "contiguous_gradients": False}),
    stage3("llama", 2, words=FP32, config={"communication_data_type": "bf16"}),
    stage3("mixtral", 2, NEVER_KEPT, FP32),
    stage3("llama_odd", 3, {"overlap_comm": False}, steps(2), REDUCE_IN_FP32),
    stage3("mixtral", 3, {"stage3_param_persistence_threshold": 1_000}),
    stage3("gpt2", 3, OFFLOAD),
    stage3("llama_odd", 4, {**NEVER_KEPT, "zero_hpz_partition_size": 2}),
    stage3(
        "gpt2_untied", 4, {"zero_hpz_partition_size": 2, "stage3_param_persistence_threshold": 0}, steps(2)
    ),
    stage3("llama_odd", 4, {"stage3_param_persistence_threshold": 600}, steps(2), ACCUMULATE_IN_FP32),
]
WATCHED = (
    stage0("gpt2", 2, watch=True),
    stage1("llama", 2, watch=True),
    stage2("llama_tied", 2, watch=True),
    stage3("llama", 2, NEVER_KEPT, watch=True),
)
CASES = (*STAGE_0, *BELOW_3, *STAGE_3)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_fullest_rank_and_every_message(case, run_case, tmp_path):
    for package in ("torch", "transformers", "deepspeed"):
        pytest.importorskip(package)
    plan = plan_of(deepspeed_job(case, tmp_path))
    at_rest = [term for term in plan.terms if "at_rest" in term.phases]
    ranks = run_case("tests.live.deepspeed_runs", case)
    held = max((facts["held"] for facts in ranks), key=lambda found: sum(found.values()))
    named = {name for name in held if name not in {"module_params", "elsewhere"}}
    predicted = {name: sum(term.bytes for term in at_rest if term.name == name) for name in named}
    predicted["in all"] = sum(term.bytes for term in at_rest)
    wrong = {
        "holds": differences(
            {**{name: held[name] for name in named}, "in all": sum(held.values())}, predicted
        )
    }
    for rank, facts in enumerate(ranks):
        wrong[f"rank {rank} sends"] = differences(facts["sent"], messages(plan))
    assert not {key: found for key, found in wrong.items() if found}


@pytest.mark.parametrize("case", WATCHED, ids=lambda case: case.name)
def test_the_peak_is_within_five_percent(case, run_case, tmp_path):
    for package in ("torch", "transformers", "deepspeed"):
        pytest.importorskip(package)
    ranks = run_case("tests.live.deepspeed_runs", case)
    most = max(max(facts["peaks"].values()) for facts in ranks)
    assert peak(plan_of(deepspeed_job(case, tmp_path))) == pytest.approx(most, rel=0.05)
