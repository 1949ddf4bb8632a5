"""The papers' ideal: ZeRO's model states, the least communication, offload by its minimum of bytes moved."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from zerocalc import strategies
from zerocalc.formulas.communication import all_reduce_sent_bytes, leg_sent_bytes, padded_bytes
from zerocalc.formulas.registry import Applied, apply
from zerocalc.formulas.states import gathered_bytes, state_bytes
from zerocalc.frameworks.activation_settings import ACTIVATION_SETTINGS
from zerocalc.frameworks.settings import Setting, resolve_settings
from zerocalc.frameworks.terms import (
    ALWAYS,
    FORWARD_BACKWARD,
    GRADS_LIVE,
    Collective,
    Evaluated,
    Plan,
    Term,
    Tier,
    Traffic,
)
from zerocalc.optimizer_states import optimizer_lines
from zerocalc.strategies import LEGS, Pass, State
from zerocalc.units import DTYPE_BITS, dtype_bytes

if TYPE_CHECKING:
    from zerocalc.activations.terms import ActivationEstimate
    from zerocalc.rank import Part, RankView

STRATEGIES = frozenset(strategies.STRATEGIES)
_ZEROPP = frozenset({"zeropp"})
_SHARDED_PARAMS = frozenset({"zero3", "hsdp", "mics", "zeropp"})

SETTINGS = (
    Setting(
        name="hpz", kind="int", default=None, minimum=1, strategies=_ZEROPP,
        doc="ranks that hold a secondary copy of the parameters between them (default: the GPUs of a node; 1 is off)",
    ),
    Setting(name="qwz", kind="bool", default=True, strategies=_ZEROPP, doc="gather parameters as int8 in forward"),
    Setting(name="qgz", kind="bool", default=True, strategies=_ZEROPP, doc="reduce gradients as int4 in two hops"),
    Setting(
        name="quant_block", kind="int", default=2048, minimum=1, strategies=_ZEROPP,
        doc="elements that share one fp32 scale when quantised",
    ),
    Setting(
        name="working_memory", kind="str", default=None, choices=("unit", "operator"), strategies=_SHARDED_PARAMS,
        doc="what is gathered at once: the largest unit (a layer; default), or the largest operator as ZeRO-Infinity "
        "counts (default once parameters are offloaded)",
    ),
    Setting(
        name="constant_buffer", kind="int", default=0,
        doc="ZeRO-R CB: elements of the fused fp32 buffer, whatever the model's size",
    ),
    *ACTIVATION_SETTINGS,
)  # fmt: skip


def plan(view: RankView) -> Plan:
    """Terms, collectives and traffic of one rank class under the papers' model."""
    settings, warnings = resolve_settings("paper", SETTINGS, view.job.settings, view.strategy.name)
    if view.strategy.name == "zeropp" and settings["hpz"] is None:
        settings["hpz"] = view.job.parallelism.gpus_per_node or 1
    answer = Plan(warnings=warnings)
    for part in view.parts:
        answer.terms += state_terms(view, part)
        answer.terms += _secondary_params(view, part, settings)
        answer.collectives += _collectives(view, part, settings)
    answer.terms += _working_memory(view, settings)
    answer.terms += _constant_buffer(settings)
    if view.job.workload.micro_batch is not None:
        _activations(view, answer, settings)
    answer.traffic += _traffic(view, answer.terms)
    _say(view, answer, settings)
    return answer


def tier_of(view: RankView, state: State) -> Tier:
    """Where a state rests: gradients follow the optimizer states once both are sharded."""
    offload = view.job.offload
    if state == "grads" and "grads" not in view.strategy.shards:
        return "gpu"
    tier = offload.params if state == "params" else offload.optimizer
    return "gpu" if tier == "none" else tier


def state_terms(view: RankView, part: Part) -> Iterator[Term]:
    """Parameters, and for trained parts gradients and optimizer states, each on its tier."""
    yield _state_term(view, part, "params", ALWAYS, "params", _flat(view, part, "params", part.param_bytes))
    if not part.trainable:
        return
    if view.job.precision.extra_param_bytes:
        yield _weight_copies(view, part)
    live = GRADS_LIVE if view.job.workload.grad_accum == 1 else (FORWARD_BACKWARD, *GRADS_LIVE)
    yield _state_term(view, part, "grads", live, "grads", _flat(view, part, "grads", part.grad_bytes))
    for line in optimizer_lines(part, view.job.optimizer, shards_of(view, part, "optimizer_states")):
        yield _state_term(view, part, "optimizer_states", ALWAYS, line.name, line.amount)


def _weight_copies(view: RankView, part: Part) -> Term:
    """FP8 training's further copies of the weights of matrix multiplications, sharded as the parameters are."""
    amount = apply(
        state_bytes,
        num_params=part.num_linear_params,
        bytes_per_param=view.job.precision.extra_param_bytes,
        shards=shards_of(view, part, "params"),
    )
    return _state_term(view, part, "params", ALWAYS, "weight_copies", amount)


def shards_of(view: RankView, part: Part, state: State) -> int:
    """Over how many ranks a state of a part is dealt: one where the strategy keeps it whole."""
    ranks: int = part.shard_ranks
    return ranks if state in view.strategy.shards else 1


def _flat(view: RankView, part: Part, state: State, per_param: Any) -> Applied:
    shards = shards_of(view, part, state)
    return apply(state_bytes, num_params=part.num_params, bytes_per_param=per_param, shards=shards)


def _state_term(
    view: RankView, part: Part, state: State, phases: tuple[str, ...], name: str, amount: Evaluated
) -> Term:
    return Term(
        name=name,
        state=state,
        part=part.name,
        tier=tier_of(view, state),
        phases=phases,
        sharded_over=shards_of(view, part, state),
        falls=state in view.strategy.shards and view.strategy.sharding_group == "all",
        amount=amount,
    )


def _secondary_params(view: RankView, part: Part, settings: dict[str, Any]) -> Iterator[Term]:
    """ZeRO++ hpZ: a second copy of the parameters, sharded over a small group."""
    if view.strategy.name not in _ZEROPP or settings["hpz"] <= 1:
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


def _working_memory(view: RankView, settings: dict[str, Any]) -> Iterator[Term]:
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
    offloaded = tier_of(view, "params") != "gpu"
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


def _constant_buffer(settings: dict[str, Any]) -> Iterator[Term]:
    """ZeRO-R CB: a fused buffer that does not grow with the model."""
    if settings["constant_buffer"]:
        amount = apply(state_bytes, num_params=settings["constant_buffer"], bytes_per_param=4, shards=1)
        yield Term(name="constant_buffer", phases=ALWAYS, amount=amount)


def _activations(view: RankView, answer: Plan, settings: dict[str, Any]) -> None:
    """Activations and logits, where the batch and the model's shape are known."""
    from zerocalc.frameworks.activations import activation_terms_of, estimate_activations

    if (estimate := estimate_activations(view, settings)) is not None:
        answer.terms += activation_terms_of(estimate, settings)
        _partitioned_checkpoints(view, answer, estimate, settings)


def _partitioned_checkpoints(
    view: RankView, answer: Plan, activations: ActivationEstimate, settings: dict[str, Any]
) -> None:
    """ZeRO-R: what Pa gathers among tensor-parallel ranks, and what Pa+cpu moves over PCIe, each checkpoint once."""
    kept = [(layer.count, line.applied) for layer in activations.layers for line in layer.lines]
    if activations.checkpointing != "full" or not kept:
        return
    tp, accum = view.job.parallelism.tp, view.job.workload.grad_accum
    shard = kept[0][1].value
    layers = sum(count for count, _ in kept)
    if settings["partition_activations"] and tp > 1:
        full = apply(padded_bytes, num_params=shard * tp, element_bytes=1, ranks=tp)
        sent = apply(leg_sent_bytes, count=layers * accum, full_bytes=full.value, ranks=tp)
        answer.collectives.append(
            Collective(
                op="all_gather", tensor="activations", dtype=view.job.precision.param_dtype, group_size=tp,
                count=layers * accum, full=full, sent=sent, phase="backward", group="tensor_parallel",
            )
        )  # fmt: skip
    if settings["cpu_checkpointing"]:
        for direction in ("to_host", "from_host"):
            answer.traffic.append(
                _move("host", direction, "activation_checkpoints", shard * layers, 1, 1, accum)
            )


def _active(view: RankView, settings: dict[str, Any]) -> Iterator[Pass]:
    """The strategy's passes; one that a setting turns on replaces the plain pass of its phase and tensor."""
    on = [row for row in view.strategy.passes if row.setting and _turned_on(settings[row.setting])]
    replaced = {(p.phase, p.tensor) for p in on}
    for row in view.strategy.passes:
        if row in on or (row.setting is None and (row.phase, row.tensor) not in replaced):
            yield row


def _turned_on(value: bool | int | None) -> bool:
    """Whether a setting turns its pass on: true, or a group of more than one rank."""
    return value is True or (value is not None and value > 1)


def _group_size(view: RankView, part: Part, row: Pass, settings: dict[str, Any]) -> int:
    """Ranks that take part in a pass."""
    per_node = min(view.job.parallelism.gpus_per_node or part.shard_ranks, part.shard_ranks)
    sizes = {
        "shard": part.shard_ranks,
        "replica": part.replicas,
        "secondary": min(settings["hpz"] or 1, part.shard_ranks),
        "node": per_node,
        "across_nodes": max(1, part.shard_ranks // per_node),
    }
    size: int = sizes[row.group]
    return size


def _collectives(view: RankView, part: Part, settings: dict[str, Any]) -> Iterator[Collective]:
    """What one part sends in an optimizer step."""
    for row in _active(view, settings):
        runs = not part.forward_only or row.phase == "forward"
        if runs and (part.trainable or not row.only_trainable):
            yield _collective(view, part, row, settings)


def _collective(view: RankView, part: Part, row: Pass, settings: dict[str, Any]) -> Collective:
    native = part.param_dtype if row.tensor == "params" else part.reduce_dtype
    dtype = row.wire_dtype or native
    size = _group_size(view, part, row, settings)
    count = view.job.workload.grad_accum if row.every == "micro_step" else 1
    shards = _shards_sent(view, part, row)
    element = dtype_bytes(dtype) + (Fraction(4, settings["quant_block"]) if row.wire_dtype else 0)
    elements = -(-part.num_params // shards)
    if row.op == "all_reduce":
        full = apply(state_bytes, num_params=elements, bytes_per_param=element, shards=1)
        sent = apply(all_reduce_sent_bytes, count=count, full_bytes=full.value, ranks=size)
    else:
        full = apply(padded_bytes, num_params=elements, element_bytes=element, ranks=size)
        sent = apply(leg_sent_bytes, count=count, full_bytes=full.value, ranks=size)
    volume = _volume(view, part, row, count, shards if row.group == "replica" else 1)
    return Collective(
        op=row.op, tensor=row.tensor, dtype=dtype, part=part.name, phase=row.phase, group=row.group,
        group_size=size, count=count, full=full, sent=sent, volume_params=volume,
        inter_node_volume_params=0 if row.intra_node or _fits_node(view, row, size) else volume,
    )  # fmt: skip


def _shards_sent(view: RankView, part: Part, row: Pass) -> int:
    """Into how many parts the tensor was cut before this pass sends one of them."""
    if not row.of_shard:
        return 1
    if row.group == "across_nodes":
        size: int = min(view.job.parallelism.gpus_per_node or part.shard_ranks, part.shard_ranks)
        return size
    ranks: int = part.shard_ranks
    return ranks


def _volume(view: RankView, part: Part, row: Pass, count: int, shards: int) -> Fraction:
    """Multiples of Ψ times the element size, as the papers print it."""
    native = part.param_dtype if row.tensor == "params" else part.reduce_dtype
    narrower = Fraction(DTYPE_BITS[row.wire_dtype or native], DTYPE_BITS[native])
    volume: Fraction = LEGS[row.op] * count * narrower * part.num_params / view.num_model_params / shards
    return volume


def _fits_node(view: RankView, row: Pass, size: int) -> bool:
    """Whether a pass stays inside one node: its ranks are neighbours and no more than the node has."""
    per_node = view.job.parallelism.gpus_per_node
    return per_node is not None and row.group not in {"replica", "across_nodes"} and size <= per_node


def _traffic(view: RankView, terms: list[Term]) -> Iterator[Traffic]:
    """Bytes over PCIe and to NVMe: each state that rests there, as often as the step reads and writes it."""
    accum = view.job.workload.grad_accum
    trained_loads = 3 if view.job.workload.checkpointing == "full" else 2
    for part in view.parts:
        loads = accum * (1 if part.forward_only else trained_loads)
        here = {
            term.state: term for term in terms if term.part == part.name and term.name != "secondary_params"
        }
        yield from _optimizer_traffic(view, part, here, accum)
        params = here["params"]
        if params.tier != "gpu":
            yield _move(
                "host", "from_host", "params", part.num_params, part.param_bytes, part.shard_ranks, loads
            )
            if params.tier == "nvme":
                yield _move(
                    "nvme", "read", "params", part.num_params, part.param_bytes, part.shard_ranks, loads
                )
                if part.trainable:
                    yield _move(
                        "nvme", "write", "params", part.num_params, part.param_bytes, part.shard_ranks, 1
                    )


def _optimizer_traffic(view: RankView, part: Part, here: dict[Any, Term], accum: int) -> Iterator[Traffic]:
    """ZeRO-Offload's minimum: gradients down, updated parameters up; NVMe states read and written once."""
    if not part.trainable or here["optimizer_states"].tier == "gpu":
        return
    shards, tier = part.shard_ranks, here["optimizer_states"].tier
    downloads = accum if here["grads"].tier != "gpu" else 1
    yield _move("host", "to_host", "grads", part.num_params, part.grad_bytes, shards, downloads)
    if here["params"].tier == "gpu":
        yield _move("host", "from_host", "params", part.num_params, part.param_bytes, shards, 1)
    if tier == "nvme":
        k = view.job.optimizer.bytes_per_param
        for direction in ("read", "write"):
            yield _move("nvme", direction, "optimizer_states", part.num_params, k, shards, 1)
            if here["grads"].tier == "nvme":
                times = downloads if direction == "write" else 1
                yield _move("nvme", direction, "grads", part.num_params, part.grad_bytes, shards, times)


def _move(
    link: Any, direction: Any, name: str, num_params: Any, per_param: Any, shards: Any, times: int
) -> Traffic:
    amount = apply(state_bytes, num_params=num_params, bytes_per_param=per_param * times, shards=shards)
    return Traffic(link=link, direction=direction, name=name, amount=amount)


def _say(view: RankView, answer: Plan, settings: dict[str, Any]) -> None:
    """What was assumed, what is not counted."""
    parallelism = view.job.parallelism
    if "params" in view.strategy.shards and not view.shape_known:
        answer.excluded.append(
            "gathered working memory of sharded parameters (needs tensor shapes, not just a count)"
        )
    for part in view.parts:
        if view.strategy.shards and part.shard_ranks == 1 and not part.forward_only:
            answer.warnings.append(
                f"{view.strategy.name} over a group of one: the {part.name} states of "
                f"{parallelism.world_size} GPU(s) are not sharded"
            )
    if (gathered := next((t for t in answer.terms if t.name.startswith("gathered_")), None)) is not None:
        what = "operator (ZeRO-Infinity's MSWM)" if gathered.name == "gathered_operator" else "unit"
        answer.assumptions.append(f"gathered working memory is the largest {what}, parameters and gradients")
    if any(term.name.startswith("activation") for term in answer.terms):
        answer.assumptions.append(
            f"activations of {settings['activations']} kernels with {view.job.workload.attention} attention on "
            f"{settings['activation_device']}, loss {settings['loss']} (--set activations=, activation_device=, loss=)"
        )
    if view.strategy.name in _ZEROPP:
        answer.assumptions.append(
            f"ZeRO++: hpz = {settings['hpz']}, one fp32 scale per {settings['quant_block']} elements "
            "(the paper prints no block size)"
        )
        if settings["hpz"] > 1 and view.parts[0].shard_ranks % settings["hpz"]:
            answer.warnings.append(
                f"hpz = {settings['hpz']} does not divide {view.parts[0].shard_ranks} ranks"
            )
