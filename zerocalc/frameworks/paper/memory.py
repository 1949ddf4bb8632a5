"""What one rank holds: the model states, ZeRO++'s second copy, what is gathered at once, ZeRO-R's buffer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zerocalc.formulas.registry import Applied, apply
from zerocalc.formulas.states import gathered_bytes, state_bytes
from zerocalc.frameworks.paper.settings import ZEROPP
from zerocalc.frameworks.terms import ALWAYS, FORWARD_BACKWARD, GRADS_LIVE, Evaluated, Term, Tier
from zerocalc.optimizer_states import optimizer_lines

if TYPE_CHECKING:
    from zerocalc.rank import Part, RankView
    from zerocalc.strategies import State


def state_terms(view: RankView, part: Part) -> Iterator[Term]:
    """Parameters, and for trained parts gradients and optimizer states, each on its tier."""
    yield _state_term(view, part, "params", ALWAYS, "params", _flat(view, part, "params", part.param_bytes))
    if not part.trainable:
        return
    if view.job.precision.extra_param_bytes:
        yield _weight_copies(view, part)
    live = GRADS_LIVE if view.job.workload.grad_accum == 1 else (FORWARD_BACKWARD, *GRADS_LIVE)
    yield _state_term(view, part, "grads", live, "grads", _flat(view, part, "grads", part.grad_bytes))
    for line in optimizer_lines(part, view.job.optimizer, _shards_of(view, part, "optimizer_states")):
        yield _state_term(view, part, "optimizer_states", ALWAYS, line.name, line.amount)


def _weight_copies(view: RankView, part: Part) -> Term:
    """FP8 training's further copies of the weights of matrix multiplications, sharded as the parameters are."""
    amount = apply(
        state_bytes,
        num_params=part.num_linear_params,
        bytes_per_param=view.job.precision.extra_param_bytes,
        shards=_shards_of(view, part, "params"),
    )
    return _state_term(view, part, "params", ALWAYS, "weight_copies", amount)


def _flat(view: RankView, part: Part, state: State, per_param: Any) -> Applied:
    shards = _shards_of(view, part, state)
    return apply(state_bytes, num_params=part.num_params, bytes_per_param=per_param, shards=shards)


def _state_term(
    view: RankView, part: Part, state: State, phases: tuple[str, ...], name: str, amount: Evaluated
) -> Term:
    return Term(
        name=name,
        state=state,
        part=part.name,
        tier=_tier_of(view, state),
        phases=phases,
        sharded_over=_shards_of(view, part, state),
        falls=state in view.strategy.shards and view.strategy.sharding_group == "all",
        amount=amount,
    )


def _tier_of(view: RankView, state: State) -> Tier:
    """Where a state rests: gradients follow the optimizer states once both are sharded."""
    offload = view.job.offload
    if state == "grads" and "grads" not in view.strategy.shards:
        return "gpu"
    tier = offload.params if state == "params" else offload.optimizer
    return "gpu" if tier == "none" else tier


def _shards_of(view: RankView, part: Part, state: State) -> Any:
    """Over how many ranks a state of a part is dealt: one where the strategy keeps it whole."""
    return part.shard_ranks if state in view.strategy.shards else 1


def secondary_params(view: RankView, part: Part, settings: dict[str, Any]) -> Iterator[Term]:
    """ZeRO++ hpZ: a second copy of the parameters, sharded over a small group."""
    if view.strategy.name not in ZEROPP or settings["hpz"] <= 1:
        return
    shards = min(settings["hpz"], part.shard_ranks)
    yield Term(
        name="secondary_params",
        state="params",
        part=part.name,
        phases=ALWAYS,
        sharded_over=shards,
        amount=apply(
            state_bytes, num_params=part.num_params, bytes_per_param=part.param_bytes, shards=shards
        ),
    )


def working_memory(view: RankView, settings: dict[str, Any]) -> Iterator[Term]:
    """What is gathered at once, whole on the GPU while it computes: of several models the one that takes most."""
    if "params" not in view.strategy.shards or not view.shape_known:
        return
    offloaded = view.job.offload.params != "none"
    by_operator = (settings["working_memory"] or ("operator" if offloaded else "unit")) == "operator"
    amounts = [_gathered(parts, by_operator=by_operator) for parts in _gathered_models(view)]
    if amounts:
        yield Term(
            name="gathered_operator" if by_operator else "gathered_unit",
            phases=(FORWARD_BACKWARD,),
            amount=max(amounts, key=lambda amount: amount.value),
        )


def _gathered_models(view: RankView) -> Iterator[list[Part]]:
    """The parts of each model whose parameters do not lie whole on the GPU; adapters are too small to matter."""
    offloaded = _tier_of(view, "params") != "gpu"
    models: dict[str, list[Part]] = {}
    for part in view.parts:
        dealt = part.shard_ranks > 1 or offloaded
        if dealt and part.name != "adapter" and not part.layout.anonymous:
            models.setdefault(part.name if part.forward_only else "", []).append(part)
    yield from models.values()


def _gathered(parts: list[Part], *, by_operator: bool) -> Applied:
    """The largest unit or operator of one model, with its gradients where it is trained."""
    layouts = {id(part.layout): part.layout for part in parts}.values()
    sizes: dict[tuple[str, int], Any] = {}
    for unit in (unit for layout in layouts for unit in layout.units):
        sizes[unit.name, unit.first] = sizes.get((unit.name, unit.first), 0) + unit.numel
    largest = max(layout.largest_tensor.numel for layout in layouts) if by_operator else max(sizes.values())
    return apply(
        gathered_bytes,
        unit_params=largest,
        param_bytes=parts[0].param_bytes,
        grad_bytes=parts[0].grad_bytes if any(part.trainable for part in parts) else 0,
    )


def constant_buffer(settings: dict[str, Any]) -> Iterator[Term]:
    """ZeRO-R CB: a fused buffer that does not grow with the model."""
    if settings["constant_buffer"]:
        amount = apply(state_bytes, num_params=settings["constant_buffer"], bytes_per_param=4, shards=1)
        yield Term(name="constant_buffer", phases=ALWAYS, amount=amount)
