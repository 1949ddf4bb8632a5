"""The knobs of activations, the same in every framework.

Apart from the tables they choose from, which load only when activations are asked for; a test holds the two together.
"""

from __future__ import annotations

from zerocalc.frameworks.settings import Setting

LOSS_CHOICES = ("eager", "naive", "no-upcast", "fused-logits", "vocab-parallel", "chunked", "fused")

ACTIVATION_SETTINGS = (
    Setting(
        name="activations", kind="str", default="eager", choices=("eager", "fused", "fused-mlp", "megatron", "korthikanti"),
        doc="which kernels keep what: transformers' modules as measured, fused ones, or the papers' own equations",
    ),
    Setting(
        name="selective_policy", kind="str", default="attention", choices=("attention", "matmuls", "layers"),
        doc="what selective checkpointing computes again: the core of attention, all but every second matrix "
        "multiplication (torchtitan's op), or every selective_every-th layer whole (torchtitan's number)",
    ),
    Setting(
        name="selective_every", kind="int", default=2, minimum=1,
        doc="with selective_policy=layers, every how many layers one is computed again",
    ),
    Setting(
        name="activation_device", kind="str", default="cuda", choices=("cuda", "cpu"),
        doc="CUDA keeps one-byte dropout masks and fp32 statistics; the measurements were made on a CPU",
    ),
    Setting(name="autocast", kind="bool", default=False, doc="fp32 weights computed in bf16 by autocast"),
    Setting(name="loss", kind="str", default="eager", choices=LOSS_CHOICES, doc="how logits and loss are computed"),
    Setting(
        name="loss_chunk_tokens", kind="int", default=None, minimum=1,
        doc="tokens per chunk of a chunked or fused loss",
    ),
    Setting(
        name="partition_activations", kind="bool", default=False,
        doc="ZeRO-R Pa: split activation checkpoints over the tensor-parallel ranks",
    ),
    Setting(
        name="cpu_checkpointing", kind="bool", default=False,
        doc="ZeRO-R Pa+cpu: keep activation checkpoints in host memory",
    ),
)  # fmt: skip
