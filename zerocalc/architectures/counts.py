"""Every number that `params` shows, read off a layout: totals, active parameters, the largest layer and tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocalc.records import Record

if TYPE_CHECKING:
    from zerocalc.layout import Architecture, Buffer, Layout, Tie


@dataclass(eq=False, repr=False)
class LayerResult(Record):
    """Equal, consecutive layers of one stack."""

    name: str
    layer_class: str
    first: int
    count: int
    params: int
    """Parameters of one layer."""
    tensors: int
    """Tensors of one layer."""


@dataclass(eq=False, repr=False)
class NamedTensor(Record):
    """One parameter with its full name."""

    name: str
    shape: tuple[int, ...]
    numel: int


@dataclass(eq=False, repr=False)
class ParamCounts(Record):
    """What there is to count in a model; tied matrices count once unless the name says otherwise."""

    num_params: int
    num_params_tied_twice: int
    """As if every tied name had a matrix of its own."""
    num_active_params: int | None
    """Parameters one token passes through; None where experts are known but not how many are chosen."""
    num_active_params_excl_input_embedding: int | None
    num_input_embedding_params: int
    num_head_params: int
    """The output matrix, tied or not; without its bias."""
    largest_layer_params: int
    """Largest sum of parameters owned directly by one module: DeepSpeed's largest layer."""
    largest_layer: str
    largest_tensor: NamedTensor
    num_layers: int
    layers: tuple[LayerResult, ...]
    num_expert_params: int
    num_shared_expert_params: int
    num_router_params: int
    num_tensors: int
    buffers: tuple[Buffer, ...]
    ties: tuple[Tie, ...]


def count_params(architecture: Architecture) -> ParamCounts:
    """Count a model from its layout. No layer is expanded: equal ones are counted once and multiplied."""
    layout = architecture.layout
    tied = _tied_params(layout)
    total, embedded = layout.num_params, layout.num_params_where("embedding")
    active = _active_params(architecture)
    largest_layer, largest_layer_params = layout.largest_module
    return ParamCounts(
        num_params=total,
        num_params_tied_twice=total + sum(tied.values()),
        num_active_params=active,
        num_active_params_excl_input_embedding=None if active is None else active - embedded,
        num_input_embedding_params=embedded,
        num_head_params=_head_params(layout, tied),
        largest_layer_params=largest_layer_params,
        largest_layer=largest_layer,
        largest_tensor=_largest_tensor(layout),
        num_layers=layout.num_layers,
        layers=tuple(
            LayerResult(unit.name, unit.layer_class, unit.first, unit.count, unit.numel, len(unit.tensors))
            for unit in layout.units
            if unit.is_layer
        ),
        num_expert_params=layout.num_params_where("expert"),
        num_shared_expert_params=layout.num_params_where("shared_expert"),
        num_router_params=layout.num_params_where("router"),
        num_tensors=sum(len(unit.tensors) * unit.count for unit in layout.units),
        buffers=layout.buffers,
        ties=layout.ties,
    )


def _active_params(architecture: Architecture) -> int | None:
    """Leave out the routed experts that a token does not visit."""
    total, experts = architecture.layout.num_params, architecture.layout.num_params_where("expert")
    sizes = architecture.dimensions
    if not experts:
        return total
    if sizes is None or not sizes.num_experts:
        return None
    return total - experts + experts // sizes.num_experts * min(sizes.experts_per_token, sizes.num_experts)


def _tied_params(layout: Layout) -> dict[str, int]:
    """Give every tied name the size of the parameter it shares."""
    targets = {tie.target for tie in layout.ties}
    if not targets:
        return {}
    found = {
        unit.prefix(0) + tensor.name: tensor.numel
        for unit in layout.units
        for tensor in unit.tensors
        if unit.prefix(0) + tensor.name in targets
    }
    return {tie.name: found.get(tie.target, 0) for tie in layout.ties}


def _head_params(layout: Layout, tied: dict[str, int]) -> int:
    """Size the output matrix, its own or the one it shares."""
    own = sum(t.numel for t, _ in layout.grouped() if t.kind == "head" and len(t.shape) == 2)
    return own or sum(
        size for name, size in tied.items() if name.endswith(("lm_head.weight", "decoder.weight"))
    )


def _largest_tensor(layout: Layout) -> NamedTensor:
    """Find the parameter with most elements, the first of equals, in the first layer that holds it."""
    unit, tensor = max(
        ((unit, tensor) for unit in layout.units for tensor in unit.tensors), key=lambda pair: pair[1].numel
    )
    return NamedTensor(unit.prefix(0) + tensor.name, tensor.shape, tensor.numel)
