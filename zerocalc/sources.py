"""Every citation once. Formulas, settings and presets name a key; only this table holds the text."""

from __future__ import annotations

from typing import NamedTuple


class Source(NamedTuple):
    """Where a fact comes from: what it is called, which part of it, and where to read it."""

    title: str
    section: str
    url: str


_ZERO = "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"
_ZERO_URL = "https://arxiv.org/abs/1910.02054"
_OFFLOAD = "ZeRO-Offload: Democratizing Billion-Scale Model Training"
_OFFLOAD_URL = "https://arxiv.org/abs/2101.06840"
_INFINITY = "ZeRO-Infinity: Breaking the GPU Memory Wall for Extreme Scale Deep Learning"
_INFINITY_URL = "https://arxiv.org/abs/2104.07857"
_ZEROPP = "ZeRO++: Extremely Efficient Collective Communication for Giant Model Training"
_ZEROPP_URL = "https://arxiv.org/abs/2306.10209"

SOURCES: dict[str, Source] = {
    "zero-stages": Source(_ZERO, "section 5 and table 1", _ZERO_URL),
    "zero-r": Source(_ZERO, "sections 6 and 8", _ZERO_URL),
    "ring": Source(
        "NCCL tests: performance reported by the tests",
        "bus bandwidth",
        "https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md",
    ),
    "zero-offload": Source(_OFFLOAD, "sections 3 and 4", _OFFLOAD_URL),
    "zero-infinity-memory": Source(_INFINITY, "section 3, equations 1 to 5", _INFINITY_URL),
    "zero-infinity-bandwidth": Source(_INFINITY, "section 4, equations 6 to 11", _INFINITY_URL),
    "zero-infinity-centric": Source(_INFINITY, "section 6.1", _INFINITY_URL),
    "zeropp": Source(_ZEROPP, "section 3", _ZEROPP_URL),
    "korthikanti-memory": Source(
        "Reducing Activation Recomputation in Large Transformer Models",
        "sections 4.1 to 4.3 and table 2",
        "https://arxiv.org/abs/2205.05198",
    ),
    "korthikanti-pipeline": Source(
        "Reducing Activation Recomputation in Large Transformer Models",
        "section 4.2.3 and appendix B",
        "https://arxiv.org/abs/2205.05198",
    ),
    "measured-activations": Source(
        "zerocalc measurements: activations of transformers models traced in PyTorch",
        "section 7",
        "tests/data/measured/activations.json",
    ),
    "liger": Source(
        "Liger-Kernel benchmark data",
        "benchmark/data/all_benchmark_data.csv, A100 80 GB",
        "https://github.com/linkedin/Liger-Kernel/blob/main/benchmark/data/all_benchmark_data.csv",
    ),
    "low-bit-optimizers": Source(
        "bitsandbytes and torchao low-bit optimizers",
        "block-wise states",
        "https://github.com/pytorch/ao/tree/main/torchao/optim",
    ),
    "adafactor": Source(
        "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost",
        "section 3",
        "https://arxiv.org/abs/1804.04235",
    ),
    "megatron-optimizer": Source(
        "Megatron-LM: distributed optimizer",
        "bytes per parameter",
        "https://github.com/NVIDIA/Megatron-LM/blob/main/docs/user-guide/features/dist_optimizer.md",
    ),
    "megatron-buffers": Source(
        "Megatron-LM: parameter layout of the distributed optimizer",
        "megatron/core/optimizer/param_layout.py",
        "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/optimizer/param_layout.py",
    ),
    "megatron-schedule": Source(
        "Megatron-LM: pipeline schedules",
        "get_pp_rank_microbatches, megatron/core/pipeline_parallel/schedules.py",
        "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/pipeline_parallel/schedules.py",
    ),
    "transformer-engine": Source(
        "TransformerEngine: weight gradients fused into Megatron's main gradients",
        "get_dummy_wgrad, transformer_engine/pytorch/module/base.py",
        "https://github.com/NVIDIA/TransformerEngine/blob/main/transformer_engine/pytorch/module/base.py",
    ),
    "cublas-workspace": Source(
        "PyTorch: CUDA semantics",
        "cuBLAS workspaces",
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#cublas-workspaces",
    ),
    "torch-ddp": Source(
        "PyTorch: DistributedDataParallel and its reducer",
        "torch/nn/parallel/distributed.py, 2.13",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
    "torch-adamw": Source(
        "PyTorch: AdamW",
        "torch/optim/adamw.py, 2.13",
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html",
    ),
    "torch-fsdp1": Source(
        "PyTorch: FullyShardedDataParallel",
        "torch/distributed/fsdp/_flat_param.py, 2.13",
        "https://docs.pytorch.org/docs/stable/fsdp.html",
    ),
    "torch-fsdp2": Source(
        "PyTorch: fully_shard",
        "torch/distributed/fsdp/_fully_shard, 2.13",
        "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
    ),
    "zero-offload-adam": Source(_OFFLOAD, "section 5 and table 4", _OFFLOAD_URL),
    "cpu-adam-roofline": Source(
        "Derived: bytes of host memory that one Adam update reads and writes",
        "gradient, parameter, two moments in fp32 read; parameter and moments written",
        "https://github.com/deepspeedai/DeepSpeed/blob/master/csrc/adam/cpu_adam_impl.cpp",
    ),
    "fsdp2-offload": Source(
        "PyTorch: fully_shard with CPUOffloadPolicy",
        "torch/distributed/fsdp/_fully_shard/_fsdp_param.py, all_gather_inputs",
        "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
    ),
    "deepspeed-offload": Source(
        "DeepSpeed: ZeRO stage 3",
        "runtime/zero/stage3.py, partition_grads",
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage3.py",
    ),
    "deepspeed-twinflow": Source(
        "DeepSpeed: ZeRO-Offload++ with Twin-Flow",
        "offload_optimizer.ratio",
        "https://github.com/deepspeedai/DeepSpeed/tree/master/blogs/deepspeed-offloadpp",
    ),
    "deepspeed-nvme": Source(
        "DeepSpeed: swapping tensors to NVMe",
        "runtime/swap_tensor",
        "https://github.com/deepspeedai/DeepSpeed/tree/master/deepspeed/runtime/swap_tensor",
    ),
    "alpha-beta": Source(
        "Optimization of Collective Communication Operations in MPICH",
        "sections 4.1 to 4.5: ring, recursive halving and doubling",
        "https://doi.org/10.1177/1094342005051521",
    ),
    "double-tree": Source(
        "Massively Scale Your Deep Learning Training with NCCL 2.4",
        "double binary trees",
        "https://developer.nvidia.com/blog/massively-scale-deep-learning-training-nccl-2-4/",
    ),
    "scaling-flops": Source(
        "Scaling Laws for Neural Language Models",
        "section 2.1 and table 1",
        "https://arxiv.org/abs/2001.08361",
    ),
    "torchtitan-flops": Source(
        "torchtitan: FLOPs per token",
        "torchtitan/models/utils.py",
        "https://github.com/pytorch/torchtitan/blob/main/torchtitan/models/utils.py",
    ),
    "derived-crossover": Source(
        "Derived: bytes sent against FLOPs done per parameter",
        "from the ring (nccl-tests) and two FLOPs per parameter and token",
        "https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md",
    ),
    "deepspeed-engine": Source(
        "DeepSpeed: the engine, stage 0",
        "runtime/engine.py, 0.19",
        "https://github.com/deepspeedai/DeepSpeed/blob/v0.19.6/deepspeed/runtime/engine.py",
    ),
    "deepspeed-stage12": Source(
        "DeepSpeed: ZeRO stages 1 and 2",
        "runtime/zero/stage_1_and_2.py, 0.19",
        "https://github.com/deepspeedai/DeepSpeed/blob/v0.19.6/deepspeed/runtime/zero/stage_1_and_2.py",
    ),
    "deepspeed-stage3": Source(
        "DeepSpeed: ZeRO stage 3",
        "runtime/zero/stage3.py and partition_parameters.py, 0.19",
        "https://github.com/deepspeedai/DeepSpeed/blob/v0.19.6/deepspeed/runtime/zero/stage3.py",
    ),
    "deepspeed-zeropp": Source(
        "DeepSpeed: hpZ, a secondary partition per node",
        "runtime/zero/partition_parameters.py, 0.19",
        "https://github.com/deepspeedai/DeepSpeed/blob/v0.19.6/deepspeed/runtime/zero/partition_parameters.py",
    ),
    "deepspeed-estimator": Source(
        "DeepSpeed: memory estimators",
        "estimate_zero2_model_states_mem_needs and estimate_zero3_model_states_mem_needs",
        "https://github.com/deepspeedai/DeepSpeed/blob/v0.19.6/deepspeed/runtime/zero/stage3.py",
    ),
    "measured-torch": Source(
        "zerocalc measurements: steps of small and of traced models in PyTorch",
        "peaks by phase",
        "tests/data/measured/torch/runs.json",
    ),
}
