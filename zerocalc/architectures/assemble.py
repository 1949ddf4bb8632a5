"""Put the parts of a model together: embedding, stacks, final norm, head, ties, buffers and sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zerocalc.architectures.blocks import Heads, Tensors, Units, linear, single
from zerocalc.errors import SpecError
from zerocalc.layout import Architecture, Buffer, Dimensions, Layout, Tie
from zerocalc.records import Record
from zerocalc.units import MAX_PARAMS

if TYPE_CHECKING:
    from zerocalc.architectures.keys import Keys

UNFUSED_GELUS = frozenset({"gelu_new", "gelu_fast", "gelu_python", "gelu_python_tanh", "quick_gelu"})


def causal_lm(
    keys: Keys,
    *,
    embed: Tensors,
    layers: Units,
    final_norm: Tensors,
    dimensions: Dimensions | None,
    buffers: tuple[Buffer, ...] = (),
    head_bias: bool = False,
    assumptions: tuple[str, ...] = (),
) -> Architecture:
    """Assemble a decoder with its language-model head; `embed` begins with the token embedding.

    A tied head has no matrix of its own but keeps its bias.
    """
    table = embed[0]
    vocab, width = table.shape
    head = linear("lm_head", vocab, width, bias=head_bias, split="column", kind="head")
    tied = keys.flag("tie_word_embeddings")
    layout = Layout(
        units=(*single(embed), *layers, *single(final_norm), *single(head[1:] if tied else head)),
        ties=(Tie("lm_head.weight", table.name),) if tied else (),
        buffers=buffers,
    )
    return finish(keys, layout, dimensions, assumptions)


def finish(
    keys: Keys, layout: Layout, dimensions: Dimensions | None, assumptions: tuple[str, ...] = ()
) -> Architecture:
    """Close a description: refuse what is too large, and say what was assumed."""
    if layout.num_params > MAX_PARAMS:
        raise SpecError(
            f"{keys.origin}: the sizes give more than {MAX_PARAMS:,} parameters",
            hint="check hidden sizes, vocabulary and number of layers for a slipped digit",
        )
    return Architecture(keys.family, layout, dimensions, (*assumptions, *keys.assumptions))


def sizes(
    keys: Keys,
    recipe: str,
    a: Heads,
    ffn: int,
    vocab: int,
    layers: int,
    *,
    dropouts: tuple[str, ...],
    gated_mlp: bool = False,
    has_position_table: bool = False,
) -> Dimensions:
    """Collect the sizes that activations depend on; `dropouts` are the keys of hidden states', scores', embedding's."""
    hidden, *others = map(keys.ratio, dropouts)
    scores, embedded = (*others, None, None)[:2]
    return Dimensions(
        recipe=recipe,
        hidden_size=a.hidden,
        num_layers=layers,
        num_heads=a.num,
        num_kv_heads=a.num_kv,
        head_dim=a.dim,
        ffn_size=ffn,
        vocab_size=vocab,
        gated_mlp=gated_mlp,
        tied=keys.flag("tie_word_embeddings"),
        dropout=hidden,
        attention_dropout=scores,
        embedding_dropout=embedded,
        has_position_table=has_position_table,
    )


@dataclass(eq=False, repr=False)
class Routing(Record):
    """The sizes of a mixture of experts: how many there are, how many a token visits, in how many layers."""

    experts: int
    chosen: int
    layers: int
    ffn: int
    shared_ffn: int = 0
    v_head_dim: int | None = None

    def within(self, dimensions: Dimensions) -> Dimensions:
        """Add them to the sizes of the decoder around them."""
        return replace(
            dimensions,
            num_experts=self.experts,
            experts_per_token=self.chosen,
            num_moe_layers=self.layers,
            moe_ffn_size=self.ffn,
            shared_ffn_size=self.shared_ffn,
            v_head_dim=self.v_head_dim,
        )


def gelu_recipe(activation: str) -> str:
    """Choose the row of activation terms of a plain MLP: unfused GELUs keep their intermediate tensors."""
    return "gpt2" if activation in UNFUSED_GELUS else "gpt"
