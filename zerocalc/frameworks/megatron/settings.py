"""Megatron-LM's own knobs by their own names, and what follows from several of them together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.errors import UsageError
from zerocalc.frameworks.settings import Setting, resolve_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from zerocalc.specs.job import Job

STRATEGIES: frozenset[str] = frozenset({"ddp", "zero1"})
"""Without and with the distributed optimizer; Megatron's own FSDP is not described here."""

_ZERO1 = frozenset({"zero1"})
_STORED = ("fp32", "fp16", "bf16", "fp8")

SETTINGS = (
    Setting(
        name="use_distributed_optimizer", kind="bool", default=None,
        doc="shard optimizer states over data-parallel ranks: strategy zero1; without it: ddp",
    ),
    Setting(
        name="accumulate_allreduce_grads_in_fp32", kind="bool", default=None,
        doc="keep and reduce gradients in fp32 (default: yes for bf16 and fp32 parameters, no for fp16)",
    ),
    Setting(
        name="grad_reduce_in_fp32", kind="bool", default=None,
        doc="the same, as the wrapped model's configuration calls it",
    ),
    Setting(name="grad_reduce_in_bf16", kind="bool", default=False, doc="keep and reduce gradients in bf16"),
    Setting(
        name="use_precision_aware_optimizer", kind="bool", default=False, strategies=_ZERO1,
        doc="let main parameters, main gradients and moments have their own types",
    ),
    Setting(
        name="main_grads_dtype", kind="str", default="fp32", choices=("fp32", "bf16"), strategies=_ZERO1,
        doc="main gradients, with use_precision_aware_optimizer",
    ),
    Setting(
        name="main_params_dtype", kind="str", default="fp32", choices=("fp32", "fp16"), strategies=_ZERO1,
        doc="main parameters, with use_precision_aware_optimizer",
    ),
    Setting(
        name="store_param_remainders", kind="bool", default=True, strategies=_ZERO1,
        doc="with use_precision_aware_optimizer, keep only those 16 bits of an fp32 main parameter that its bf16 "
        "parameter lacks",
    ),
    Setting(
        name="exp_avg_dtype", kind="str", default="fp32", choices=_STORED, strategies=_ZERO1,
        doc="Adam's first moment, with use_precision_aware_optimizer",
    ),
    Setting(
        name="exp_avg_sq_dtype", kind="str", default="fp32", choices=_STORED, strategies=_ZERO1,
        doc="Adam's second moment, with use_precision_aware_optimizer",
    ),
    Setting(
        name="overlap_grad_reduce", kind="bool", default=False,
        doc="reduce gradients bucket by bucket during backward; moves the same bytes",
    ),
    Setting(
        name="ddp_bucket_size", kind="int", default=None, minimum=1,
        doc="elements per bucket, with overlap_grad_reduce (default: the larger of 40M and 1M per rank)",
    ),
    Setting(
        name="pad_buckets_for_high_nccl_busbw", kind="bool", default=False, strategies=_ZERO1,
        doc="pad each bucket to a multiple of 65536 elements",
    ),
    Setting(
        name="gradient_accumulation_fusion", kind="bool", default=True,
        doc="add weight gradients to the main gradients inside the matrix multiplication",
    ),
    Setting(
        name="transformer_impl", kind="str", default="transformer_engine", choices=("transformer_engine", "local"),
        doc="whose layers: TransformerEngine keeps one placeholder per weight shape when gradients are fused",
    ),
    Setting(
        name="cublas_workspace_kib", kind="int", default=8320,
        doc="KiB per cuBLAS handle, as CUBLAS_WORKSPACE_CONFIG sets it: 8320 before Hopper; 32768 since, and with the "
        ":4096:8 that deterministic_mode asks for",
    ),
    Setting(
        name="num_layers_per_virtual_pipeline_stage", kind="int", default=None, minimum=1,
        doc="layers of one model chunk of the interleaved schedule",
    ),
    Setting(
        name="virtual_pipeline_model_parallel_size", kind="int", default=None, minimum=1,
        doc="model chunks per pipeline stage of the interleaved schedule",
    ),
    Setting(
        name="num_layers_in_first_pipeline_stage", kind="int", default=None, minimum=1,
        doc="layers of the first pipeline stage (default: an even split)",
    ),
    Setting(
        name="num_layers_in_last_pipeline_stage", kind="int", default=None, minimum=1,
        doc="layers of the last pipeline stage (default: an even split)",
    ),
    Setting(
        name="make_vocab_size_divisible_by", kind="int", default=128, minimum=1,
        doc="pad the vocabulary to a multiple of this times the tensor-parallel degree",
    ),
    Setting(
        name="sequence_parallel", kind="bool", default=None,
        doc="split the sequence over tensor-parallel ranks outside the matrix multiplications",
    ),
    Setting(
        name="recompute_granularity", kind="str", default=None, choices=("selective", "full"),
        doc="what backward computes again: the core of attention, or every layer (default: --checkpointing)",
    ),
    Setting(
        name="distribute_saved_activations", kind="bool", default=False,
        doc="with full recomputation, split each layer's saved input over the tensor-parallel ranks",
    ),
    Setting(
        name="cross_entropy_loss_fusion", kind="bool", default=False,
        doc="compute the loss in fused kernels",
    ),
    Setting(
        name="cross_entropy_fusion_impl", kind="str", default="native", choices=("native", "te"),
        doc="with cross_entropy_loss_fusion: native keeps fp32 logits, te overwrites the 16-bit ones",
    ),
)  # fmt: skip

_NEEDS = {
    "main_grads_dtype": "use_precision_aware_optimizer",
    "main_params_dtype": "use_precision_aware_optimizer",
    "exp_avg_dtype": "use_precision_aware_optimizer",
    "exp_avg_sq_dtype": "use_precision_aware_optimizer",
    "store_param_remainders": "use_precision_aware_optimizer",
    "ddp_bucket_size": "overlap_grad_reduce",
    "cross_entropy_fusion_impl": "cross_entropy_loss_fusion",
}
"""Settings that act only beside another one."""


def resolved(job: Job) -> tuple[dict[str, Any], list[str]]:
    """Every setting's value, with warnings for given ones that have no effect. Raises UsageError on a contradiction."""
    values, warnings = resolve_settings("megatron", SETTINGS, job.settings, job.strategy)
    asked = values["use_distributed_optimizer"]
    if asked is not None and asked != (job.strategy == "zero1"):
        other = "zero1" if asked else "ddp"
        raise UsageError(
            f"use_distributed_optimizer={str(asked).lower()} is not strategy {job.strategy}",
            hint=f"ask for strategy {other}, or leave the setting out",
        )
    warnings += [
        f"{name} has no effect without {needed}"
        for name, needed in _NEEDS.items()
        if name in job.settings and not values[needed]
    ]
    warnings += _ignored_words(job, values)
    return values, warnings


def _ignored_words(job: Job, values: Mapping[str, Any]) -> Iterator[str]:
    """Words of the job that Megatron decides by its own settings."""
    used = grad_dtype(job, values)
    for word in ("grad_dtype", "reduce_dtype"):
        given = getattr(job.precision, word)
        typed = not job.origins.get(word, "default").startswith(("default", "preset"))
        if typed and given != used:
            yield f"{word} {given} has no effect: Megatron keeps and reduces gradients in {used} (grad_reduce_in_bf16)"
    if job.offload.optimizer != "none":
        yield "optimizer offload: Megatron's optimizer_cpu_offload, with optimizer_offload_fraction = 1"


def grad_dtype(job: Job, values: Mapping[str, Any]) -> str:
    """The element type in which main gradients are kept and reduced."""
    own = job.precision.param_dtype
    in_fp32 = values["accumulate_allreduce_grads_in_fp32"]
    in_fp32 = values["grad_reduce_in_fp32"] if in_fp32 is None else in_fp32
    lowered = values["use_precision_aware_optimizer"] and values["main_grads_dtype"] == "bf16"
    if own == "bf16" and (values["grad_reduce_in_bf16"] or lowered):
        return "bf16"
    if in_fp32 is None:
        in_fp32 = own != "fp16"
    return "fp32" if in_fp32 else own


def sequence_parallel(job: Job, values: Mapping[str, Any]) -> bool:
    """Whether tensor-parallel ranks split the sequence too: the setting, else the job's word."""
    given = values["sequence_parallel"]
    return bool(job.workload.sequence_parallel if given is None else given)
