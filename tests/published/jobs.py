"""A row's `job` as a zerocalc job: which framework, which words, which settings. Every translation is a row of a table."""

from __future__ import annotations

import json
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import zerocalc
from zerocalc.errors import ZerocalcError
from zerocalc.presets import load_gpu, load_reserve
from zerocalc.units import parse_size

GIB = 2**30


class NotExpressibleError(Exception):
    """The row asks for something no zerocalc job can say."""


FRAMEWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "paper": ("paper", {}),
    "deepspeed": ("deepspeed", {}),
    "fsdp1": ("pytorch", {"fsdp_version": 1}),
    # The rows of FSDP2 are torchtitan's runs, of when it still wrapped layers and root alone.
    "fsdp2": ("pytorch", {"fsdp_version": 2, "selective_policy": "matmuls"}),
    "pytorch-ddp": ("pytorch", {}),
    "unsharded": ("pytorch", {}),
    "megatron": ("megatron", {}),
    "other": ("paper", {}),
}
"""Ours for each of the rows' frameworks, with the settings that go with it."""

PRECISIONS = {
    ("bf16-mixed", "fp32"): "bf16-fp32-grads",
    ("fp16-mixed", "fp16 + fp32 copy"): "zero-infinity",
    ("bf16-mixed", None): "mixed-bf16",
    ("fp16-mixed", None): "mixed-fp16",
    ("bf16-pure", None): "bf16-pure",
    ("amp-autocast", None): "fp32",
    ("fp32", None): "fp32",
    ("fp16", None): "mixed-fp16",
    (None, None): "mixed-bf16",
}
"""By precision and, where it decides, the gradients' type."""

LORA_TARGETS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj", "all linear": "all-linear"}

OPTIMIZERS = {
    None: "adamw", "adam": "adam", "adamw": "adamw", "AdamW": "adamw", "AdamW on LoRA": "adamw",
    "sgd-momentum": "sgd-momentum", "adamw8bit": "adamw8bit", "8-bit Adam": "adamw8bit", "muon": "muon",
    "paged adamw": "adamw", "DeepSpeedCPUAdam, ZeRO-2 offload": "deepspeedcpuadam",
}  # fmt: skip

ATTENTION = {
    None: "flash", "flash": "flash", "SDPA causal": "flash", "flash (module replace)": "flash", "unfused": "eager",
}  # fmt: skip

GPUS = {
    "A100": "a100-80gb", "a100_80gb": "a100-80gb", "A100 80GB PCIe": "nvidia-a100-80gb-pcie",
    "a100_40gb": "a100-40gb", "h100_80gb": "h100-80gb", "H100 96GB HBM2e": "96GB", "H200 141GB": "h200",
    "RTX 3090/4090 24GB": "rtx-3090", "RTX 3090 24GB": "rtx-3090", "RTX 3090": "rtx-3090", "A10G 24GB": "a10g",
    "Titan RTX 24GB": "24GB", "P40 24GB": "24GB", "GH200 96GB": "96GB",
}  # fmt: skip
"""Presets by the rows' names, or a size where no preset stands for the card; other names are tried as they are."""

MODELS = {
    "Llama-2-13B": "llama-2-13b", "LLaMA-7B": "llama-7b", "Qwen1.5-7B": "qwen1.5-7b", "Qwen3-32B": "qwen3-32b",
    "Qwen2.5-7B": "qwen2.5-7b", "GPT-OSS-20B": "gpt-oss-20b",
}  # fmt: skip
"""Public models that a row names without their shape: by preset where there is one."""

_LATENT_ATTENTION = {
    "model_type": "deepseek_v3", "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "tie_word_embeddings": False,
}  # fmt: skip
CONFIGS: dict[str | None, dict[str, Any]] = {
    "deepseekv2": _LATENT_ATTENTION | {"n_shared_experts": 2},
    "deepseekv3": _LATENT_ATTENTION | {"n_shared_experts": 1},
}
"""What a public model's config says beside the row's own keys."""

SETTINGS: dict[tuple[str, str], Any] = {
    ("megatron", "fused_ce"): {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"},
    ("megatron", "sequence_parallel"): "sequence_parallel",
    ("megatron", "num_layers_per_virtual_pipeline_stage"): "num_layers_per_virtual_pipeline_stage",
    ("megatron", "use_distributed_optimizer"): "use_distributed_optimizer",
    ("megatron", "overlap_grad_reduce"): "overlap_grad_reduce",
    ("megatron", "transformer_impl"): "transformer_impl",
    ("deepspeed", "reduce_bucket"): "reduce_bucket_size",
    ("deepspeed", "allgather_bucket"): "allgather_bucket_size",
    ("deepspeed", "contiguous_gradients"): "contiguous_gradients",
    ("deepspeed", "persistence_threshold"): "stage3_param_persistence_threshold",
    ("pytorch", "reduce_dtype"): "reduce_dtype",
    ("pytorch", "no_sync"): "no_sync",
    ("pytorch", "foreach"): "foreach",
    ("pytorch", "fused_optimizer"): "fused",
    ("pytorch", "gradient_as_bucket_view"): "gradient_as_bucket_view",
    ("deepspeed-estimator", "largest_layer_params"): "largest_layer_params",
    ("deepspeed-estimator", "buffer_factor"): "additional_buffer_factor",
    ("deepspeed-estimator", "zero_init"): "zero_init",
}
"""A row's setting as one of ours, or as several of ours when it is on."""

VALUES: dict[tuple[str, str], dict[Any, dict[str, Any]]] = {
    ("deepspeed", "master_dtype"): {"fp32": {}, "bf16": {"bf16_master_weights_and_grads": True}},
    **{
        ("deepspeed", name): {"fp32": {}, "bf16": {"bf16_optimizer_states": True}}
        for name in ("optimizer_states_dtype", "states_dtype", "moments_dtype", "moment_dtype")
    },
    ("pytorch", "load"): {"every rank": {"sync_module_states": False}},
    ("pytorch", "compile"): {True: {"activations": "fused-mlp"}, False: {}},
    # torchtune's configs ask for the fused AdamW.
    ("pytorch", "packed"): {key: {"fused": True} for key in (True, False)},
    # torchtune chunks and compiles the loss: only 16-bit logits and their gradient are whole.
    ("pytorch", "chunked_ce"): {True: {"loss": "fused-logits"}, False: {}},
    # Composer's words; its LLM Foundry trains with flash-attn's cross-entropy and an AdamW that goes tensor by tensor.
    ("pytorch", "mp_mode"): {key: {"loss": "fused-logits", "foreach": False} for key in ("DEFAULT", "PURE")},
    ("pytorch", "sharding"): {"FULL_SHARD": {}, "SHARD_GRAD_OP": {}},
}
"""A row's setting whose value decides which of ours follow."""

IMPLIED: dict[tuple[str, str, str], dict[str, Any]] = {
    # The `optimizer` section of a DeepSpeed file builds FusedAdam for "Adam"; "adamw" is torch's, handed over.
    ("deepspeed", "optimizer", "adam"): {"optimizer_class": "fusedadam"},
    ("deepspeed", "optimizer", "adamw"): {"optimizer_class": "adamw"},
}
"""What a word of the row says about a framework's setting."""

SILENT = frozenset(
    [
        "optimizer_bytes_per_param",
        "states_only",
        "state_bytes_per_param",
        "ckpt_interval",
        "placement",
        "distributed_optimizer",
        "global_batch_size",
        "overlap_param_gather",
        "estimator",
        "total_over_gpus",
        "printed_precision",
        "biases",
        "limit_all_gathers",
        "forward_prefetch",
        "float8",
        "optimizer_in_backward",
        "activation_offload",
        "async_tp",
        "frozen_params",
        "trainable_params",
        "frozen_rest",
        "host_ram_per_gpu_bytes ",
        "tokens",
        "method",
        "compute",
        "pp_schedule",
        "release_logits",
        "local_batch",
        "engine",
        "scattered_embeddings",
        "buffer_dtype",
        "buffer_elements",
        "op",
        "tensor",
        "dtype_bytes",
        "text_tokens",
        "zero_grad",
    ]
)
"""Settings read elsewhere, or that move no byte."""


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="published-"))


@cache
def _config_file(text: str) -> str:
    path = _folder() / f"{abs(hash(text))}" / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return str(path)


def model_text(model: dict[str, Any]) -> str | int:
    """What to pass as MODEL: a config, the papers' LxH, a preset by name, or the bare count."""
    config = CONFIGS.get(model["name"], {}) | model["config"]
    if "num_hidden_layers" in config:
        if set(config) <= {"num_hidden_layers", "hidden_size", "num_attention_heads"}:
            return f"{config['num_hidden_layers']}x{config['hidden_size']}"
        if "model_type" not in config:
            config["model_type"] = "llama" if config.get("num_key_value_heads") else "gpt2"
        if config["model_type"] == "gpt2" and config.get("num_key_value_heads"):
            # Grouped keys with LayerNorm, biases and a plain MLP: the family that has them is StarCoder 2.
            config["model_type"] = "starcoder2"
            config["residual_dropout"] = 0.1
        if config["model_type"] == "gpt2" and "num_attention_heads" not in config:
            config["num_attention_heads"] = config["hidden_size"] // 64
        return _config_file(json.dumps(config, sort_keys=True))
    if preset := MODELS.get(model["name"]):
        return preset
    if model["num_params"] is not None:
        return int(model["num_params"])
    if said := re.search(r"(\d+(?:\.\d+)?)[bB]\b", model["name"] or ""):
        return f"{said[1]}b"
    raise NotExpressibleError("no shape and no count")


def framework_of(job: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Our framework and the settings that go with it."""
    if job["settings"].get("estimator") == "deepspeed":
        return "deepspeed-estimator", {}
    return FRAMEWORKS[job["framework"]]


def settings_of(job: dict[str, Any], framework: str) -> dict[str, Any]:
    """The row's settings under our names; `untranslated` says which are left out."""
    found: dict[str, Any] = {}
    for (ours, word, value), implied in IMPLIED.items():
        if framework == ours and job[word] == value:
            found |= implied
    for name, value in job["settings"].items():
        key = (framework, name)
        if key in VALUES:
            found |= VALUES[key].get(value, {})
        elif key in SETTINGS:
            ours = SETTINGS[key]
            found |= {ours: value} if isinstance(ours, str) else (ours if value else {})
    return found


def untranslated(row: dict[str, Any]) -> list[str]:
    """The row's settings that no table knows: the answer leaves them out."""
    framework, _ = framework_of(row["job"])
    known = SILENT | {name for ours, name in (*SETTINGS, *VALUES) if ours == framework}
    return sorted(set(row["job"]["settings"]) - known)


def precision_of(job: dict[str, Any], framework: str) -> str:
    """The precision's preset. PyTorch's gradients have the type that parameters rest in."""
    if framework == "pytorch" and (job["precision"], job["grad_dtype"]) == ("bf16-mixed", "bf16"):
        return "bf16-pure"
    if job["settings"].get("state_bytes_per_param") == 20:
        return "zero-infinity"
    if framework == "megatron":
        return PRECISIONS[job["precision"], None]
    exact = PRECISIONS.get((job["precision"], job["grad_dtype"]))
    return exact or PRECISIONS[job["precision"], None]


def words_of(row: dict[str, Any], job: dict[str, Any], framework: str) -> dict[str, Any]:
    """The row as words of the command line."""
    lora = job["lora"] or {}
    work = {"micro_batch": job["micro_batch"], "seq_len": job["seq_len"]}
    if None in work.values():
        work = {}
    words = {
        "framework": framework,
        "strategy": job["strategy"] or "ddp",
        "gpus": job["gpus"] or 1,
        **{
            axis: job[axis]
            for axis in ("tp", "pp", "cp", "ep", "gpus_per_node", "grad_accum", "checkpointing")
        },
        "precision": precision_of(job, framework),
        "optimizer": OPTIMIZERS.get(job["optimizer"], "adamw"),
        "k": job["settings"].get("optimizer_bytes_per_param"),
        "offload_optimizer": job["offload_optimizer"],
        "offload_params": job["offload_params"],
        **work,
        "attention": ATTENTION[job["attention"]],
        "lora_rank": lora.get("rank"),
        "lora_targets": _lora_targets(lora) if lora.get("rank") else None,
        "frozen_dtype": lora.get("frozen_dtype") or ("nf4" if lora.get("quantized") is True else None),
        "trainable": _trainable(job),
        "host_memory": _host_memory(job),
        "nvme_memory": f"{job['nvme_bytes']}B" if job.get("nvme_bytes") else None,
        "gpu": _gpu(job),
        "reserve": _reserve(row),
    }
    return {word: value for word, value in words.items() if value is not None}


def _trainable(job: dict[str, Any]) -> str | int | None:
    """How much is trained, where that is not everything; LoRA of unknown rank trains about half a percent."""
    if job["settings"].get("trainable_params"):
        return int(job["settings"]["trainable_params"])
    return "0.5%" if job["lora"] and not job["lora"].get("rank") else None


def _host_memory(job: dict[str, Any]) -> str | None:
    per_gpu = job["settings"].get("host_ram_per_gpu_bytes ")
    size = per_gpu * (job["gpus_per_node"] or 1) if per_gpu else job.get("host_ram_bytes")
    return f"{size}B" if size else None


def _lora_targets(lora: dict[str, Any]) -> str | None:
    targets = lora.get("targets")
    names = targets if isinstance(targets, list) else [targets] if targets else []
    return ",".join(LORA_TARGETS.get(name, name) for name in names) or None


def _gpu(job: dict[str, Any]) -> str | None:
    """The capacity if the row states one, else the card by name, else the size in the card's name."""
    return f"{job['gpu_bytes']}B" if job["gpu_bytes"] is not None else _card(job)


def _card(job: dict[str, Any]) -> str | None:
    name = re.split(r" \(| \+", job["gpu"] or "")[0]
    guess = GPUS.get(name, name.lower().replace(" ", "-"))
    try:
        load_gpu(guess)
    except ZerocalcError:
        nominal = job["gpu_nominal_gb"]
        return guess if guess.endswith("GB") else f"{nominal}GB" if nominal else None
    return guess


def _reserve(row: dict[str, Any]) -> str | None:
    """A verdict about a real run keeps free what such runs need, whether or not we count more than states."""
    if (
        row["level"] == "theory"
        or row["quantity"] not in {"fits", "max_micro_batch"}
        or _gpu(row["job"]) is None
    ):
        return None
    card = _card(row["job"])
    gpu = load_gpu(card) if card and not card.endswith("GB") else None
    reserve = load_reserve(gpu.reserve if gpu else "default")
    capacity = row["job"]["gpu_bytes"] or (gpu.capacity_bytes if gpu else parse_size(card or "80GB"))
    return f"{reserve.bytes_of(capacity)}B"


def job_of(row: dict[str, Any], **changes: Any) -> zerocalc.Job:
    """The row's job, with changes of its own fields. Raises NotExpressibleError or a ZerocalcError."""
    job = row["job"] | {k: v for k, v in changes.items() if k in row["job"]}
    config = job["model"]["config"] | {k: v for k, v in changes.items() if k not in row["job"]}
    job["model"] = job["model"] | {"config": config}
    framework, implied = framework_of(job)
    settings = implied | settings_of(job, framework)
    if framework == "deepspeed-estimator" and any("4P+16P/N" in note for note in row["from_note"]):
        settings["version"] = "before-2024-06"
    if row["phase"] == "gradient accumulation" and job["grad_accum"] is None:
        job["grad_accum"] = 2
    if job["precision"] == "amp-autocast" and framework == "pytorch":
        settings["autocast"] = True
    return zerocalc.job(_model(job), settings=settings, **words_of(row, job, framework))


def _model(job: dict[str, Any]) -> str | int:
    return model_text(job["model"])


__all__ = ["GIB", "NotExpressibleError", "ZerocalcError", "job_of"]
