"""What DeepSpeed, its estimators, PyTorch and Megatron hold and send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tests.worked.asking import (
    bytes_of,
    estimate,
    full,
    memory,
    moved,
    one_block,
    sent,
    states,
    states_of,
    terms,
    two_matrices,
    with_layout,
)
from zerocalc.layout import Layout, Tensor, Unit

if TYPE_CHECKING:
    from zerocalc.results import StrategyResult


PYTORCH_STEPS: dict[str, dict[str, Any]] = {
    "fsdp2_reshard": {"reshard_after_forward": True},
    "fsdp2_reshard_nosync": {"reshard_after_forward": True, "requires_gradient_sync": False},
    "fsdp2_noreshard": {"reshard_after_forward": False},
    "fsdp2_noreshard_nosync": {"reshard_after_forward": False, "requires_gradient_sync": False},
    "fsdp2_noreshard_keep_unsharded": {
        "reshard_after_forward": False, "requires_gradient_sync": False, "reshard_after_backward": False,
    },
}  # fmt: skip
"""How each line of the example is said to FSDP2."""


def sent_per_step(i: Mapping[str, Any]) -> Any:
    def ideal(strategy: str) -> int:
        return sent(i["params"], strategy=strategy, dp=i["N"], grad_accum=i["micro_steps"])

    def torch(strategy: str, **settings: Any) -> int:
        result = with_layout(
            one_block(i["params"]), strategy=strategy, dp=i["N"], grad_accum=i["micro_steps"], framework="pytorch",
            precision="bf16-pure", settings=settings,
        )  # fmt: skip
        return moved(result, "sent_bytes", tensor="params") + moved(result, "sent_bytes", tensor="grads")

    def deepspeed(strategy: str) -> int:
        result = estimate(
            i["params"], strategy=strategy, dp=i["N"], grad_accum=i["micro_steps"], framework="deepspeed"
        )
        return moved(result, "sent_bytes", tensor="params") + moved(result, "sent_bytes", tensor="grads")

    return {
        "ddp_no_sync": ideal("ddp"),
        "ddp_sync_every": torch("ddp", no_sync=False, broadcast_buffers=False),
        "zero1_ideal": ideal("zero1"),
        "zero1_deepspeed_default": deepspeed("zero1"),
        "zero2_ideal": ideal("zero2"),
        "zero2_deepspeed_default": deepspeed("zero2"),
        "zero3": ideal("zero3"),
        **{name: torch("zero3", **settings) for name, settings in PYTORCH_STEPS.items()},
        "fsdp1_shard_grad_op_nosync": torch("zero2", fsdp_version=1, no_sync=True),
    }


def gathered_twice(result: StrategyResult, i: Mapping[str, Any], extra: str, held: int) -> Any:
    return {
        "ag_world": moved(result, "sent_bytes", op="all_gather", group_size=i["N"]),
        "ag_sub": moved(result, "sent_bytes", op="all_gather", group_size=i["n"]),
        "rs_world": moved(result, "sent_bytes", op="reduce_scatter", group_size=i["N"]),
        extra: held,
    }


def reshard_to_a_group(i: Mapping[str, Any]) -> Any:
    result = with_layout(
        one_block(i["params"]), strategy="zero3", dp=i["N"], grad_accum=i["micro_steps"], framework="pytorch",
        precision="bf16-pure", settings={"reshard_after_forward": i["n"]},
    )  # fmt: skip
    return gathered_twice(result, i, "extra_mem_fwd_to_bwd", terms(result, name="resharded_params"))


def secondary_shards(i: Mapping[str, Any]) -> Any:
    settings = NO_REUSE | {"zero_hpz_partition_size": i["n"]}
    result = with_layout(
        one_block(i["params"]), strategy="zero3", dp=i["N"], grad_accum=i["micro_steps"], framework="deepspeed",
        settings=settings,
    )  # fmt: skip
    return gathered_twice(result, i, "extra_mem", terms(result, name="secondary_params"))


NO_REUSE = {
    "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0, "stage3_param_persistence_threshold": 0,
}  # fmt: skip


def bytes_on_nvme(i: Mapping[str, Any]) -> Any:
    def held(framework: str, **words: Any) -> int:
        result = estimate(
            i["params"], gpus=1, strategy="zero3", framework=framework, offload_optimizer="nvme", **words
        )
        return sum(t.bytes for t in result.memory.nvme.terms) if result.memory else 0

    return {
        "opt_only": held("deepspeed"),
        "opt_and_param": held("deepspeed", offload_params="nvme", settings={"offload_param.max_in_cpu": 0}),
        "paper": held("paper", offload_params="nvme", precision="zero-infinity"),
    }


def nvme_buffers(i: Mapping[str, Any]) -> Any:
    settings = {
        "sub_group_size": i["sub_group"], "offload_optimizer.buffer_count": i["opt_buffer_count"],
        "offload_param.buffer_count": i["param_buffer_count"], "offload_param.buffer_size": i["param_buffer_size"],
    }  # fmt: skip
    result = estimate(
        i["params"], gpus=i["N"], strategy="zero3", framework="deepspeed", offload_optimizer="nvme",
        offload_params="nvme", settings=settings,
    )  # fmt: skip
    optimizer = terms(result, tier="cpu", name="optimizer_swap_buffers")
    params = terms(result, tier="cpu", name="param_swap_buffers")
    return {"per_rank_opt": optimizer, "per_rank_param": params, "per_node_8": 8 * (optimizer + params)}


def moved_by_frameworks(i: Mapping[str, Any]) -> Any:
    """DeepSpeed's boundary moves gradients down, up, and down again; the updated parameters come on top."""

    def host(framework: str, **words: str) -> Any:
        result = with_layout(
            one_block(i["params"]),
            gpus=i["N"],
            strategy="zero3",
            framework=framework,
            offload_optimizer="cpu",
            **words,
        )
        assert result.communication is not None
        return result.communication.links.host

    ideal, deepspeed, fsdp2 = host("paper"), host("deepspeed"), host("pytorch", offload_params="cpu")
    return {
        "zero_offload_ideal": ideal.to_host_bytes + ideal.from_host_bytes,
        "fsdp2_h2d": fsdp2.from_host_bytes,
        "fsdp2_d2h": fsdp2.to_host_bytes,
        "ds_z3_grad_boundary": deepspeed.to_host_bytes + deepspeed.from_host_bytes - ideal.from_host_bytes,
    }


def estimator(i: Mapping[str, Any], strategy: str, **words: Any) -> tuple[int, int | None]:
    held = memory(
        i["params"], gpus=i["gpus_per_node"] * i["nodes"], gpus_per_node=i["gpus_per_node"], strategy=strategy,
        framework="deepspeed-estimator", **words,
    )  # fmt: skip
    return held.gpu.model_states_bytes, held.cpu.bytes_per_node


def place(on: bool) -> str:
    return "cpu" if on else "none"


def estimator_zero2(i: Mapping[str, Any]) -> Any:
    gpu, cpu = estimator(i, "zero2", offload_optimizer=place(i["offload"]))
    return {"cpu": cpu, "gpu": gpu}


def estimator_zero3(i: Mapping[str, Any]) -> Any:
    settings = {"largest_layer_params": i["largest_layer"], "zero_init": i["zero_init"]}
    gpu, cpu = estimator(
        i, "zero3", settings=settings, offload_optimizer=place(i["offload_opt"]),
        offload_params=place(i["offload_param"]),
    )  # fmt: skip
    return {"cpu": cpu, "gpu": gpu}


def estimator_issue_4527(i: Mapping[str, Any]) -> Any:
    settings = {"largest_layer_params": i["largest_layer"]}
    gpu, cpu = estimator(i, "zero3", settings=settings)
    _, full = estimator(i, "zero3", settings=settings, offload_optimizer="cpu", offload_params="cpu")
    return {"gpu": gpu, "cpu": cpu, "cpu_full_offload": full}


def estimator_issue_2131(i: Mapping[str, Any]) -> Any:
    gpu, cpu = estimator(i, "zero2", offload_optimizer="cpu")
    older, _ = estimator(i, "zero2", settings={"version": "before-2024-06"})
    return {"cpu": cpu, "gpu_offload": gpu, "gpu_old_no_offload": older}


def whole_and_sharded_gradients(i: Mapping[str, Any]) -> Any:
    words = {"gpus": i["N"], "strategy": "zero3", "grad_accum": 2}
    kept = with_layout(
        one_block(i["params"]), framework="pytorch", precision="bf16-pure",
        settings={"requires_gradient_sync": False}, **words,
    )  # fmt: skip
    return {
        "sharded": terms(estimate(i["params"], **words), state="grads"),
        "unsharded": terms(kept, name="unsharded_grads"),
    }


def distributed_optimizer(i: Mapping[str, Any]) -> Any:
    def held(precision: str, strategy: str = "zero1") -> int:
        return states(i["params"], dp=i["d"], strategy=strategy, precision=precision, framework="megatron")

    return {name: held(name) for name in ("bf16", "fp16", "fp32")} | {"nondist_bf16": held("bf16", "ddp")}


def fsdp2_of_llama(i: Mapping[str, Any]) -> Any:
    def held(**words: Any) -> StrategyResult:
        return with_layout(
            one_block(i["params"]), gpus=i["N"], strategy="zero3", framework="pytorch", **words
        )

    def accumulated(**settings: Any) -> int:
        result = held(grad_accum=2, settings={"requires_gradient_sync": False} | settings)
        return terms(result, name="unsharded_grads")

    layers = Layout((Unit("blocks", (Tensor("weight", (i["block"],)),), count=3, is_layer=True),))
    turn = with_layout(layers, gpus=i["N"], strategy="zero3", framework="pytorch")
    return {
        "persistent": states_of(held())
        - terms(held(), name="step"),  # the example leaves out AdamW's step counter
        "params_after_fwd_block_x2": max(
            bytes_of(turn, "all_gather_buffers")
        ),  # this layer's and the next one's
        "rs_input_fp32": terms(turn, name="reduce_scatter_input"),
        "nosync_accum_fp32": accumulated(),
        "nosync_accum_bf16": accumulated(reduce_dtype="bf16"),
    }


def deepspeed_of_llama(i: Mapping[str, Any]) -> Any:
    result = estimate(
        i["params"],
        gpus=i["N"],
        strategy="zero3",
        framework="deepspeed",
        settings={"optimizer_class": "fusedadam"},
    )
    estimated, _ = estimator({"params": i["params"], "gpus_per_node": i["N"], "nodes": 1}, "zero3")
    resident, step = states_of(result), terms(result, name="fp32_grads")
    return {
        "resident": resident,
        "in_step_fp32_grad": step,
        "in_step_total": resident + step,
        "estimator_18": estimated,
        "ipg_buffer": terms(result, name="reduce_bucket"),
        "max_live_params": 2 * i["max_live"],
    }


def measured(i: Mapping[str, Any], framework: str, strategy: str = "zero3", **words: Any) -> StrategyResult:
    return with_layout(
        two_matrices(), gpus=i["W"], strategy=strategy, framework=framework, grad_accum=i.get("micro_steps", 1),
        **words,
    )  # fmt: skip


def fsdp2_step(setting: str) -> Callable[[Mapping[str, Any]], Any]:
    def made(i: Mapping[str, Any]) -> Any:
        result = measured(i, "pytorch", settings=PYTORCH_STEPS[setting])
        return {"ag_full_bytes": full(result, "all_gather"), "rs_full_bytes": full(result, "reduce_scatter")}

    return made


def fsdp2_checkpointed(i: Mapping[str, Any]) -> Any:
    result = measured(i, "pytorch", settings={"reshard_after_forward": True}, checkpointing="full")
    return {"ag_full_bytes": full(result, "all_gather"), "rs_full_bytes": full(result, "reduce_scatter")}


def fsdp2_group_of_two(i: Mapping[str, Any]) -> Any:
    result = measured(i, "pytorch", settings={"reshard_after_forward": 2})
    return {
        "ag_world": full(result, "all_gather", i["W"]),
        "ag_sub2": full(result, "all_gather", 2),
        "rs_world": full(result, "reduce_scatter", i["W"]),
    }


def fsdp2_mesh(i: Mapping[str, Any]) -> Any:
    def reduced(every: bool) -> StrategyResult:
        settings = {"reshard_after_forward": True, "requires_all_reduce": every}
        return measured(i, "pytorch", "hsdp", shard_size=i["shard"], settings=settings)

    every = reduced(True)
    return {
        "ag_shard": full(every, "all_gather", i["shard"]),
        "rs_shard": full(every, "reduce_scatter", i["shard"]),
        "ar_rep_every": full(every, "all_reduce", i["rep"]),
        "ar_rep_last_only": full(reduced(False), "all_reduce", i["rep"]),
    }


def deepspeed_step(i: Mapping[str, Any]) -> Any:
    result = measured(i, "deepspeed", settings=NO_REUSE)
    return {"ag_full_bytes": full(result, "all_gather"), "rs_full_bytes": full(result, "reduce_scatter")}


def deepspeed_hpz(i: Mapping[str, Any]) -> Any:
    result = measured(i, "deepspeed", settings=NO_REUSE | {"zero_hpz_partition_size": i["n"]})
    return {
        "ag_world": full(result, "all_gather", i["W"]),
        "ag_sub2": full(result, "all_gather", i["n"]),
        "rs_world": full(result, "reduce_scatter", i["W"]),
    }
