"""The tables of saved tensors: what each part of a layer keeps from the forward to the backward pass.

Norms, attention, MLPs and routers, each by kind and by implementation; `tables` puts them together.
The rows of `eager` are the tensors that transformers' modules were measured to save; those of `fused` keep no fp32
copies and no activation; those of `korthikanti` are table 2 of that paper. Supporting another kernel adds rows here.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Dtype = Literal["bf16", "fp32", "autocast"]
Attention = Literal["flash", "math", "eager"]
Checkpointing = Literal["none", "selective", "full"]
Device = Literal["cpu", "cuda"]


class Bytes(NamedTuple):
    """Bytes per element in pure bf16, in fp32, and in fp32 under bf16 autocast."""

    bf16: int
    fp32: int
    autocast: int


ELEMENT = Bytes(2, 4, 2)  # what matrix multiplications read and write
RESIDUAL = Bytes(2, 4, 4)  # the stream between the layers: autocast keeps it in fp32
FP32 = Bytes(4, 4, 4)
HALF_ONLY = Bytes(2, 0, 2)  # a cast that fp32 training does not need
BYTE = Bytes(1, 1, 1)
INDEX = Bytes(8, 8, 8)  # ids and labels are int64


class Saved(NamedTuple):
    """One saved tensor: its name, what it is as wide as (`WIDTHS`), its element size, and when it exists."""

    name: str
    width: str
    size: Bytes
    when: Literal["always", "dropout", "no dropout"] = "always"
    cuda: Bytes | None = None
    """Element size on a GPU where it differs: dropout masks take one byte there, statistics four."""


_STATISTICS = Bytes(2, 4, 4)
_RMS_EAGER = (
    Saved("input in fp32", "hidden", FP32),
    Saved("normalised", "hidden", RESIDUAL),
    Saved("1/rms", "token", FP32),
)
_RMS_FUSED = (Saved("input", "hidden", RESIDUAL), Saved("1/rms", "token", FP32))
_GEMMA_EAGER = (
    Saved("input in fp32", "hidden", FP32),
    Saved("normalised in fp32", "hidden", FP32),
    Saved("1/rms", "token", FP32),
    Saved("1 + weight", "vector", FP32),
)
_LAYER_NORM = (
    Saved("input", "hidden", RESIDUAL),
    Saved("mean", "token", _STATISTICS, cuda=FP32),
    Saved("1/std", "token", _STATISTICS, cuda=FP32),
)

NORMS: dict[tuple[str, str], tuple[Saved, ...]] = {
    ("rms", "eager"): _RMS_EAGER,
    ("rms-fp32", "eager"): _GEMMA_EAGER[:3],
    ("gemma", "eager"): _GEMMA_EAGER,
    ("layer", "eager"): _LAYER_NORM,
    ("rms", "fused"): _RMS_FUSED,
    ("rms-fp32", "fused"): _RMS_FUSED,
    ("gemma", "fused"): _RMS_FUSED,
    ("layer", "fused"): _LAYER_NORM,
    **{
        (norm, "korthikanti"): (Saved("input", "hidden", ELEMENT),)
        for norm in ("rms", "rms-fp32", "gemma", "layer")
    },
}

_QKV = (
    Saved("query", "query", ELEMENT),
    Saved("key", "key", ELEMENT),
    Saved("value", "value", ELEMENT),
    Saved("attention output", "output", ELEMENT),
)
_EXPANDED = (
    Saved("query", "query", ELEMENT),
    Saved("key per query head", "expanded_key", ELEMENT),
    Saved("value per query head", "output", ELEMENT),
    Saved("attention output", "output", ELEMENT),
)
_DROPPED = (
    Saved("dropout mask of scores", "scores", ELEMENT, "dropout", cuda=BYTE),
    Saved("scores after dropout", "scores", ELEMENT, "dropout"),
)
ATTENTION: dict[tuple[str, str], tuple[Saved, ...]] = {
    ("llama", "flash"): (*_QKV, Saved("log-sum-exp", "heads", FP32)),
    ("llama", "math"): (
        Saved("scaled query in fp32", "query", FP32),
        Saved("scaled key in fp32", "expanded_key", FP32),
        Saved("value in fp32", "output", FP32),
        Saved("attention output", "output", ELEMENT),
        Saved("softmax in fp32", "scores", FP32),
        Saved("dropout mask of scores", "scores", FP32, "dropout", cuda=BYTE),
        Saved("scores after dropout", "scores", FP32, "dropout"),
    ),
    ("llama", "eager"): (
        *_EXPANDED,
        Saved("softmax in fp32", "scores", FP32),
        Saved("softmax", "scores", HALF_ONLY, "no dropout"),
        *_DROPPED,
    ),
    ("gpt2", "eager"): (
        *_EXPANDED,
        Saved("softmax", "scores", RESIDUAL),
        Saved("softmax in 16 bits", "scores", Bytes(0, 0, 2), "no dropout"),
        *_DROPPED,
    ),
    ("korthikanti", "eager"): (
        *_QKV,
        Saved("softmax", "scores", ELEMENT),
        Saved("dropout mask of scores", "scores", BYTE),
        Saved("scores after dropout", "scores", ELEMENT),
    ),
    # TransformerEngine's unfused attention: one softmax in 16 bits, and what dropout makes of it.
    ("megatron", "eager"): (*_QKV, Saved("softmax", "scores", ELEMENT), *_DROPPED),
}
ATTENTION["megatron", "flash"] = ATTENTION["llama", "flash"]
ATTENTION["megatron", "math"] = ATTENTION["megatron", "eager"]
ATTENTION["gpt2", "flash"] = ATTENTION["korthikanti", "flash"] = ATTENTION["llama", "flash"]
ATTENTION["gpt2", "math"] = (
    *ATTENTION["llama", "math"],
    # With one sequence the value stays a view of the packed projection, which keeps its other two thirds alive.
    Saved("queries and keys beside the value", "packed_alone", Bytes(0, 4, 0)),
)
ATTENTION["gpt_neox", "flash"] = (
    *_QKV,
    Saved("queries and keys beside the value", "packed", ELEMENT),
    Saved("attention output, reordered", "output", ELEMENT),
    Saved("log-sum-exp", "heads", FP32),
)
ATTENTION["phi3", "flash"] = ATTENTION["gpt_neox", "flash"]
ATTENTION["phi", "flash"] = (
    *ATTENTION["llama", "flash"],
    Saved("attention output, reordered", "output", ELEMENT),
)
for _family in ("gpt_neox", "phi", "phi3"):
    ATTENTION[_family, "math"] = ATTENTION["llama", "math"]
ATTENTION["phi", "eager"] = ATTENTION["phi3", "eager"] = ATTENTION["llama", "eager"]
ATTENTION["gpt_neox", "eager"] = (
    *ATTENTION["llama", "eager"],
    Saved("queries and keys beside the value", "packed_alone", ELEMENT),
)
_SOFTCAP = Saved("tanh of the score cap", "scores", ELEMENT)
ATTENTION["gemma2", "flash"] = ATTENTION["llama", "flash"]
ATTENTION["gemma2", "math"] = (*ATTENTION["llama", "math"], _SOFTCAP)
ATTENTION["gemma2", "eager"] = (*ATTENTION["llama", "eager"], _SOFTCAP)
ATTENTION["korthikanti", "math"] = ATTENTION["korthikanti", "eager"]
SELECTIVE = _QKV  # what stays when the core of attention is computed again
_LAYER_INPUT = Saved("layer input", "hidden", RESIDUAL)
_FLASH_OUTPUT = (Saved("attention output", "output", ELEMENT), Saved("log-sum-exp", "heads", FP32))
EVERY_SECOND_MATMUL: dict[bool, tuple[Saved, ...]] = {
    True: (
        _LAYER_INPUT,
        Saved("query", "query", ELEMENT),
        Saved("value", "value", ELEMENT),
        *_FLASH_OUTPUT,
        Saved("gate", "ffn", ELEMENT),
        Saved("MLP output", "hidden", ELEMENT),
    ),
    False: (_LAYER_INPUT, *_QKV[:3], *_FLASH_OUTPUT, Saved("MLP inside", "ffn", ELEMENT)),
}
"""What torchtitan's selective checkpointing keeps, by whether the MLP is gated: the attention kernel's output and that
of every second matrix multiplication (of q, k, v, o, gate, up, down: q, v, gate, down; of qkv, o, up, down: qkv, up).
"""


def saved_inside(*names: str, width: str = "ffn") -> tuple[Saved, ...]:
    """Name the tensors inside an MLP, each as wide as its inner dimension."""
    return tuple(Saved(name, width, ELEMENT) for name in names)


_GATED = ("gate", "up", "activation", "gated product")
_GATED_FUSED = ("gate", "up", "gated product")
_GELU = ("MLP inside", "GELU output")
MLPS: dict[tuple[str, str], tuple[str, ...]] = {
    ("gated", "eager"): _GATED,
    ("gated", "fused"): _GATED_FUSED,
    ("gated", "korthikanti"): _GATED,
    # transformers writes GPT-2's GELU out as products: five tensors instead of two.
    ("gelu_new", "eager"): ("MLP inside", "its half", "its tanh", "1 + its tanh", "GELU output"),
    ("gelu_new", "fused"): _GELU,
    ("gelu_new", "korthikanti"): _GELU,
    **{("gelu", how): _GELU for how in ("eager", "fused", "korthikanti")},
    **{("relu", how): ("ReLU output",) for how in ("eager", "fused", "korthikanti")},
}
"""The tensors inside an MLP, each as wide as its inner dimension."""

MOE = (
    Saved("router probabilities", "experts", FP32),
    Saved("routing indices", "routed_token", Bytes(32, 32, 32)),
    Saved("tokens per expert", "expert", FP32),
    Saved("expert input", "routed_hidden", ELEMENT),
    Saved("expert output", "routed_hidden", ELEMENT),
)
"""What routing adds: where each token goes, and the tokens as they go to their experts and come back."""

ROUTERS: dict[str, tuple[Saved, ...]] = {
    "mixtral": (
        Saved("routing weights", "routed_token", Bytes(8, 8, 8)),
        Saved("sum of routing weights", "token", FP32),
    ),
    "qwen3": (Saved("routing weights", "routed_token", ELEMENT),),
}

MASKS = (
    Saved("dropout mask after attention", "hidden", ELEMENT, "dropout", cuda=BYTE),
    Saved("dropout mask after MLP", "hidden", ELEMENT, "dropout", cuda=BYTE),
)
PAPER_MASKS = tuple(Saved(mask.name, mask.width, BYTE) for mask in MASKS)


EMBEDDING = (
    Saved("token ids", "index", INDEX),
    Saved("embedding dropout mask", "hidden", RESIDUAL, "dropout", cuda=BYTE),
)
ATTENTION_MASK = Saved("attention mask", "mask", RESIDUAL)
"""Built for eager attention; checkpoints keep it, because a layer takes it as an input."""
POSITION_IDS = Saved("position ids", "position", INDEX)
ROTARY = (Saved("rotary cosines", "rotary", RESIDUAL), Saved("rotary sines", "rotary", RESIDUAL))
LOSS_SCALARS = Saved("loss and its weight", "scalar", INDEX)
FINAL_OUTPUT = Saved("final norm output in fp32", "hidden", Bytes(0, 0, 4))
"""The fp32 output that autocast has cast for the head, held by the module's own variable while the loss is computed."""
