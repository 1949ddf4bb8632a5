"""Logits and cross-entropy: what stands in memory between the last layer and the first gradient.

The vocabulary is often the widest tensor of a step. Each way to compute the loss is a row of `LOSSES`: the copies of
the logits it makes, how wide they are, and in which phases they are live.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

from zerocalc.formulas.registry import Applied, apply, formula
from zerocalc.units import ceil_div, largest

Count: TypeAlias = Any
"""An int, or a numpy array of integers: formulas take either and return the same."""

Phase = Literal["forward_end", "held", "loss_backward", "recompute"]
"""While the loss is computed, once it is, while its gradient is, and while the last layer is computed again."""

FORWARD: tuple[Phase, ...] = ("forward_end",)
BACKWARD: tuple[Phase, ...] = ("loss_backward",)
THROUGHOUT: tuple[Phase, ...] = ("forward_end", "held", "loss_backward")
WHOLE_TURN: tuple[Phase, ...] = (*THROUGHOUT, "recompute")


@formula(symbol="A_logits", unit="byte", source="measured-activations")
def logits_bytes(*, tokens: int, vocab_size: int, bytes_per_element: int, tensor_parallel: int) -> int:
    """Bytes of one copy of the logits, the vocabulary split over tensor-parallel ranks."""
    return tokens * ceil_div(vocab_size, tensor_parallel) * bytes_per_element


@formula(symbol="A_hidden_grad", unit="byte", source="liger")
def hidden_grad_bytes(*, tokens: int, hidden_size: int, bytes_per_element: int) -> int:
    """Bytes of the hidden states' gradient, which a chunked loss collects over its chunks."""
    return tokens * hidden_size * bytes_per_element


@formula(symbol="M_ce", unit="byte", source="liger")
def linear_cross_entropy_bytes(
    *, tokens: int, hidden_size: int, vocab_size: int, bytes_per_element: int
) -> int:
    """Peak bytes of an LM head and its loss alone, unfused, head included; without the GPU's own workspace."""
    return (
        3 * tokens * vocab_size + 2 * tokens * hidden_size + 3 * vocab_size * hidden_size
    ) * bytes_per_element


@formula(symbol="M_flce", unit="byte", source="liger")
def fused_linear_cross_entropy_bytes(
    *, tokens: int, chunk_tokens: int, hidden_size: int, vocab_size: int, bytes_per_element: int
) -> int:
    """Peak bytes of an LM head fused with its loss, five copies of one chunk's logits; without workspace."""
    return (
        5 * chunk_tokens * vocab_size
        + chunk_tokens * hidden_size
        + 2 * tokens * hidden_size
        + 4 * vocab_size * hidden_size
    ) * bytes_per_element


@formula(symbol="M_mlp", unit="byte", source="liger")
def gated_mlp_forward_bytes(*, tokens: int, hidden_size: int, ffn_size: int, bytes_per_element: int) -> int:
    """Peak bytes of one gated MLP's forward pass, its weights included; without the GPU's own workspace."""
    return (4 * tokens * ffn_size + 2 * tokens * hidden_size + 3 * hidden_size * ffn_size) * bytes_per_element


@formula(symbol="M_mlp_bwd", unit="byte", source="liger")
def gated_mlp_backward_bytes(*, tokens: int, hidden_size: int, ffn_size: int, bytes_per_element: int) -> int:
    """Peak bytes of one gated MLP's backward pass, its weights and their gradients included."""
    return (7 * tokens * ffn_size + 4 * tokens * hidden_size + 6 * hidden_size * ffn_size) * bytes_per_element


class Copy(NamedTuple):
    """One copy of the logits: its name, bytes per element by dtype (bf16, fp32, autocast), and when it is live."""

    name: str
    bytes_per_element: dict[str, int]
    phases: tuple[Phase, ...]


class Loss(NamedTuple):
    """A way to compute the loss: its copies of the logits, and whether it goes through them chunk by chunk."""

    copies: tuple[Copy, ...]
    chunked: bool = False
    keeps_hidden_grad: bool = False


_MODEL = {"bf16": 2, "fp32": 4, "autocast": 2}
_UPCAST = {"bf16": 4, "fp32": 0, "autocast": 4}
_FP32 = {"bf16": 4, "fp32": 4, "autocast": 4}

_EAGER = (
    Copy("logits", _MODEL, FORWARD),
    Copy("logits in fp32", _UPCAST, FORWARD),
    Copy("log-softmax", _FP32, THROUGHOUT),
    Copy("log-softmax gradient", _FP32, BACKWARD),
    Copy("logits gradient in fp32", _FP32, BACKWARD),
)

LOSSES: dict[str, Loss] = {
    # transformers' causal LM loss, as measured: 10V bytes per token at the end of forward, 12V in loss backward.
    "eager": Loss(_EAGER),
    # Every copy alive together, when the caller keeps the logits: 14V bytes per token in mixed precision.
    "naive": Loss(
        (
            Copy("logits", _MODEL, THROUGHOUT),
            Copy("logits in fp32", _UPCAST, THROUGHOUT),
            Copy("log-softmax", _FP32, THROUGHOUT),
            Copy("logits gradient in fp32", _FP32, BACKWARD),
        )
    ),
    # No upcast: logits, log-softmax and gradient in the model's dtype.
    "no-upcast": Loss(
        (
            Copy("logits", _MODEL, THROUGHOUT),
            Copy("log-softmax", _MODEL, THROUGHOUT),
            Copy("logits gradient", _MODEL, BACKWARD),
        )
    ),
    # flash-attn's cross-entropy: the 16-bit logits stay, their gradient stands beside them; nothing is upcast.
    "fused-logits": Loss((Copy("logits", _MODEL, THROUGHOUT), Copy("logits gradient", _MODEL, BACKWARD))),
    # Megatron-LM: fp32 logits split over the vocabulary, overwritten in place by their softmax and gradient.
    "vocab-parallel": Loss((Copy("logits in fp32", _FP32, THROUGHOUT),)),
    # The head and the loss go through the tokens chunk by chunk; the logits of a chunk are computed again in backward.
    "chunked": Loss(
        tuple(Copy(copy.name, copy.bytes_per_element, copy.phases if copy.phases != THROUGHOUT else ("forward_end", "loss_backward")) for copy in _EAGER),
        chunked=True,
    ),
    # Liger: gradients are made in the forward pass, chunk by chunk; only the hidden states' gradient is kept.
    "fused": Loss(
        (Copy("logits", _MODEL, FORWARD), Copy("logits in fp32", _FP32, FORWARD), Copy("logits gradient in fp32", _FP32, FORWARD)),
        chunked=True,
        keeps_hidden_grad=True,
    ),
}  # fmt: skip


class Line(NamedTuple):
    """One saved tensor: its name, the formula behind its bytes, and the phases in which it is live."""

    name: str
    applied: Applied
    phases: tuple[Phase, ...] = THROUGHOUT

    @property
    def bytes(self) -> Count:
        """Bytes on one rank."""
        return self.applied.value


def liger_chunk_tokens(*, tokens: int, hidden_size: int, vocab_size: int) -> int:
    """Tokens in one chunk of Liger's fused loss: a power of two near tokens·hidden/vocabulary."""
    chunk: int = ceil_div(tokens, largest(1, ceil_div(vocab_size, hidden_size)))
    return 1 << (chunk - 1).bit_length()


def loss_lines(
    *,
    loss: str,
    dtype: str,
    tokens: Count,
    chunk_tokens: Count,
    hidden_size: int,
    vocab_size: int,
    tensor_parallel: int,
) -> tuple[Line, ...]:
    """List the tensors between the last layer and the first gradient, each with its phases."""
    row = LOSSES[loss]
    lines = [
        Line(
            copy.name,
            apply(
                logits_bytes,
                tokens=chunk_tokens if row.chunked else tokens,
                vocab_size=vocab_size,
                bytes_per_element=copy.bytes_per_element[dtype],
                tensor_parallel=tensor_parallel,
            ),
            copy.phases,
        )
        for copy in row.copies
        if copy.bytes_per_element[dtype]
    ]
    if row.keeps_hidden_grad:
        applied = apply(
            hidden_grad_bytes, tokens=tokens, hidden_size=hidden_size, bytes_per_element=_MODEL[dtype]
        )
        lines.append(Line("hidden states gradient", applied, THROUGHOUT))
    return tuple(lines)
