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
    "zero-states": Source(_ZERO, "section 3.1", _ZERO_URL),
    "zero-stages": Source(_ZERO, "section 5 and table 1", _ZERO_URL),
    "zero-volume": Source(_ZERO, "section 7", _ZERO_URL),
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
}
