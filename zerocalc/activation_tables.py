"""The table of saved tensors: what each part of a layer keeps from the forward to the backward pass.

A *recipe* (`RECIPES`) says what a family's layer is built of: its norms, its attention, its MLP. Each part is a tuple
of `Saved` rows per *implementation*; supporting another kernel or family adds rows here and edits no function.
The rows of `eager` are the tensors that transformers' modules were measured to save; `fused` keeps no fp32 copies in
the norms; `fused-mlp` also computes the MLP's activation again; `korthikanti` is table 2 of that paper.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one layer of a family is made of."""

    norm: Literal["rms", "gemma", "layer"]
    attention: Literal["llama", "gpt2", "gpt_neox", "gemma2"]
    mlp: str
    post_norms: bool = False
    """Gemma 2 and 3: each half of the layer is normalised again before it is added."""
    qk_norm: bool = False
    packed_qkv: bool = False
    logit_softcap: bool = False
    parallel: bool = False
    """Attention and MLP read the same input, so their norms share it."""
    router: str = "qwen3"
    rotary: bool = True
    residual_dropout: bool = False


RECIPES: dict[str, Recipe] = {
    "llama": Recipe("rms", "llama", "gated"),
    "mixtral": Recipe("rms", "llama", "gated", router="mixtral"),
    "qwen3": Recipe("rms", "llama", "gated", qk_norm=True),
    "gemma": Recipe("gemma", "llama", "gated"),
    "gemma2": Recipe("gemma", "gemma2", "gated", post_norms=True, logit_softcap=True),
    "gemma3": Recipe("gemma", "llama", "gated", post_norms=True, qk_norm=True),
    "gpt2": Recipe("layer", "gpt2", "gelu_new", packed_qkv=True, rotary=False, residual_dropout=True),
    "gpt_neox": Recipe("layer", "gpt_neox", "gelu", packed_qkv=True, parallel=True, residual_dropout=True),
    "gpt": Recipe("layer", "llama", "gelu", residual_dropout=True),
    "opt": Recipe("layer", "llama", "relu", rotary=False, residual_dropout=True),
}

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
    ("gemma", "eager"): _GEMMA_EAGER,
    ("layer", "eager"): _LAYER_NORM,
    ("rms", "fused"): _RMS_FUSED,
    ("gemma", "fused"): _RMS_FUSED,
    ("layer", "fused"): _LAYER_NORM,
    **{(norm, "korthikanti"): (Saved("input", "hidden", ELEMENT),) for norm in ("rms", "gemma", "layer")},
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
}
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
ATTENTION["gpt_neox", "math"] = ATTENTION["llama", "math"]
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


def _inside(*names: str, width: str = "ffn") -> tuple[Saved, ...]:
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

_MASKS = (
    Saved("dropout mask after attention", "hidden", ELEMENT, "dropout", cuda=BYTE),
    Saved("dropout mask after MLP", "hidden", ELEMENT, "dropout", cuda=BYTE),
)
_PAPER_MASKS = tuple(Saved(mask.name, mask.width, BYTE) for mask in _MASKS)


EMBEDDING = (
    Saved("token ids", "index", INDEX),
    Saved("embedding dropout mask", "hidden", ELEMENT, "dropout", cuda=BYTE),
)
POSITION_IDS = Saved("position ids", "position", INDEX)
ROTARY = (Saved("rotary cosines", "rotary", RESIDUAL), Saved("rotary sines", "rotary", RESIDUAL))
LOSS_SCALARS = Saved("loss and its weight", "scalar", INDEX)
FINAL_OUTPUT = Saved("final norm output in fp32", "hidden", Bytes(0, 0, 4))
"""The fp32 output that autocast has cast for the head, held by the module's own variable while the loss is computed."""


class Implementation(NamedTuple):
    """Which rows of the tables apply."""

    norm: str
    mlp: str
    attention: str | None = None
    """The family of attention rows; None takes the recipe's."""
    masks: tuple[Saved, ...] = _MASKS
    embedding: tuple[Saved, ...] = EMBEDDING
    counts_indices: bool = True
    """Whether ids, labels, tables and casts are counted: the paper leaves them out."""


IMPLEMENTATIONS: dict[str, Implementation] = {
    "eager": Implementation("eager", "eager"),
    "fused": Implementation("fused", "eager"),
    "fused-mlp": Implementation("fused", "fused"),
    "korthikanti": Implementation(
        "korthikanti",
        "korthikanti",
        "korthikanti",
        _PAPER_MASKS,
        embedding=(Saved("embedding dropout mask", "hidden", BYTE),),
        counts_indices=False,
    ),
}


def _named(prefix: str, rows: tuple[Saved, ...]) -> tuple[Saved, ...]:
    return tuple(row._replace(name=f"{prefix} {row.name}") for row in rows)


def _consumed(name: str, consumers: int) -> Saved:
    """Describe the input of `consumers` matrix multiplications: one tensor, but autocast casts it for each of them."""
    return Saved(name, "hidden", ELEMENT._replace(autocast=ELEMENT.autocast * consumers))


def _qk_norms(norm: tuple[Saved, ...]) -> tuple[Saved, ...]:
    """Apply a norm's rows to every head of the queries and of the keys: Qwen 3, Gemma 3."""
    return tuple(
        row._replace(
            name=f"{name} norm {row.name}",
            width={"hidden": name, "token": heads, "vector": "head"}[row.width],
        )
        for name, heads in (("query", "heads"), ("key", "kv_heads"))
        for row in norm
    )


def _post_norm(name: str, recipe: Recipe, how: Implementation) -> tuple[Saved, ...]:
    return _named(name, NORMS[recipe.norm, how.norm]) if recipe.post_norms else ()


def _residual_mask(index: int, recipe: Recipe, how: Implementation) -> tuple[Saved, ...]:
    always = how.masks[index].when == "always"
    return how.masks[index : index + 1] if recipe.residual_dropout or always else ()


def attention_core(recipe: Recipe, how: Implementation, attention: Attention) -> tuple[Saved, ...]:
    """List what the attention kernel keeps, from queries to its output."""
    return ATTENTION[how.attention or recipe.attention, attention]


def layer_rows(
    recipe: Recipe, how: Implementation, kind: str, core: tuple[Saved, ...], *, shared: bool
) -> tuple[Saved, ...]:
    """List the saved tensors of one layer (`dense` or `moe`) in the order they are made."""
    norm, inside = NORMS[recipe.norm, how.norm], MLPS[recipe.mlp, how.mlp]
    dense = _inside(*inside)
    experts = (*MOE, *ROUTERS[recipe.router], *_named("expert", _inside(*inside, width="routed_ffn")))
    if shared:
        experts += _named("shared expert", _inside(*inside, width="shared_ffn"))
    return (
        *_named("attention norm", norm),
        _consumed("attention input", 1 if recipe.packed_qkv else 3),
        *(_qk_norms(norm) if recipe.qk_norm else ()),
        *core,
        *_post_norm("attention output norm", recipe, how),
        *_residual_mask(0, recipe, how),
        *_named("MLP norm", norm[1:] if recipe.parallel else norm),
        _consumed("MLP input", 2 if recipe.mlp == "gated" else 1),
        *(experts if kind == "moe" else dense),
        *_post_norm("MLP output norm", recipe, how),
        *_residual_mask(1, recipe, how),
    )


def final_rows(recipe: Recipe, how: Implementation) -> tuple[Saved, ...]:
    """List the tensors of the norm after the last layer, and what the head reads."""
    cap = (Saved("tanh of the logit cap", "vocabulary", ELEMENT),) if recipe.logit_softcap else ()
    return (*_named("final norm", NORMS[recipe.norm, how.norm]), _consumed("head input", 1), *cap)
