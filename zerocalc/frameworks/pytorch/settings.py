"""PyTorch's own knobs as rows: by its names, with its defaults, and where each acts."""

from __future__ import annotations

from zerocalc.frameworks.activation_settings import ACTIVATION_SETTINGS
from zerocalc.frameworks.settings import Setting

_DDP = frozenset({"ddp", "zero1"})
_ZERO1 = frozenset({"zero1"})
_SHARDED = frozenset({"zero2", "zero3", "hsdp"})
_ZERO3 = frozenset({"zero3", "hsdp"})
_DTYPES = ("none", "fp32", "bf16", "fp16")

SETTINGS = (
    # DistributedDataParallel
    Setting(
        name="bucket_cap_mb", kind="int", default=None, minimum=1, strategies=_DDP,
        doc="MiB of gradients per bucket (default: 25, and 1 for the first bucket)",
    ),
    Setting(
        name="ddp_wrapper", kind="bool", default=None, strategies=_DDP,
        doc="wrap the model in DistributedDataParallel (default: where there is more than one data-parallel rank)",
    ),
    Setting(
        name="gradient_as_bucket_view", kind="bool", default=False, strategies=_DDP,
        doc="gradients are views of the reducer's buckets; otherwise the buckets are a second copy that stays",
    ),
    Setting(
        name="broadcast_buffers", kind="bool", default=True, strategies=_DDP,
        doc="broadcast the module's buffers before every synchronised forward",
    ),
    Setting(
        name="ddp_comm_hook", kind="str", default="none", choices=("none", "bf16_compress", "fp16_compress"),
        strategies=_DDP, doc="element type of gradients on the wire; what is held does not change",
    ),
    Setting(
        name="find_unused_parameters", kind="bool", default=False, strategies=_DDP,
        doc="buckets keep the order of registration instead of the order in which gradients arrive, and an int32 per "
        "tensor is kept and reduced",
    ),
    Setting(
        name="no_sync", kind="bool", default=False, strategies=_DDP | _SHARDED,
        doc="all micro-steps but the last run inside no_sync() (DDP, FSDP1; FSDP2: requires_gradient_sync)",
    ),
    # ZeroRedundancyOptimizer
    Setting(
        name="parameters_as_bucket_view", kind="bool", default=False, strategies=_ZERO1,
        doc="parameters are views of one bucket per rank: one broadcast per rank instead of one per tensor",
    ),
    # Fully sharded data parallel
    Setting(
        name="fsdp_version", kind="int", default=2, minimum=1, strategies=_SHARDED | {"ddp"},
        doc="1: FullyShardedDataParallel with flat parameters; 2: fully_shard", changed="1 until torch 2.4",
    ),
    Setting(
        name="wrap", kind="str", default="layers", choices=("layers", "root_only", "torchtitan"), strategies=_SHARDED,
        doc="units: every layer and the root; the root alone; or as torchtitan (embedding, layers, norm with head)",
    ),
    Setting(
        name="reshard_after_forward", kind="int or bool", default=None, minimum=1, strategies=_ZERO3,
        doc="free gathered parameters after forward (default: all units but the root), or keep them sharded over N ranks",
        changed="until torch 2.6 the default was true, with the root kept all the same",
    ),
    Setting(
        name="param_dtype", kind="str", default=None, choices=_DTYPES, strategies=_SHARDED,
        doc="MixedPrecisionPolicy.param_dtype: parameters are cast to it before they are gathered "
        "(default: the parameter type of a precision with master weights, else none)",
    ),
    Setting(
        name="reduce_dtype", kind="str", default=None, choices=_DTYPES, strategies=_SHARDED,
        doc="MixedPrecisionPolicy.reduce_dtype: element type of reduced gradients "
        "(default: fp32 for a precision with master weights, else none: that of the gradients)",
    ),
    Setting(
        name="shard_placement_fn", kind="str", default="none", choices=("none", "experts_dim1"), strategies=_SHARDED,
        doc="fully_shard: experts_dim1 cuts fused experts along their second dimension, as torchtitan does where there "
        "are more ranks than experts; otherwise each rank pads to a whole expert",
    ),
    Setting(
        name="requires_gradient_sync", kind="bool", default=True, strategies=_SHARDED,
        doc="fully_shard: false reduces in the last micro-step only and keeps whole gradients until then",
    ),
    Setting(
        name="requires_all_reduce", kind="bool", default=True, strategies=frozenset({"hsdp"}),
        doc="fully_shard: false all-reduces between replicas in the last micro-step only",
    ),
    Setting(
        name="reshard_after_backward", kind="bool", default=True, strategies=_SHARDED,
        doc="fully_shard: false keeps gathered parameters from one micro-step to the next",
    ),
    Setting(
        name="use_orig_params", kind="bool", default=False, strategies=_SHARDED | {"ddp"},
        doc="FSDP1: states per original tensor, each tensor aligned to 16 bytes in the flat parameter",
    ),
    # Whatever the strategy
    Setting(
        name="sync_module_states", kind="bool", default=None,
        doc="true: rank 0 alone loads the model and sends it; false: every process loads a whole copy into host memory "
        "(default: loading is not counted)",
    ),
    Setting(
        name="backend", kind="str", default="nccl", choices=("nccl", "gloo"), strategies=_SHARDED,
        doc="gloo reduces and scatters through a copy of its input",
    ),
    Setting(
        name="init_device", kind="str", default="meta", choices=("meta", "cuda"), strategies=_SHARDED,
        doc="where the model is built before it is sharded: cuda holds it whole for a moment",
    ),
    Setting(
        name="storage_dtype", kind="str", default=None, choices=_DTYPES[1:],
        doc="element type in which parameters rest (default: the master weights' type, else the parameters')",
    ),
    Setting(
        name="set_to_none", kind="bool", default=True,
        doc="zero_grad frees gradients; false keeps them between steps",
        changed="false until torch 1.13",
    ),
    Setting(name="foreach", kind="bool", default=True, doc="the optimizer updates all tensors at once, with temporaries of a full copy"),
    Setting(name="fused", kind="bool", default=False, doc="the optimizer is one kernel without temporaries; overrides foreach"),
    Setting(name="pin_memory", kind="bool", default=True, strategies=_SHARDED, doc="CPUOffloadPolicy: whether host copies are page-locked"),
    *ACTIVATION_SETTINGS,
)  # fmt: skip
