"""DeepSpeed's own knobs: the keys of `zero_optimization` and their neighbours that move bytes, with 0.19's defaults."""

from __future__ import annotations

from zerocalc.frameworks.activation_settings import ACTIVATION_SETTINGS
from zerocalc.frameworks.settings import Setting

BELOW_3 = frozenset({"zero1", "zero2"})
STAGE_3 = frozenset({"zero3", "mics", "zeropp"})
SHARDED = BELOW_3 | STAGE_3
_ZEROPP = frozenset({"zeropp"})
_PINNED = "false up to 0.19.4, true since 0.19.5"
_DTYPES = ("fp32", "bf16", "fp16")

SETTINGS = (
    Setting(
        name="reduce_bucket_size", kind="int", default=500_000_000, strategies=SHARDED,
        doc="elements of gradients that are collected and reduced in one call",
    ),
    Setting(
        name="allgather_bucket_size", kind="int", default=500_000_000, strategies=BELOW_3,
        doc="elements gathered in one call; without effect where torch has all_gather_into_tensor (since 1.13)",
    ),
    Setting(
        name="overlap_comm", kind="bool", default=None, strategies=SHARDED,
        doc="reduce while the backward pass runs, from a second bucket in stages 1 and 2 (default: at stage 3 only)",
    ),
    Setting(
        name="contiguous_gradients", kind="bool", default=True, strategies=SHARDED,
        doc="copy gradients into one bucket as they arrive; offload below stage 3 always does",
    ),
    Setting(
        name="reduce_scatter", kind="bool", default=True, strategies=SHARDED,
        doc="false: all-reduce whole buckets; below stage 3 they are all-reduced anyway",
    ),
    Setting(
        name="use_multi_rank_bucket_allreduce", kind="bool", default=True, strategies=BELOW_3,
        doc="all-reduce a bucket that belongs to several ranks; false reduces each part to its owner",
    ),
    Setting(
        name="allgather_partitions", kind="bool", default=True, strategies=BELOW_3,
        doc="read and ignored: parameters are always all-gathered",
    ),
    Setting(
        name="round_robin_gradients", kind="bool", default=False, strategies=BELOW_3,
        doc="deal tensors to ranks in turn instead of in order",
    ),
    Setting(
        name="parameter_alignment", kind="bool", default=False, strategies=BELOW_3,
        doc="start every tensor of a flat group on 16 bytes (in 0.19.8, not yet in 0.19.6)",
    ),
    Setting(
        name="grad_accum_dtype", kind="str", default=None, choices=_DTYPES,
        doc="element type gradients accumulate in (data_types.grad_accum_dtype; default: the parameters')",
    ),
    Setting(
        name="communication_data_type", kind="str", default=None, choices=_DTYPES,
        doc="element type of gradients on the wire (default: the parameters')",
    ),
    Setting(
        name="bf16_master_weights_and_grads", kind="bool", default=False, strategies=SHARDED,
        doc="keep master weights and their gradients in bf16 (bf16 section; since 0.18.3)",
    ),
    Setting(
        name="fp16_master_weights_and_grads", kind="bool", default=False, strategies=SHARDED,
        doc="keep master weights and their gradients in fp16 (fp16 section)",
    ),
    Setting(
        name="bf16_optimizer_states", kind="bool", default=False, strategies=SHARDED,
        doc="keep the optimizer's moments in bf16; needs bf16_master_weights_and_grads",
    ),
    Setting(
        name="stage3_prefetch_bucket_size", kind="int", default=50_000_000, strategies=STAGE_3,
        doc="elements gathered ahead of their use", changed="5e8 in the documentation, 5e7 in the code",
    ),
    Setting(
        name="stage3_param_persistence_threshold", kind="int", default=100_000, strategies=STAGE_3,
        doc="parameters up to this many elements stay whole on every rank",
        changed="1e6 in some documentation, 1e5 in the code",
    ),
    Setting(
        name="stage3_model_persistence_threshold", kind="int", default=None, strategies=STAGE_3,
        doc="elements that may stay whole in all (default: no limit)",
    ),
    Setting(
        name="stage3_max_live_parameters", kind="int", default=1_000_000_000, strategies=STAGE_3,
        doc="elements gathered at once, beyond which nothing is prefetched",
    ),
    Setting(
        name="stage3_max_reuse_distance", kind="int", default=1_000_000_000, strategies=STAGE_3,
        doc="elements within which a parameter that is used again is not released",
    ),
    Setting(
        name="sub_group_size", kind="int", default=1_000_000_000, minimum=1, strategies=STAGE_3,
        doc="elements of a rank's share that the optimizer updates at a time",
        changed="1e12 in the documentation's examples, 1e9 in the code",
    ),
    Setting(
        name="zero_hpz_partition_size", kind="int", default=None, minimum=1, strategies=STAGE_3,
        doc="ranks that keep a secondary copy of the parameters between them (default: 1, none)",
    ),
    Setting(
        name="zero_quantized_weights", kind="bool", default=None, strategies=_ZEROPP,
        doc="gather parameters as int8 with fp32 scales",
    ),
    Setting(
        name="zero_quantized_gradients", kind="bool", default=None, strategies=_ZEROPP,
        doc="reduce gradients as int4 by two all-to-alls",
    ),
    Setting(
        name="zero_quantized_nontrainable_weights", kind="bool", default=False, strategies=STAGE_3,
        doc="keep the shares of frozen parameters as int8",
    ),
    Setting(
        name="offload_optimizer.pin_memory", kind="bool", default=True, strategies=SHARDED, changed=_PINNED,
        doc="page-lock the optimizer's host memory; the bytes are the same",
    ),
    Setting(
        name="offload_optimizer.ratio", kind="ratio", default=1.0, strategies=STAGE_3,
        doc="part of the sub-groups whose optimizer states are offloaded",
    ),
    Setting(
        name="offload_optimizer.buffer_count", kind="int", default=4, strategies=STAGE_3,
        doc="pinned buffers of one sub-group each, between NVMe and the optimizer",
    ),
    Setting(
        name="offload_param.pin_memory", kind="bool", default=True, strategies=STAGE_3, changed=_PINNED,
        doc="page-lock the parameters' host memory; the bytes are the same",
    ),
    Setting(
        name="offload_param.buffer_count", kind="int", default=5, strategies=STAGE_3,
        doc="pinned buffers of buffer_size elements each, between NVMe and the parameters",
    ),
    Setting(
        name="offload_param.buffer_size", kind="int", default=100_000_000, strategies=STAGE_3,
        doc="elements of one such buffer",
    ),
    Setting(
        name="offload_param.max_in_cpu", kind="int", default=1_000_000_000, strategies=STAGE_3,
        doc="elements of parameters kept in host memory when they are offloaded to NVMe",
    ),
    Setting(
        name="optimizer_class", kind="str", default="adamw", choices=("adamw", "fusedadam", "deepspeedcpuadam"),
        doc="torch's optimizer handed to deepspeed.initialize (counts steps in a tensor, works with two copies of a "
        "state), or what DeepSpeed builds from the `optimizer` section: FusedAdam, DeepSpeedCPUAdam under offload",
    ),
    Setting(
        name="unflattened_copy", kind="bool", default=True, strategies=BELOW_3,
        doc="while the engine is built, weights as loaded stand beside their flat copy and the new states",
        changed="optimizer states are made at the first step since 0.13.2; flattened on the GPU only where it fits "
        "since 0.18.7",
    ),
    *ACTIVATION_SETTINGS,
)  # fmt: skip

WITHOUT_EFFECT = {
    "allgather_bucket_size": "the flat group is gathered in one call since torch 1.13",
    "allgather_partitions": "parameters are always all-gathered",
    "offload_optimizer.pin_memory": "it changes where the host memory lies, not how much there is",
    "offload_param.pin_memory": "it changes where the host memory lies, not how much there is",
}
"""Settings that move no byte in any stage, and why: reported when given."""
