"""Every key of a torchtitan job file, in its present home with the older ones, and torchtitan's models by flavor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.readers.keys import Key, Table

if TYPE_CHECKING:
    from zerocalc.readers.convert import Kind

P, T, E, A = "parallelism", "training", "experimental", "activation_checkpoint"


def _degree(name: str, *older: str, to: str = "", kind: Kind = "degree") -> Key:
    """A key of `[parallelism]` that earlier releases kept in `[experimental]` or `[training]`."""
    homes = (f"{E}.{name}", f"{T}.{name}", *older)
    return Key(f"{P}.{name}", kind, "modelled", to, homes)


def _inert(section: str, names: str) -> tuple[Key, ...]:
    return tuple(Key(f"{section}.{name}" if section else name) for name in names.split())


def _unmodelled(path: str, note: str, *aliases: str) -> Key:
    return Key(path, "any", "unmodelled", aliases=aliases, note=note)


PARALLELISM = (
    _degree("data_parallel_shard_degree", f"{T}.data_parallel_degree"),
    _degree("data_parallel_replicate_degree"),
    _degree("data_parallel_type", kind="text"),
    _degree("tensor_parallel_degree", f"{T}.sequence_parallel_degree"),
    _degree("pipeline_parallel_degree"),
    _degree("context_parallel_degree"),
    _degree("expert_parallel_degree"),
    _degree("expert_tensor_parallel_degree"),
    _degree("fsdp_reshard_after_forward", "data_parallel.reshard_after_forward_policy", kind="text"),
    Key(f"{P}.pipeline_parallel_schedule", "text", "modelled", aliases=(f"{E}.pipeline_parallel_schedule",)),
    Key(f"{P}.pipeline_parallel_microbatch_size", "positive", "modelled"),
    Key(f"{P}.pipeline_parallel_microbatches", "positive", "modelled", aliases=(f"{E}.pipeline_parallel_microbatches",)),
    _unmodelled(f"{P}.pipeline_parallel_split_points", "stages cut by hand", f"{E}.pipeline_parallel_split_points"),
    _unmodelled(f"{P}.module_fqns_per_model_part", "stages cut by hand"),
    _unmodelled(f"{P}.pipeline_parallel_layers_per_stage", "stages cut by hand"),
    _unmodelled(f"{P}.disable_loss_parallel", "logits are gathered", f"{T}.disable_loss_parallel"),
    *_inert(P, "enable_async_tensor_parallel enable_tp2ep pipeline_parallel_* context_parallel_* expert_parallel_*"),
    *_inert(E, "enable_async_tensor_parallel expert_parallel_mode custom_args_module custom_import torch_spmd "
               "reorder_* context_parallel_* pipeline_parallel_*"),
    *_inert(T, "enable_async_tensor_parallel"),
)  # fmt: skip

TRAINING = (
    Key(f"{T}.local_batch_size", "positive", "modelled", "micro_batch", (f"{T}.batch_size",)),
    Key(f"{T}.global_batch_size", "degree", "modelled"),
    Key(f"{T}.gradient_accumulation_steps", "positive", "modelled", "grad_accum"),
    Key(f"{T}.seq_len", "positive", "modelled", "seq_len"),
    Key(f"{T}.dtype", "dtype", "modelled"),
    Key(f"{T}.mixed_precision_param", "dtype", "modelled"),
    Key(f"{T}.mixed_precision_reduce", "dtype", "modelled"),
    Key(f"{T}.enable_cpu_offload", "bool", "modelled"),
    _unmodelled(f"{T}.enable_float8_linear", "matrix products in 8 bits", "float8.enable_float8_linear"),
    _unmodelled(f"{T}.fp8_linear", "matrix products in 8 bits", f"{T}.enable_fp8_linear", f"{T}.fp8_linear_type"),
    _unmodelled(f"{T}.enable_fsdp_fp8_all_gather", "parameters are gathered in 8 bits"),
    _unmodelled(f"{T}.dynamic_batch", "the batch changes from step to step"),
    *_inert(T, "dataset* data data_* steps max_norm warmup_* compile* seed gc_* deterministic checkpoint_* steps "
               "img_size guidance classif* classifer* skip_optimizer_step clear_cache_between_steps train_type test_mode "
               "debug_* freeze_* precompute_* pack_samples pad_samples mask_* cooldown_* lr_ramp_* log_* add_bos_eos "
               "aggressive_* defrag_* enable_detailed_memory_tracking enable_memory_defrag dataloader max_* dynamic_batch_* "
               "representation_type expert_orthogonality_coeff base_model_dir dropout_prob"),
)  # fmt: skip

ACTIVATION = (
    Key(f"{A}.mode", "text", "modelled"),
    Key(f"{A}.selective_ac_option", "text", "modelled"),
    _unmodelled(f"{A}.cpu_offload", "checkpoints in host memory"),
    _unmodelled(f"{A}.memory_budget", "the compiler chooses what is kept"),
    *_inert(
        A,
        "early_stop preserve_rng_state determinism_check debug visualize_* per_op_sac_* log_* selective_op_*",
    ),
    Key("activation_checkpointing.enable_ac", "bool", "modelled", aliases=(f"{T}.enable_selective_ac",)),
    *_inert("activation_checkpointing", "enable_* every_x_layer per_layer_* selective_*"),
)

OPTIMIZER = (
    Key("optimizer.name", "text", "modelled"),
    Key("optimizer.implementation", "text", "modelled"),
    Key("optimizer.fused", "bool", "modelled"),
    _unmodelled("optimizer.early_step_in_backward", "gradients are freed as they come"),
    _unmodelled("optimizer.cpu_offload", "optimizer states in host memory"),
    _unmodelled("optimizer.state_dtype", "the element type of optimizer states: say it with --optimizer or --k"),
    *(_unmodelled(f"optimizer.{kind}_optimizer", "another optimizer for some tensors")
      for kind in ("scalar", "embedding", "head", "routing", "expert")),
    Key("optimizer.*"),
)  # fmt: skip

_FLOAT8_HOMES = (
    "float8",
    "quantize.linear.float8",
    "quantize.dense.float8",
    "quantize.float8.dense",
    "quantize.linear.fp8",
)
QUANTIZE = (
    Key("model.converters", "names", "modelled", aliases=("model.handlers",)),
    *(Key(f"{home}.enable_fsdp_float8_all_gather", "bool", "modelled") for home in _FLOAT8_HOMES),
    *(Key(f"{home}.*") for home in _FLOAT8_HOMES),
    Key("quantize.*"),
    *_inert("", "mx qat"),
)

MODEL = (
    Key("model.name", "text", "modelled"),
    Key("model.flavor", "text", "modelled"),
    Key("hf_transformers.model", "text", "modelled"),
    Key("model.vocab_size", "any", "unmodelled", note="another vocabulary than the flavor's"),
    Key("model.*"),
    Key("lora.rank", "positive", "modelled", "lora_rank", ("peft.lora_rank",)),
    *_inert("lora", "*"),
    *_inert("peft", "enable_peft use_lora train_*"),
    _unmodelled("encoder", "frozen encoders are held beside the model: --also encoder:MODEL"),
    _unmodelled("fault_tolerance", "replicas exchange weights on their own"),
)

OTHERS = _inert(
    "",
    "job profiling metrics checkpoint lr_scheduler comm compile validation debug eval sampling inference dataset "
    "dataloader memory_estimation experimental.* global misc scheduler compiler liger_kernel data runtime_estimation",
)

KEYS = Table(PARALLELISM, TRAINING, ACTIVATION, OPTIMIZER, QUANTIZE, MODEL, OTHERS)

MODELS = {
    "llama": {"7b": "llama-2-7b", "13b": "llama-2-13b", "70b": "llama-2-70b"},
    "llama2": {"7b": "llama-2-7b", "13b": "llama-2-13b", "70b": "llama-2-70b"},
    "llama3": {"8b": "llama-3-8b", "70b": "llama-3-70b", "405b": "llama-3.1-405b"},
    "llama3.1": {"8b": "llama-3-8b", "70b": "llama-3-70b", "405b": "llama-3.1-405b"},
    "llama3.2": {"1b": "llama-3.2-1b", "3b": "llama-3.2-3b"},
    "deepseek_v3": {"16b": "deepseek-v2-lite", "671b": "deepseek-v3"},
    "qwen2": {"7b": "qwen2-7b", "72b": "qwen2-72b"},
    "qwen3": {
        "0.6b": "qwen3-0.6b", "4b": "qwen3-4b", "8b": "qwen3-8b", "32b": "qwen3-32b",
        "30b-a3b": "qwen3-30b-a3b", "235b-a22b": "qwen3-235b-a22b",
    },
    "gpt_oss": {"20b": "gpt-oss-20b", "120b": "gpt-oss-120b"},
    "opt": {"125m": "opt-125m"},
}  # fmt: skip
"""Model presets by torchtitan's name and flavor (lower case); what is not here is not known by its shape."""
