"""Element types of a job as PyTorch's wrappers have them: at rest, gathered for computing, reduced."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zerocalc.writers.common import given_settings, refuse_extra_copies, refused

if TYPE_CHECKING:
    from zerocalc.specs.job import Job

TORCH_NAMES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_NONE = "none"


class TorchTypes(NamedTuple):
    """Where master weights exist, PyTorch rests in them and computes in the parameters' type."""

    storage: str
    compute: str
    reduce: str

    @property
    def casts(self) -> bool:
        """Whether parameters are computed with in another type than they rest in."""
        return self.storage != self.compute


def torch_types(job: Job, tool: str) -> TorchTypes:
    """The job's types; in framework pytorch its own settings and defaults decide.

    Raises UsageError for types that no PyTorch wrapper holds.
    """
    refuse_extra_copies(job, tool)
    precision, settings = job.precision, given_settings(job)
    if precision.master_dtype == precision.param_dtype:
        raise refused(
            tool,
            f"master weights in {precision.master_dtype} beside parameters in the same type",
            can="--emit deepspeed",
        )
    storage = settings.get("storage_dtype") or precision.master_dtype or precision.param_dtype
    mixed = precision.master_dtype is not None
    if job.framework == "pytorch":
        origin = job.origins.get("reduce_dtype", "default")
        asked = None if origin.startswith(("default", "preset")) else precision.reduce_dtype
        compute = _known(settings.get("param_dtype") or (precision.param_dtype if mixed else _NONE), storage)
        reduce = _known(settings.get("reduce_dtype") or asked or ("fp32" if mixed else _NONE), compute)
    else:
        compute, reduce = precision.param_dtype, precision.reduce_dtype
    _refuse_others(
        job, tool, storage, {"parameters": compute, "gradients on the wire": reduce, "storage": storage}
    )
    return TorchTypes(storage, compute, reduce)


def whole_types(job: Job, tool: str) -> tuple[TorchTypes, bool]:
    """Types under plain data parallelism, which holds one copy and reduces it as it is; and whether autocast is on."""
    types = torch_types(job, tool)
    autocast = given_settings(job).get("autocast", False) or (types.casts and job.framework == "pytorch")
    if types.casts and not autocast:
        raise refused(
            tool,
            f"ddp with weights in {types.compute} beside {types.storage} master weights: its DDP keeps one copy",
            can="--framework deepspeed and --emit deepspeed (stage 0), or --precision fp32",
        )
    if job.framework == "paper" and types.reduce != types.storage:
        raise refused(
            tool,
            f"ddp with gradients reduced in {types.reduce}: its DDP sends them as they are",
            can="--emit deepspeed",
        )
    return types, autocast


def _known(dtype: str, otherwise: str) -> str:
    return otherwise if dtype == _NONE else dtype


def _refuse_others(job: Job, tool: str, storage: str, types: dict[str, str]) -> None:
    for what, dtype in types.items():
        if dtype not in TORCH_NAMES:
            raise refused(tool, f"{what} in {dtype}", can="give --precision mixed-bf16, fp32 or bf16-pure")
    moments = given_settings(job).get("storage_dtype") or job.precision.moment_dtype
    if moments != storage:
        raise refused(
            tool,
            f"moments in {moments} beside weights in {storage}: PyTorch keeps them in the weights' type",
            can="--emit deepspeed has bf16_optimizer_states, for precision bf16-master-states",
        )
    if job.framework == "paper" and job.precision.grad_dtype not in (types["parameters"], storage):
        raise refused(
            tool,
            f"gradients in {job.precision.grad_dtype}",
            can="--emit deepspeed has data_types.grad_accum_dtype",
        )


def refuse_partial_offload(job: Job, tool: str) -> bool:
    """Whether everything is offloaded to the host. Raises UsageError for what FSDP cannot do: a part, or NVMe."""
    offload = (job.offload.optimizer, job.offload.params)
    if offload not in {("none", "none"), ("cpu", "cpu")}:
        raise refused(
            tool,
            f"optimizer states on {offload[0]}, parameters on {offload[1]}: FSDP offloads both to cpu, or nothing",
            can="--emit deepspeed, or give --offload-optimizer cpu --offload-params cpu",
        )
    return offload == ("cpu", "cpu")


def refuse_fsdp1(job: Job, tool: str) -> None:
    """Raise UsageError where the answer is that of FullyShardedDataParallel."""
    if given_settings(job).get("fsdp_version", 2) == 1:
        raise refused(tool, "fsdp_version 1", can="--emit accelerate, or leave fsdp_version at 2")
