"""Every key of an Accelerate configuration and its plug-in sections, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.readers.fsdp import fsdp_keys
from zerocalc.readers.keys import Effect, Key, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocalc.readers.convert import Kind

FSDP, DEEPSPEED, MEGATRON, PARALLEL = (
    "fsdp_config",
    "deepspeed_config",
    "megatron_lm_config",
    "parallelism_config",
)


def _prefixed(section: str, prefix: str) -> Callable[..., Key]:
    def row(name: str, kind: Kind = "any", effect: Effect = "inert", to: str = "", note: str = "") -> Key:
        return Key(f"{section}.{name}", kind, effect, to, (f"{section}.{prefix}{name}",), note=note)

    return row


def _inert(names: str, section: str = "") -> tuple[Key, ...]:
    return tuple(Key(f"{section}.{name}" if section else name) for name in names.split())


LAUNCH = (
    Key("distributed_type", "text", "modelled"),
    Key("mixed_precision", "text", "modelled"),
    Key("num_processes", "positive", "modelled"),
    Key("num_machines", "positive", "modelled"),
    Key("gradient_accumulation_steps", "positive", "modelled", "grad_accum"),
    Key("use_cpu", "bool", "modelled"),
    Key("fp8_config", effect="unmodelled", note="which copies are kept in 8 bits"),
    Key("fp16", "bool", "modelled", note="before 0.6: mixed_precision fp16"),
    *_inert(
        "compute_environment machine_rank main_process_ip main_process_port main_training_function rdzv_backend "
        "rdzv_endpoint rdzv_conf same_network tpu_* downcast_bf16 debug gpu_ids enable_cpu_affinity mpirun_config "
        "command_file commands dynamo_config dynamo_backend ipex_config log_dir tee deepspeed_fields_from_accelerate_config "
        "ec2_instance_type iam_role_name image_uri profile region base_job_name pytorch_version transformers_version "
        "py_version sagemaker_inputs_file sagemaker_metrics_file additional_args use_mps_device max_restarts "
        "monitor_interval start_method training_function env"
    ),
)

DEEPSPEED_KEYS = (
    Key(f"{DEEPSPEED}.deepspeed_config_file", "text", "modelled", aliases=("deepspeed_config_file",)),
    Key(f"{DEEPSPEED}.zero_stage", "count", "modelled", aliases=(f"{DEEPSPEED}.stage",)),
    Key(f"{DEEPSPEED}.gradient_accumulation_steps", "positive", "modelled"),
    Key(f"{DEEPSPEED}.train_micro_batch_size_per_gpu", "positive", "modelled"),
    Key(f"{DEEPSPEED}.offload_optimizer_device", "device", "modelled"),
    Key(f"{DEEPSPEED}.offload_param_device", "device", "modelled"),
    Key(
        f"{DEEPSPEED}.deepspeed_moe_layer_cls_names",
        effect="unmodelled",
        note="leaf modules are gathered whole",
    ),
    Key(f"{DEEPSPEED}.enable_msamp", "bool", "unmodelled", note="8-bit optimizer states"),
    *_inert(
        "gradient_clipping offload_optimizer_nvme_path offload_param_nvme_path zero3_init_flag zero3_save_16bit_model "
        "deepspeed_hostfile deepspeed_exclusion_filter deepspeed_inclusion_filter deepspeed_multinode_launcher "
        "msamp_opt_level deepspeed_multinode_launcher_args",
        DEEPSPEED,
    ),
)

_megatron = _prefixed(MEGATRON, "megatron_lm_")
MEGATRON_KEYS = (
    _megatron("tp_degree", "positive", "modelled", "tp"),
    _megatron("pp_degree", "positive", "modelled", "pp"),
    _megatron("context_parallel_size", "positive", "modelled", "cp"),
    _megatron("expert_model_parallel_size", "positive", "modelled", "ep"),
    _megatron("expert_tensor_parallel_size", "positive", "modelled", "etp"),
    _megatron("num_micro_batches", "positive", "modelled", "grad_accum"),
    _megatron("sequence_parallelism", "bool", "modelled", "sequence_parallel"),
    _megatron("recompute_activations", "bool", "modelled"),
    _megatron("recompute_granularity", "text", "modelled"),
    _megatron("use_distributed_optimizer", "bool", "modelled"),
    _megatron("use_precision_aware_optimizer", "bool", "modelled", "settings.use_precision_aware_optimizer"),
    _megatron("optimizer_cpu_offload", "bool", "unmodelled", note="optimizer states in host memory"),
    _megatron("use_custom_fsdp", "bool", "unmodelled", note="Megatron's own FSDP"),
    _megatron("recompute_num_layers", "any", "unmodelled", note="only so many layers are recomputed"),
    _megatron(
        "decoder_last_pipeline_num_layers", "any", "unmodelled", note="the last stage has other layers"
    ),
    Key(f"{MEGATRON}.megatron_lm_*"),
    *_inert("gradient_clipping recompute_method", MEGATRON),
)

_parallel = _prefixed(PARALLEL, "parallelism_config_")
PARALLEL_KEYS = (
    _parallel("dp_replicate_size", "positive", "modelled"),
    _parallel("dp_shard_size", "positive", "modelled"),
    _parallel("tp_size", "positive", "modelled", "tp"),
    _parallel("cp_size", "positive", "modelled"),
    _parallel("sp_size", "positive", "modelled"),
    Key(f"{PARALLEL}.parallelism_config_*"),
    *_inert(
        "cp_backend cp_comm_strategy sp_backend sp_seq_length tp_handler cp_handler sp_handler", PARALLEL
    ),
)

KEYS = Table(LAUNCH, fsdp_keys(FSDP), DEEPSPEED_KEYS, MEGATRON_KEYS, PARALLEL_KEYS)
