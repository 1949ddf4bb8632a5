"""A layout as the modules that a forward pass calls: which own which parameters, and in which order they run.

DeepSpeed hangs its hooks on modules, so what stage 3 gathers, and the order in which gradients arrive, follow the
order of execution. Frameworks register parameters in another order: Llama's norms come last in a layer and run first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from zerocalc.layout import Layout, Tensor

RUNS_AT = {
    "input_layernorm": 0, "layer_norm": 0, "ln_1": 0, "ln_attn": 0, "ln_mlp": 0, "norm_1": 0,
    "layernorm_before": 0, "self_attn_layer_norm": 0,
    "self_attn": 1, "attn": 1, "attention": 1, "self_attention": 1, "SelfAttention": 1, "EncDecAttention": 1,
    "post_attention_layernorm": 2, "ln_2": 2, "norm_2": 2, "layernorm_after": 2, "final_layer_norm": 2,
    "pre_feedforward_layernorm": 3,
    "mlp": 4, "ffn": 4, "feed_forward": 4, "block_sparse_moe": 4, "DenseReluDense": 4, "fc1": 4, "fc2": 5,
    "post_feedforward_layernorm": 6,
    "q_proj": 0, "q_norm": 1, "k_proj": 2, "k_norm": 3, "v_proj": 4, "o_proj": 9, "out_proj": 9,
}  # fmt: skip
"""When a module runs among its siblings; one that is not listed runs right after the sibling registered before it."""

BETWEEN = {("mlp", "gate_proj"): "act_fn", ("mlp", "c_fc"): "act", ("", "embed_tokens"): "rotary_emb"}
"""Modules without parameters that run after the named one: they prefetch too. Keyed by (parent, module)."""

LEAF_BLOCKS = {
    "MixtralDecoderLayer": "mlp", "Qwen2MoeDecoderLayer": "mlp", "Qwen3MoeDecoderLayer": "mlp",
}  # fmt: skip
"""Blocks whose mixture-of-experts module DeepSpeed gathers whole (its default leaf modules), by class of the layer; a layer without a class that routes to experts is taken to be one."""


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a module: its full name, elements, and whether it is a vector."""

    name: str
    numel: int
    is_vector: bool
    trainable: bool = True


@dataclass(slots=True)
class Module:
    """A module: the parameters it owns directly, and its children in the order they run."""

    name: str
    params: list[Param] = field(default_factory=list)
    children: list[Module] = field(default_factory=list)
    is_leaf: bool = False
    """Gathered and reduced whole, its children included."""
    is_layer: bool = False
    """A block that activation checkpointing wraps."""
    has_backward: bool = True
    """False where no gradient passes through its output."""
    _made: dict[str, Module] = field(default_factory=dict, repr=False, compare=False)

    @property
    def held(self) -> list[Param]:
        """The parameters gathered for it."""
        return self.params if not self.is_leaf else [p for module in self.walk() for p in module.params]

    @property
    def called(self) -> list[Module]:
        """The children with hooks of their own."""
        return [] if self.is_leaf else self.children

    def walk(self) -> Iterator[Module]:
        """The module and everything below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def child(self, name: str) -> Module:
        """The child of that name, made when it is not there. Only while the tree is built."""
        if name not in self._made:
            self._made[name] = Module(name)
            self.children.append(self._made[name])
        return self._made[name]


def module_tree(layouts: Iterable[tuple[Layout, bool]]) -> Module:
    """The modules of a model in the order of its forward pass, from its layouts and whether each is frozen.

    A tie makes its module own the target's parameter too.
    """
    root = Module("")
    by_name: dict[str, Param] = {}
    for layout, frozen in layouts:
        for prefix, unit in layout.blocks():
            for tensor in unit.tensors:
                param = _param(prefix, tensor, trainable=not frozen)
                by_name[param.name] = param
                _place(root, param)
            if unit.is_layer:
                _mark_layer(root, prefix, unit.layer_class)
        for tie in layout.ties:
            owner = _module_at(root, tie.name.rpartition(".")[0])
            if tie.target in by_name and by_name[tie.target] not in owner.params:
                owner.params.append(by_name[tie.target])
    _order(root, in_layer=False)
    return root


def _param(prefix: str, tensor: Tensor, *, trainable: bool) -> Param:
    return Param(prefix + tensor.name, tensor.numel, len(tensor.shape) < 2, trainable)


def _module_at(root: Module, path: str) -> Module:
    """The module at a dotted path, made where it is not there."""
    module = root
    for part in path.split(".") if path else ():
        module = module.child(part)
    return module


def _place(root: Module, param: Param) -> None:
    _module_at(root, param.name.rpartition(".")[0]).params.append(param)


def _mark_layer(root: Module, prefix: str, layer_class: str) -> None:
    layer = _module_at(root, prefix.rstrip("."))
    layer.is_layer = True
    for child in layer.children:
        routes = any(module.name == "experts" for module in child.children)
        child.is_leaf = child.name == LEAF_BLOCKS.get(
            layer_class, "mlp" if routes and not layer_class else None
        )


def _order(module: Module, *, in_layer: bool) -> None:
    """Put children in the order they run, containers dissolved, and add those without parameters."""
    children: list[Module] = []
    for child in module.children:
        numbered = child.children and all(item.name.isdigit() for item in child.children)
        children += child.children if numbered and not child.params else [child]
    if in_layer:
        ranks, rank = {}, 0
        for child in children:
            rank = RUNS_AT.get(child.name, rank)
            ranks[id(child)] = rank
        children.sort(key=lambda child: ranks[id(child)])
    else:
        # OPT registers its last norm before its layers.
        children.sort(key=lambda child: child.name == "final_layer_norm")
    module.children = []
    for child in children:
        module.children.append(child)
        extra = BETWEEN.get((module.name if in_layer else "", child.name))
        if extra is not None and (in_layer or extra == "rotary_emb"):
            module.children.append(Module(extra, has_backward=in_layer))
        _order(child, in_layer=in_layer or child.is_layer)


def gradient_order(root: Module) -> list[Param]:
    """Parameters in the order their gradients are complete: the modules backwards, a tied one where it is last used."""
    arrived: dict[str, Param] = {}
    for module in _backwards(root):
        for param in _within(module):
            arrived.pop(param.name, None)
            arrived[param.name] = param
    return [param for param in arrived.values() if param.trainable]


def _backwards(module: Module) -> Iterator[Module]:
    for child in reversed(module.called):
        yield from _backwards(child)
    yield module


def _within(module: Module) -> list[Param]:
    """A matrix product hands over its bias before its weight; everything else in the order of registration."""
    if module.is_leaf:
        return module.held
    has_matrix = any(not param.is_vector for param in module.params)
    return sorted(module.params, key=lambda param: has_matrix and not param.is_vector)
