"""Keys of the trainers' own files (axolotl, the Hugging Face Trainer, LLaMA-Factory), as data.

These files hold hundreds of keys that move no bytes: those are named by their beginnings.
"""

from __future__ import annotations

from zerocalc.readers.fsdp import fsdp_keys
from zerocalc.readers.keys import Key, Table

FSDP = "fsdp_config"

WORK = (
    Key("base_model", "text", "modelled", "model", aliases=("model_name_or_path", "model_name")),
    Key("model", "any", "modelled"),
    Key("sequence_len", "positive", "modelled", "seq_len",
        aliases=("max_seq_length", "max_seq_len", "cutoff_len", "max_length", "block_size", "model_max_length")),
    Key("micro_batch_size", "positive", "modelled", "micro_batch", aliases=("per_device_train_batch_size",)),
    Key("batch_size", "positive", "modelled", "totals.global_batch"),
    Key("gradient_accumulation_steps", "positive", "modelled", "grad_accum"),
    Key("gradient_checkpointing", "text", "modelled"),
    Key("disable_gradient_checkpointing", "bool", "modelled"),
    Key("optimizer", "text", "modelled", aliases=("optim",)),
)  # fmt: skip

ATTENTION = (
    Key("flash_attention", "bool", "modelled", aliases=("use_flash_attention", "use_flash_attention_2")),
    Key("sdp_attention", "bool", "modelled"),
    Key("xformers_attention", "bool", "modelled"),
    Key("eager_attention", "bool", "modelled"),
    Key("flex_attention", "bool", "modelled"),
    Key("attn_implementation", "text", "modelled", aliases=("attention", "flash_attn")),
    Key("s2_attention", "bool", "unmodelled", note="shifted sparse attention"),
)

BYTES = (
    Key("bf16", "text", "modelled"),
    Key("fp16", "text", "modelled"),
    Key("bfloat16", "bool", "modelled"),
    Key("float16", "bool", "modelled"),
    Key("pure_bf16", "bool", "modelled"),
    Key("fp8", "bool", "modelled"),
    Key("tf32"),
    Key("torch_dtype", "text", "modelled", aliases=("dtype",)),
    Key("load_in_8bit", "bool", "modelled"),
    Key("load_in_4bit", "bool", "modelled"),
    Key("quantization_bit", "positive", "modelled", aliases=("quant_config.quantization_bit",)),
    Key("adapter", "text", "modelled", aliases=("finetuning_type", "peft_config.name")),
    Key("use_peft", "bool", "modelled"),
    Key("lora_r", "count", "modelled", aliases=("lora_rank", "peft_config.r")),
    Key("lora_target_modules", "any", "modelled", aliases=("lora_target", "peft_config.target_modules")),
    Key("lora_target_linear", "bool", "modelled"),
    Key("lora_modules_to_save", "any", "unmodelled", note="modules trained in full beside the adapters"),
    Key("lora_target_parameters", "any", "unmodelled", note="adapters on expert tensors"),
    Key("unfrozen_parameters", "any", "unmodelled", note="say the share with --trainable"),
    Key("quantize_moe_experts", "bool", "unmodelled", note="experts in 4 bits"),
    Key("gptq", "bool", "unmodelled", note="weights in 4 bits"),
    Key("activation_offloading", "any", "unmodelled", note="activations in host memory"),
    Key("embeddings_skip_upcast", "bool"),
)

PARALLEL = (
    Key("fsdp", "any", "modelled"),
    Key("fsdp_version", "positive", "modelled"),
    Key("deepspeed", "any", "modelled"),
    Key("tensor_parallel_size", "positive", "modelled", "tp"),
    Key("tensor_model_parallel_size", "positive", "modelled", "tp"),
    Key("pipeline_model_parallel_size", "positive", "modelled", "pp"),
    Key("use_distributed_optimizer", "bool", "modelled"),
    Key("recompute_granularity", "text", "modelled"),
    Key("sequence_parallel", "bool", "modelled", "sequence_parallel"),
    Key(
        "context_parallel_size",
        "positive",
        "modelled",
        "cp",
        aliases=("sequence_parallel_degree", "cp_size", "dist_config.cp_size"),
    ),
    Key(
        "expert_parallel_size",
        "positive",
        "modelled",
        "ep",
        aliases=("expert_model_parallel_size", "dist_config.ep_size"),
    ),
    Key("dist_config.name", "text", "modelled"),
    Key("dist_config.config_file", "text", "modelled"),
    Key("dist_config.*"),
    Key("peft_config.*"),
    Key("quant_config.*"),
    Key("dp_shard_size", "positive", "modelled"),
    Key("dp_replicate_size", "positive", "modelled"),
    Key("ddp", "bool", "modelled"),
    Key("ddp_bucket_cap_mb", "positive", "modelled"),
    Key("ddp_find_unused_parameters", "bool", "modelled"),
    Key("world_size", "positive", "modelled", "gpus"),
)

TRICKS = (
    Key("sample_packing", "bool"),
    Key("cut_cross_entropy", "bool", "modelled"),
    Key("chunked_cross_entropy", "bool", "modelled"),
    Key("enable_liger_kernel", "bool", "modelled", aliases=("use_liger_kernel",)),
    Key("liger_fused_linear_cross_entropy", "bool", "modelled"),
    Key("tiled_mlp", "bool", "unmodelled", note="MLP activations in tiles"),
    Key("unsloth_*", "any", "unmodelled", note="fused kernels keep fewer activations"),
    Key("rl", "any", "unmodelled", note="a reference model may be held too: --also reference:MODEL"),
    Key(
        "stage",
        "any",
        "unmodelled",
        neutral=("sft", "pt", "rm"),
        note="a reference model may be held too: --also reference:MODEL",
    ),
    Key("relora_steps", "any", "unmodelled", note="merged adapters"),
    Key("lisa_n_layers", "any", "unmodelled", note="trains few layers at a time"),
    Key("optim_target_modules", "any", "unmodelled", note="low-rank optimizer states"),
    Key("qat", "any", "unmodelled", note="fake-quantized copies"),
    Key("nvfp4_training", "any", "unmodelled", note="4-bit copies"),
    Key("model_quantization_config", "any", "unmodelled", note="weights as the checkpoint stores them"),
    Key("gpu_memory_limit"),
)

_INERT_PREFIXES = """
    adam_ eval_ evals_ save_ saves_ logging_ log_ wandb_ mlflow_ comet_ swanlab_ trackio_ hub_ hf_ lr_ learning_ warmup_
    cosine_ dataset tokenizer_ special_tokens tokens lora_ peft_ loraplus_ liger_ flash_attn_ flash_optimum diffusion
    torch_compile is_ base_model_ model_ test_ val_ push_ output_ resume_ auto_resume dataloader_ sample_packing_ pad_
    loss_ chat_ pretraining_ shuffle_ early_ max_ num_ group_ remove_ unfrozen gptq_ rl_ dpo_ kto_ orpo_ ebft trl grpo
    use_ bnb_ curriculum_ noisy_ neftune_ rope_ overrides_ process_ reward_ report_ ddp_ relora_ lisa_ mm_ image_
    processor_ otel_ ray_ profiler_ include_ do_ skip_ gradient_checkpointing_ accelerator_config local_ device_map
    revision_ trust_ experts_ scattermoe expert_parallel_ streaming llmcompressor plugins plot_ preprocessing_ overwrite_
    metric_ load_best greater_ gc_ optim_ sdp_ fused_ nsa_ min_ mask_ importance_ noise_ teacher_ kd_ rm_ center_
    weight_ embedding_ added_ train_on_ strict debug seed name template role_ field_ message_ system_ eot_ data_ split
    quantize_ fp8_ per_device_eval_ run_ packing pref_ beta with_tracking checkpointing_steps keep_last_ train_dataset
    kernel_config evaluation_strategy apply_rope bias_activation overlap_ moe_ sample_ batching_ torchdistx add_bos dsv4_ spectrum_ vllm_ reinit_ fix_ experimental_ nvfp4_ math_ jinja_ ignore_ freeze_ resize_ low_cpu
"""
INERT = tuple(Key(f"{prefix}*") for prefix in _INERT_PREFIXES.split())

KEYS = Table(WORK, ATTENTION, BYTES, PARALLEL, fsdp_keys(FSDP), TRICKS, INERT)
