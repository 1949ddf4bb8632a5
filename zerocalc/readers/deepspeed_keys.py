"""Every key of a DeepSpeed configuration: 0.19's own list, the old names still read, and what each does to bytes."""

from __future__ import annotations

from zerocalc.readers.keys import Key, Table

_Z = "zero_optimization"


def _zero(name: str, kind: str, default: object, *aliases: str, note: str = "") -> Key:
    """A modelled setting of `zero_optimization`, handed on under its own name."""
    paths = tuple(f"{_Z}.{alias}" for alias in aliases)
    return Key(f"{_Z}.{name}", kind, "modelled", f"settings.{name}", paths, default, note=note)  # type: ignore[arg-type]


def _stage3(name: str, kind: str, default: object, *aliases: str) -> Key:
    """A stage-3 setting, also valid without its prefix."""
    return _zero(f"stage3_{name}", kind, default, name, *aliases)


def _unmodelled(path: str, note: str, *, neutral: tuple[object, ...] | None = None) -> Key:
    row = Key(path, "any", "unmodelled", note=note)
    return row if neutral is None else Key(path, "any", "unmodelled", neutral=neutral, note=note)


def _inert(section: str, *names: str) -> list[Key]:
    return [Key(f"{section}.{name}" if section else name) for name in names]


BATCH = (
    Key("train_batch_size", "positive", "modelled", "totals.global_batch"),
    Key("train_micro_batch_size_per_gpu", "positive", "modelled", "micro_batch"),
    Key("gradient_accumulation_steps", "positive", "modelled", "grad_accum"),
)

PRECISION = (
    Key("fp16.enabled", "bool", "modelled", default=False),
    Key("fp16.fp16_master_weights_and_grads", "bool", "modelled", "settings.fp16_master_weights_and_grads", default=False),
    _unmodelled("fp16.auto_cast", "inputs are cast to fp16"),
    *_inert("fp16", "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "min_loss_scale"),
    *_inert("fp16", "consecutive_hysteresis", "opt_level"),
    Key("bf16.enabled", "bool", "modelled", aliases=("bfloat16.enabled",), default=False),
    Key(
        "bf16.bf16_master_weights_and_grads", "bool", "modelled", "settings.bf16_master_weights_and_grads",
        aliases=("bfloat16.bf16_master_weights_and_grads",), default=False,
    ),
    Key("bf16.bf16_optimizer_states", "bool", "modelled", "settings.bf16_optimizer_states", default=False),
    Key("bf16.immediate_grad_update", "bool", note="default true up to 0.17, false since"),
    *_inert("bf16", "check_grad_overflow", "check_overflow", "loss_scale", "initial_scale_power", "loss_scale_window"),
    *_inert("bf16", "hysteresis", "min_loss_scale", "auto_cast"),
    _unmodelled("amp", "Apex AMP keeps its own copies"),
    _unmodelled("torch_autocast", "weights stay as they are and are cast per operation"),
    Key("data_types.grad_accum_dtype", "dtype", "modelled", "settings.grad_accum_dtype"),
    Key("communication_data_type", "dtype", "modelled", "settings.communication_data_type"),
    Key("fp32_allreduce", "bool", "modelled", default=False, note="before 0.5: communication_data_type fp32"),
    _unmodelled("seq_parallel_communication_data_type", "sequence-parallel traffic", neutral=("fp32", "float32", None)),
    _unmodelled("sparse_gradients", "embedding gradients are sent sparse"),
)  # fmt: skip

ZERO = (
    Key(f"{_Z}.stage", "count", "modelled", default=0),
    _zero("reduce_bucket_size", "count", 500_000_000),
    _zero("allgather_bucket_size", "count", 500_000_000),
    Key("allgather_size", "count", note="read only in the form of 2020, beside `zero_optimization: true`"),
    _zero("parameter_alignment", "bool", False),
    _zero("overlap_comm", "bool", None, note="default: true at stage 3, false below"),
    _zero("contiguous_gradients", "bool", True),
    _zero("reduce_scatter", "bool", True),
    _zero("use_multi_rank_bucket_allreduce", "bool", True),
    _zero("allgather_partitions", "bool", True),
    _zero("sub_group_size", "count", 1_000_000_000),
    _zero("round_robin_gradients", "bool", False),
    _stage3("prefetch_bucket_size", "count", 50_000_000),
    _stage3("param_persistence_threshold", "count", 100_000),
    _stage3("model_persistence_threshold", "count", 2**63 - 1),
    _stage3("max_live_parameters", "count", 1_000_000_000),
    _stage3("max_reuse_distance", "integer", 1_000_000_000),
    _zero("zero_hpz_partition_size", "count", 1),
    _zero("zero_quantized_weights", "bool", False),
    _zero("zero_quantized_gradients", "bool", False),
    _zero("zero_quantized_nontrainable_weights", "bool", False),
    Key(f"{_Z}.mics_shard_size", "degree", "modelled", default=-1),
    _unmodelled(f"{_Z}.mics_hierarchical_params_gather", "gathers in two levels"),
    _unmodelled(f"{_Z}.zeropp_loco_param", "error-feedback buffers"),
    _unmodelled(f"{_Z}.zenflow", "keeps selected gradients on the GPU"),
    _unmodelled(f"{_Z}.stage3_module_granularity_threshold", "gathers whole small modules"),
    _unmodelled(f"{_Z}.module_granularity_threshold", "gathers whole small modules"),
    _unmodelled(f"{_Z}.stage3_use_all_reduce_for_fetch_params", "parameters are fetched by all-reduce"),
    _unmodelled(f"{_Z}.use_all_reduce_for_fetch_params", "parameters are fetched by all-reduce"),
    _unmodelled(f"{_Z}.leaf_module", "leaf modules are gathered whole"),
    _unmodelled(f"{_Z}.legacy_stage1", "the stage 1 of 2020"),
    _unmodelled(f"{_Z}.memory_efficient_linear", "linear layers save more for backward", neutral=(True, "true", None)),
    _unmodelled(f"{_Z}.coalesce_grad_reduction", "reduces gradients once at the end"),
    _unmodelled(f"{_Z}.sdma_allgather", "gathers through another engine"),
    *_inert(_Z, "load_from_fp32_weights", "elastic_checkpoint", "ignore_unused_parameters", "override_module_apply"),
    *_inert(_Z, "pipeline_loading_checkpoint", "log_trace_cache_warnings", "enable_sanity_checks"),
    *_inert(_Z, "save_muon_momentum_buffer_in_memory", "stage3_allgather_sequential", "allgather_sequential"),
    Key(
        f"{_Z}.stage3_gather_16bit_weights_on_model_save",
        aliases=tuple(
            f"{_Z}.{name}" for name in (
                "gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save",
                "gather_fp16_weights_on_model_save",
            )
        ),
        note="gathers when a checkpoint is saved, not in a step",
    ),
)  # fmt: skip

OFFLOAD = (
    Key(f"{_Z}.offload_optimizer.device", "device", "modelled", default="none"),
    _zero("offload_optimizer.ratio", "number", 1.0),
    _zero("offload_optimizer.pin_memory", "bool", True, note="default false up to 0.19.4, true since 0.19.5"),
    _zero("offload_optimizer.buffer_count", "count", 4),
    *_inert(f"{_Z}.offload_optimizer", "nvme_path", "pipeline_read", "pipeline_write", "pipeline", "fast_init"),
    *_inert(f"{_Z}.offload_optimizer", "cpuadam_cores_perc"),
    _unmodelled(f"{_Z}.offload_optimizer.super_offload", "overlaps with its own buffers"),
    _unmodelled(f"{_Z}.offload_optimizer.buffer_size", "not a key of this section", neutral=(None,)),
    Key(f"{_Z}.offload_param.device", "device", "modelled", default="none"),
    _zero("offload_param.pin_memory", "bool", True, note="default false up to 0.19.4, true since 0.19.5"),
    _zero("offload_param.buffer_count", "count", 5),
    _zero("offload_param.buffer_size", "count", 100_000_000),
    _zero("offload_param.max_in_cpu", "count", 1_000_000_000),
    *_inert(f"{_Z}.offload_param", "nvme_path", "pipeline_read", "pipeline_write"),
    Key(f"{_Z}.cpu_offload", "bool", "modelled", default=False, note="before 0.3.15: offload_optimizer to cpu"),
    Key(
        f"{_Z}.cpu_offload_param", "bool", "modelled", aliases=(f"{_Z}.cpu_offload_params",), default=False,
        note="before 0.3.15: offload_param to cpu",
    ),
    Key(f"{_Z}.cpu_offload_use_pin_memory", "bool", "modelled", default=False),
)  # fmt: skip

PARALLEL = (
    Key("tensor_parallel.autotp_size", "count", "modelled", default=0),
    Key("tensor_parallel.tp_size", "count", "modelled", aliases=("tensor_parallel.tp.tp_size",)),
    Key("tensor_parallel.tensor_parallel.tp_size", "count", "modelled"),
    *_inert("tensor_parallel", "dtype", "tp_overlap_comm", "injection_policy_tuple", "partition_config"),
    *_inert(
        "tensor_parallel",
        "preset_model",
        "keep_module_on_host",
        "replace_with_kernel_inject",
        "tp_grain_size",
    ),
    Key("sequence_parallel_size", "positive", "modelled", "cp", default=1),
    Key("pipeline.stages", "positive", "modelled", aliases=("pipeline.pipeline_parallel_size",)),
    *_inert("pipeline", "partition", "seed_layers", "use_reentrant"),
    Key("pipeline.activation_checkpoint_interval", "count", "modelled"),
    _unmodelled("pipeline.pipe_partitioned", "partitions what stages exchange"),
    _unmodelled("pipeline.grad_partitioned", "partitions what stages exchange"),
    Key("pipeline.*"),
    _unmodelled("expert_parallel", "expert groups"),
)

_A = "activation_checkpointing"
ACTIVATIONS = (
    Key(f"{_A}.partition_activations", "bool", "modelled", "settings.partition_activations", default=False),
    Key(f"{_A}.cpu_checkpointing", "bool", "modelled", "settings.cpu_checkpointing", default=False),
    _unmodelled(f"{_A}.contiguous_memory_optimization", "checkpoints get one preallocated buffer"),
    *_inert(_A, "number_checkpoints", "synchronize_checkpoint_boundary", "profile", "use_reentrant"),
)

OPTIMIZER = (
    Key("optimizer.type", "text", "modelled"),
    Key("optimizer.params.momentum", "number", "modelled"),
    Key("optimizer.params.torch_adam", "bool", "modelled"),
    Key("optimizer.params.*"),
    *_inert("optimizer", "legacy_fusion"),
    *_inert(
        "", "scheduler", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "gradient_clipping"
    ),
)

OTHERS = (
    *_inert(
        "", "steps_per_print", "wall_clock_breakdown", "dump_state", "memory_breakdown", "prescale_gradients"
    ),
    *_inert("", "gradient_predivide_factor", "gradient_allreduce_op", "disable_allgather", "vocabulary_size"),
    *_inert("", "checkpoint", "load_universal_checkpoint", "use_node_local_storage", "dataloader_drop_last"),
    *_inert("", "managed_gradient_accumulation", "graph_harvesting", "use_data_before_expert_parallelism"),
    *_inert(
        "", "tensorboard", "wandb", "csv_monitor", "comet", "monitor_config", "comms_logger", "flops_profiler"
    ),
    *_inert(
        "", "aio", "nebula", "compile", "timers", "log_level", "eigenvalue", "autotuning", "datastates_ckpt"
    ),
    *_inert("", "train_steps", "seed", "disable_fused_adam"),
    _unmodelled("hybrid_engine", "inference containers share the GPU"),
    _unmodelled("elasticity", "chooses the batch size itself"),
    _unmodelled("curriculum_learning", "shortens sequences"),
    _unmodelled("data_efficiency", "shortens sequences or drops tokens"),
    _unmodelled("random_ltd", "drops tokens"),
    _unmodelled("progressive_layer_drop", "skips layers"),
    _unmodelled("compression_training", "quantizes or prunes weights"),
    _unmodelled("quantize_training", "quantizes weights"),
    _unmodelled("weight_quantization", "quantizes weights"),
    _unmodelled("sparse_attention", "attention keeps fewer scores"),
)

KEYS = Table(BATCH, PRECISION, ZERO, OFFLOAD, PARALLEL, ACTIVATIONS, OPTIMIZER, OTHERS)
