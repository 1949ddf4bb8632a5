"""The job: what is trained, in which precision, on how many ranks, under which strategy, on which machine."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation

from zerocalc.layout import Architecture, Layout, anonymous_layout
from zerocalc.specs.types import (
    Bytes,
    BytesPerParam,
    Count,
    OptionalCount,
    Ranks,
    Rate,
    Spec,
    Tier,
    Tokens,
    Tokens15,
)


class ModelSpec(Spec):
    """A model: its parameters, and its layout of tensors when it is known."""

    num_params: Count
    """Parameters Ψ, tied matrices counted once."""
    name: str | None = None
    """How the user named it."""
    role: str = "model"
    """What it does in the job: `model` is trained, `frozen` (reference, reward, teacher) is only held."""
    num_expert_params: OptionalCount = 0
    """Parameters of routed experts among Ψ, for a bare count."""
    num_trainable_params: OptionalCount | None = None
    """Parameters that get gradients and optimizer states; null means all."""
    architecture: Annotated[Architecture | None, SkipValidation, Field(exclude=True)] = None
    """The tensors behind the count."""
    adapter: Annotated[Layout | None, SkipValidation, Field(exclude=True)] = None
    """LoRA's adapter tensors, trained on top of the frozen model."""

    @property
    def partly_frozen(self) -> bool:
        """Whether some parameters of the model are not trained."""
        return self.adapter is not None or self.num_trainable_params not in (None, self.num_params)

    @property
    def layout(self) -> Layout:
        """The tensors; for a bare count, anonymous ones."""
        if self.architecture is not None:
            return self.architecture.layout
        return anonymous_layout(self.num_params, num_expert_params=self.num_expert_params)


class Precision(Spec):
    """Element types of what is held and what is sent."""

    name: str = "mixed-bf16"
    param_dtype: str = "bf16"
    grad_dtype: str = "bf16"
    reduce_dtype: str = "bf16"
    """Element type of gradients on the wire."""
    frozen_dtype: str = "bf16"
    """Element type of parameters that are not trained."""
    master_dtype: str | None = "fp32"
    """Element type of the master copy that the optimizer updates; null where it updates the parameters themselves."""
    moment_dtype: str = "fp32"
    extra_param_bytes: BytesPerParam = Fraction(0)
    """Further copies of the weights a precision keeps (FP8 weight caches), bytes per parameter."""


class OptimizerSpec(Spec):
    """The optimizer and K, the bytes of its states per trainable parameter, master weights included."""

    name: str = "adamw"
    bytes_per_param: BytesPerParam
    """K for a tensor of no special shape."""
    row: Annotated[Any, SkipValidation, Field(exclude=True)] = None
    """The optimizer's preset, for rules that depend on a tensor's shape; null once K was given."""
    precision_row: Annotated[Any, SkipValidation, Field(exclude=True)] = None
    """The precision's preset, which says what master weights and moments are kept in."""

    @property
    def needs_shapes(self) -> bool:
        """Whether exact bytes depend on tensor shapes."""
        return self.row is not None and bool(self.row.needs_shapes)


class Parallelism(Spec):
    """How the ranks are arranged. world_size = dp·tp·pp·cp."""

    world_size: Ranks
    tp: Ranks = 1
    """Tensor-parallel degree."""
    pp: Ranks = 1
    """Pipeline-parallel degree."""
    cp: Ranks = 1
    """Context-parallel degree."""
    ep: Ranks = 1
    """Expert-parallel degree, carved out of data-parallel ranks."""
    etp: Ranks = 1
    """Tensor-parallel degree inside one expert."""
    gpus_per_node: Ranks | None = None
    sharding_group_size: Ranks | None = None
    """Ranks per sharding group, for HSDP and MiCS."""
    stage_layers: tuple[int, ...] | None = None
    """Layers of each pipeline stage; null splits them evenly."""

    @property
    def data_parallel_size(self) -> int:
        """N_d: how many different batches."""
        return self.world_size // (self.tp * self.pp * self.cp)

    @property
    def shard_size(self) -> int:
        """Ranks over which dense model states are sharded: context-parallel ranks hold the same parameters."""
        return self.data_parallel_size * self.cp

    @property
    def expert_shard_size(self) -> int:
        """Ranks over which one expert's states are sharded."""
        return self.world_size // (self.ep * self.etp * self.pp)


class Offload(Spec):
    """Which states rest outside the GPU. Offload moves bytes, it never changes how many there are."""

    optimizer: Tier = "none"
    params: Tier = "none"


class Workload(Spec):
    """The batch of one step."""

    micro_batch: Tokens | None = None
    """Sequences per rank per micro-step."""
    seq_len: Tokens | None = None
    """Tokens per sequence."""
    grad_accum: Ranks = 1
    """Micro-steps per optimizer step."""
    checkpointing: Literal["none", "selective", "full"] = "none"
    attention: Literal["flash", "math", "eager"] = "flash"
    sequence_parallel: bool = False
    """Whether tensor-parallel ranks also split the sequence outside the matrix multiplications."""


class Machine(Spec):
    """The GPU a rank runs on, and the node around it."""

    gpu: str | None = None
    node: str | None = None
    capacity_bytes: Bytes | None = None
    """What a framework can allocate on the GPU."""
    reserve_bytes: Bytes = 0
    """Kept free on the GPU: context, communication buffers, fragmentation."""
    host_memory_bytes: Bytes | None = None
    """RAM of one node."""
    nvme_memory_bytes: Bytes | None = None
    """NVMe of one node."""


class Speed(Spec):
    """Rates of the GPU and its links. What is null is not known, and then not timed."""

    peak_flops_per_s: Rate | None = None
    mfu: Annotated[float, Field(gt=0, le=1)] = 0.35
    """Share of peak that compute is assumed to reach, for the upper bound."""
    link_bytes_per_s: Rate | None = None
    """Nominal rate of a GPU's links inside its node, one direction."""
    ring_bytes_per_s: Rate | None = None
    """Bus bandwidth of a ring inside the node, as nccl-tests prints it."""
    network_bytes_per_s: Rate | None = None
    """Line rate of all NICs of one node, one direction."""
    network_efficiency: Annotated[float, Field(gt=0, le=1)] = 1.0
    host_bytes_per_s: Rate | None = None
    """Between one GPU and its host, one direction."""
    host_node_bytes_per_s: Rate | None = None
    """Between all GPUs of one node and its host, where they share links; one direction."""
    nvme_bytes_per_s: Rate | None = None
    """All drives of one node, reading."""
    nvme_write_bytes_per_s: Rate | None = None
    """The same, writing; null where it is the same rate."""
    cpu_adam_params_per_s: Rate | None = None
    """Parameters that one node's CPUs update per second."""
    dram_bytes_per_s: Rate | None = None
    """Host memory of one node, read and written: no update there is quicker."""
    latency_s: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Of one hop of a collective."""
    tokens: Tokens15 | None = None
    """Tokens of the whole run."""
    origins: Annotated[dict[str, str], Field(exclude=True)] = {}


class Job(Spec):
    """Everything an estimate depends on, each value with its origin in `origins`."""

    model: ModelSpec
    precision: Precision
    optimizer: OptimizerSpec
    parallelism: Parallelism
    strategy: str = "zero3"
    framework: str = "paper"
    settings: dict[str, Any] = {}
    """The framework's own knobs, by their own names."""
    offload: Offload = Offload()
    workload: Workload = Workload()
    machine: Machine = Machine()
    speed: Speed | None = None
    also: tuple[ModelSpec, ...] = ()
    """Further models on the same GPUs."""
    origins: dict[str, str] = {}
    """Where each value came from: `flag`, `file:…`, `preset:…` or `default`, by its dotted path."""
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


WHAT_RESERVE_COVERS = "CUDA context, communication buffers and allocator fragmentation"
"""What a reserve is kept free for: it is in no term."""
SECTION_WORDS = {
    ("model", "name"): "model",
    ("precision", "name"): "precision",
    ("optimizer", "name"): "optimizer",
    ("optimizer", "bytes_per_param"): "optimizer_bytes_per_param",
    ("offload", "optimizer"): "offload_optimizer",
    ("offload", "params"): "offload_params",
}
"""Fields whose word in flags and JSON is not the field's own name."""
