"""DeepSpeed's JSON: only what is not DeepSpeed's own default. Where a setting stands, the reader's table says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from zerocalc.frameworks import framework_named
from zerocalc.frameworks.settings import resolve_settings
from zerocalc.readers.deepspeed_keys import KEYS
from zerocalc.writers.common import (
    Fragment,
    given_settings,
    group_size,
    refuse_degrees,
    refuse_extra_copies,
    refused,
    unsaid_of,
)

if TYPE_CHECKING:
    from zerocalc.specs.job import Job

TOOL = "DeepSpeed"
STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "mics": 3, "zeropp": 3}
ZERO = "zero_optimization"
NVME_PATH = "/local_nvme"
_SETTINGS = "settings."
PATHS = {row.to.removeprefix(_SETTINGS): row.path for row in KEYS.rows if row.to.startswith(_SETTINGS)}
"""Where each setting stands in the file."""

_MASTERS, _STATES = "bf16_master_weights_and_grads", "bf16_optimizer_states"
PRECISIONS: dict[tuple[str, str | None, str], dict[str, Any]] = {
    ("fp32", None, "fp32"): {},
    ("bf16", "fp32", "fp32"): {"bf16.enabled": True},
    ("fp16", "fp32", "fp32"): {"fp16.enabled": True},
    ("bf16", "bf16", "fp32"): {"bf16.enabled": True, f"bf16.{_MASTERS}": True},
    ("bf16", "bf16", "bf16"): {"bf16.enabled": True, f"bf16.{_MASTERS}": True, f"bf16.{_STATES}": True},
}
"""Keys by the types of parameters, master weights and moments."""
_DTYPES = ("fp32", "bf16", "fp16")
_ZEROPP = {
    "hpz": "zero_hpz_partition_size",
    "qwz": "zero_quantized_weights",
    "qgz": "zero_quantized_gradients",
}


def write(job: Job) -> Fragment:
    """The JSON of a job. Raises UsageError for what DeepSpeed's file cannot express."""
    refuse_degrees(job, TOOL, allowed=("tp",), can="--emit torchtitan")
    keys = {
        **_batch(job),
        **precision_keys(job, TOOL),
        **_wire(job),
        f"{ZERO}.stage": _stage(job),
        **_groups(job),
        **_offload(job),
        **_settings(job),
    }
    if job.parallelism.tp > 1:
        keys["tensor_parallel.autotp_size"] = job.parallelism.tp
    said = {word for word, key in _BATCH.items() if key in keys} | {"grad_dtype"}
    said |= {f"{_SETTINGS}{name}" for name, path in PATHS.items() if path in keys}
    said |= {f"{_SETTINGS}{name}" for name in _said_otherwise(job)}
    unsaid = unsaid_of(job, said)
    return Fragment(json.dumps(nested(keys), indent=2) + "\n", unsaid, _notes(job))


def nested(keys: dict[str, Any]) -> dict[str, Any]:
    """Dotted paths as sections within sections."""
    document: dict[str, Any] = {}
    for path, value in keys.items():
        *sections, name = path.split(".")
        place = document
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return document


_BATCH = {"micro_batch": "train_micro_batch_size_per_gpu", "grad_accum": "gradient_accumulation_steps"}


def _batch(job: Job) -> dict[str, Any]:
    work = job.workload
    if work.micro_batch is None:
        return {_BATCH["grad_accum"]: work.grad_accum} if work.grad_accum > 1 else {}
    return {_BATCH["micro_batch"]: work.micro_batch, _BATCH["grad_accum"]: work.grad_accum}


def precision_keys(job: Job, tool: str) -> dict[str, Any]:
    """The sections that turn a precision on. Raises UsageError for one that DeepSpeed does not have."""
    refuse_extra_copies(job, tool)
    precision = job.precision
    kinds = (precision.param_dtype, precision.master_dtype, precision.moment_dtype)
    if kinds not in PRECISIONS:
        master = precision.master_dtype or "no"
        raise refused(
            tool,
            f"{kinds[0]} parameters with {master} master weights and {kinds[2]} moments",
            can="--emit fsdp2 or torchtitan, which have weights of one type throughout (bf16-pure); or --precision "
            "mixed-bf16",
        )
    if precision.master_dtype == precision.param_dtype and job.strategy == "ddp":
        raise refused(tool, f"{_MASTERS} in stage 0", can="--strategy zero1, or --precision mixed-bf16")
    return PRECISIONS[kinds]


def wire_types(job: Job) -> tuple[str, str]:
    """Element types in which gradients accumulate and travel: by setting, else by the job's precision."""
    settings = given_settings(job) if job.framework == "deepspeed" else {}
    accumulated = settings.get("grad_accum_dtype") or job.precision.grad_dtype
    return accumulated, settings.get("communication_data_type") or job.precision.reduce_dtype


def _wire(job: Job) -> dict[str, Any]:
    accumulated, sent = wire_types(job)
    usual = job.precision.param_dtype
    for what, dtype in (("accumulated", accumulated), ("sent", sent)):
        if dtype not in _DTYPES:
            raise refused(TOOL, f"gradients {what} in {dtype}", can=f"give one of {', '.join(_DTYPES)}")
    keys = {} if accumulated == usual else {"data_types.grad_accum_dtype": accumulated}
    return keys if sent == accumulated == usual else {**keys, "communication_data_type": sent}


def _stage(job: Job) -> int:
    if job.strategy not in STAGES:
        raise refused(
            TOOL,
            f"{job.strategy} (its sharding groups are MiCS)",
            can="--emit fsdp2, accelerate or torchtitan; or --strategy mics",
        )
    return STAGES[job.strategy]


def _groups(job: Job) -> dict[str, Any]:
    """What makes stage 3 MiCS or ZeRO++."""
    if job.strategy == "mics":
        return {f"{ZERO}.mics_shard_size": group_size(job)}
    if job.strategy != "zeropp":
        return {}
    keys = {
        f"{ZERO}.{name}": value for name, value in _zeropp(job).items() if value is True or (value or 0) > 1
    }
    if not keys:
        raise refused(
            TOOL,
            "zeropp with its three parts off, which is zero3",
            can="set hpz, qwz or qgz, or --strategy zero3",
        )
    return keys


def _zeropp(job: Job) -> dict[str, Any]:
    """ZeRO++'s three parts; those that were not set are as the framework takes them."""
    rows = framework_named(job.framework).SETTINGS
    values, _ = resolve_settings(job.framework, rows, job.settings, job.strategy)
    parts = {name: values.get(short, values.get(name)) for short, name in _ZEROPP.items()}
    node = job.parallelism.gpus_per_node or 1
    if all(value is None for value in parts.values()):
        return dict(zip(parts, (node, True, True), strict=True))
    if job.framework == "paper" and parts["zero_hpz_partition_size"] is None:
        parts["zero_hpz_partition_size"] = node
    return parts


def _offload(job: Job) -> dict[str, Any]:
    """The two sections; NVMe needs a folder, which is DeepSpeed's own example."""
    keys: dict[str, Any] = {}
    for section, tier in (
        ("offload_optimizer", job.offload.optimizer),
        ("offload_param", job.offload.params),
    ):
        refuse_shallow_nvme(job, tier, TOOL)
        if tier != "none":
            keys[f"{ZERO}.{section}.device"] = tier
        if tier == "nvme":
            keys[f"{ZERO}.{section}.nvme_path"] = NVME_PATH
    return keys


def refuse_shallow_nvme(job: Job, tier: str, tool: str) -> None:
    """Raise UsageError for NVMe below stage 3, where DeepSpeed takes it for cpu."""
    if tier == "nvme" and STAGES.get(job.strategy, 3) < STAGES["zero3"]:
        raise refused(
            tool,
            f"{job.strategy} with nvme: below stage 3 it acts as cpu",
            can="--strategy zero3, or --offload-optimizer cpu",
        )


def _settings(job: Job) -> dict[str, Any]:
    """Given settings that have a key and act in the strategy; an offload section's where it is on."""
    tiers = {"offload_optimizer.": job.offload.optimizer, "offload_param.": job.offload.params}
    idle = [section for section, tier in tiers.items() if tier == "none"]
    rows = framework_named(job.framework).SETTINGS
    skipped = {row.name for row in rows if row.strategies and job.strategy not in row.strategies}
    skipped |= _said_otherwise(job)
    return {
        PATHS[name]: value
        for name, value in given_settings(job).items()
        if name in PATHS and name not in skipped and not name.startswith(tuple(idle))
    }


def _said_otherwise(job: Job) -> set[str]:
    """Settings that have been said by what they amount to."""
    zeropp = {*_ZEROPP, *_ZEROPP.values()} if job.strategy == "zeropp" else set()
    return zeropp | {"grad_accum_dtype", "communication_data_type"}


def _notes(job: Job) -> tuple[str, ...]:
    notes = []
    if job.workload.micro_batch is None:
        notes.append("DeepSpeed also needs train_micro_batch_size_per_gpu: give --micro-batch")
    if job.workload.checkpointing != "none":
        notes.append("whether the model checkpoints activations is decided in the training script")
    if "nvme" in (job.offload.optimizer, job.offload.params):
        notes.append(f"nvme_path {NVME_PATH} is an example: name your own folder")
    if job.strategy == "mics":
        notes.append(
            "mics_shard_size needs DeepSpeed before 0.19.8, which removed MiCS, and deepspeed.zero.MiCS_Init"
        )
    return tuple(notes)
