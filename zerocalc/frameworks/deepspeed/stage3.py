"""Stage 3: every tensor dealt over the ranks, padded for itself; gathered as the trace says, reduced bucket by bucket."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocalc.formulas.deepspeed import (
    buffer_bytes,
    padded_tensor_bytes,
    secondary_shard_bytes,
    tensor_shard_bytes,
)
from zerocalc.formulas.registry import Grouped, apply, apply_grouped
from zerocalc.frameworks.deepspeed.buckets import fill
from zerocalc.frameworks.deepspeed.engine import (
    BACKWARD,
    FORWARD,
    RESIDENT,
    STEADY,
    TURN,
    UPCAST,
    Engine,
    Group,
)
from zerocalc.frameworks.deepspeed.offload import Placement, SubGroup, placement_of, swap_buffers
from zerocalc.frameworks.deepspeed.states import (
    buffer_term,
    scalars,
    shaped_states,
    sized,
    state_term,
    state_widths,
    step_counters,
)
from zerocalc.frameworks.deepspeed.tail import stage3_tail
from zerocalc.frameworks.terms import (
    AT_REST,
    BACKWARD_END,
    FORWARD_BACKWARD,
    INITIALIZATION,
    OPTIMIZER_STEP,
    Term,
    Tier,
)
from zerocalc.units import ceil_div

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from zerocalc.frameworks.deepspeed.gathers import Gathers
    from zerocalc.frameworks.deepspeed.modules import Param


def shares(sub_groups: Iterable[SubGroup], width: Any, ranks: int) -> Grouped:
    """Bytes of one rank's shares of tensors."""
    counted: Counter[int] = Counter()
    for sub_group in sub_groups:
        for param in sub_group.params:
            counted[param.numel] += sub_group.times
    return apply_grouped(
        tensor_shard_bytes,
        [(k, {"num_elements": n, "bytes_per_element": width, "ranks": ranks}) for n, k in counted.items()],
    )


def share_elements(params: Iterable[Param], ranks: int) -> int:
    """Elements of one rank's shares of tensors."""
    return sum(ceil_div(param.numel, ranks) for param in params)


def sub_groups(engine: Engine, group: Group) -> list[SubGroup]:
    """Tensors that the optimizer updates together: cut once a rank's share reaches `sub_group_size`."""
    size = engine.settings["sub_group_size"]
    if size >= share_elements(group.params, group.ranks):
        return [SubGroup(group.params)]
    if not engine.shapes_known:
        return list(_pieces(group, size))
    found: list[list[Param]] = [[]]
    elements = 0
    for param in group.params:
        found[-1].append(param)
        elements += ceil_div(param.numel, group.ranks)
        if elements >= size:
            found.append([])
            elements = 0
    return [SubGroup(tuple(members)) for members in found if members]


def num_sub_groups(engine: Engine, group: Group) -> int:
    """How often the optimizer steps in a parameter group."""
    return sum(sub_group.times for sub_group in sub_groups(engine, group))


def _pieces(group: Group, size: int) -> Iterator[SubGroup]:
    """A bare count has no tensors to cut between: it is cut where a sub-group is full."""
    for param in group.params:
        times, rest = divmod(param.numel, size * group.ranks)
        for numel, often in ((size * group.ranks, times), (rest, 1)):
            if numel and often:
                yield SubGroup((replace(param, numel=numel),), often)


def persistent_params(engine: Engine) -> list[Param]:
    """Parameters small enough to stay whole on every rank, in the model's order, up to the model's limit."""
    if not engine.shapes_known:
        return []
    settings, kept, elements = engine.settings, [], 0
    limit = settings["stage3_model_persistence_threshold"]
    for param in (param for group in engine.groups for param in group.params):
        if limit is not None and param.numel + elements > limit:
            continue
        if param.numel <= settings["stage3_param_persistence_threshold"]:
            kept.append(param)
            elements += param.numel
    return kept


def terms(engine: Engine, gathers: Gathers) -> Iterator[Term]:
    """What one rank holds, on the GPU, on the host and on NVMe."""
    kept = {param.name for param in gathers.persistent}
    for group in engine.groups:
        placement = placement_of(engine, sub_groups(engine, group), group.ranks)
        yield from _params(engine, group, placement, kept)
        if group.trainable:
            yield from _states(engine, group, placement)
            yield from _gradients(engine, group, placement)
            yield from _step(engine, group, placement)
    yield from _gathered(engine, gathers)
    if engine.trained:
        yield from _scalars(engine)
        yield from _buckets(engine, kept)
        shares_of = (sub_group.share(g.ranks) for g in engine.trained for sub_group in sub_groups(engine, g))
        yield from swap_buffers(engine, max(shares_of))


def _scalars(engine: Engine) -> Iterator[Term]:
    """A step counter per sub-group, the norm (in fp64 on the GPU, in fp32 under offload), the overflow flag."""
    tier: Tier = "cpu" if engine.offloads_optimizer else "gpu"
    yield from step_counters(engine, sum(num_sub_groups(engine, g) for g in engine.trained), tier=tier)
    yield scalars("gradient_norm", 1, 4 if engine.offloads_optimizer else 8, tier=tier)
    yield scalars("overflow_tracker", 1, 1, tier=tier)


def _params(engine: Engine, group: Group, placement: Placement, kept: set[str]) -> Iterator[Term]:
    """Shares of the parameters, where they rest, and the small ones that stay whole besides."""
    width = engine.bytes_of(group.dtype)
    if not group.trainable and engine.settings["zero_quantized_nontrainable_weights"]:
        width = 1
    for tier, held in placement.params.items():
        yield state_term("params", shares(held, width, group.ranks), group, state="params", tier=tier)
    whole = Counter(param.numel for param in group.params if param.name in kept)
    if whole:
        amount = apply_grouped(
            padded_tensor_bytes,
            [
                (k, {"num_elements": n, "bytes_per_element": width, "ranks": group.ranks})
                for n, k in whole.items()
            ],
        )
        # Dropped while the optimizer steps, gathered again after it.
        live = (INITIALIZATION, AT_REST, *TURN, BACKWARD_END)
        yield buffer_term("persistent_params", amount, live, part=group.name)


def _states(engine: Engine, group: Group, placement: Placement) -> Iterator[Term]:
    rows = [("master_weights", engine.bytes_of(engine.master_dtype)), *state_widths(engine)]
    for tier, held in placement.states.items():
        for name, width in rows:
            yield state_term(name, shares(held, width, group.ranks), group, tier=tier)
        elements = sum(sub_group.times * sub_group.share(group.ranks) for sub_group in held)
        for name, amount in shaped_states(engine, elements):
            yield state_term(name, amount, group, tier=tier)


def _gradients(engine: Engine, group: Group, placement: Placement) -> Iterator[Term]:
    """A partition of gradients that is never freed; under offload it lies on the host beside fp32 ones."""
    accum, master = engine.bytes_of(engine.accum_dtype), engine.bytes_of(engine.master_dtype)
    tier: Tier = "cpu" if engine.offloads_optimizer else "gpu"
    whole = [SubGroup(group.params)]
    yield state_term("grads", shares(whole, accum, group.ranks), group, state="grads", tier=tier)
    if not engine.offloads_optimizer:
        return
    for where, held in placement.states.items():
        yield buffer_term(
            "fp32_grads", shares(held, master, group.ranks), RESIDENT, part=group.name, tier=where
        )


def _step(engine: Engine, group: Group, placement: Placement) -> Iterator[Term]:
    """The optimizer updates one sub-group at a time: its gradients flattened, cast to fp32, and the optimizer's copies."""
    accum, master = engine.bytes_of(engine.accum_dtype), engine.bytes_of(engine.master_dtype)
    widest = max(sub_groups(engine, group), key=lambda sub_group: sub_group.share(group.ranks))
    largest = [widest._replace(times=1)]
    cast = shares(largest, master, group.ranks)
    yield buffer_term("fp32_copy", cast, (INITIALIZATION,), part=group.name)
    if not engine.offloads_optimizer:
        if accum != master:
            flat = shares(largest, accum, group.ranks)
            yield buffer_term("flat_grads", flat, (UPCAST,), part=group.name)
        yield buffer_term("fp32_grads", cast, (UPCAST, OPTIMIZER_STEP), part=group.name)
    if engine.settings["optimizer_class"] == "adamw":
        tier: Tier = "cpu" if engine.offloads_optimizer and "gpu" not in placement.states else "gpu"
        work = shares(largest, 2 * master, group.ranks)
        yield buffer_term("optimizer_temporaries", work, (OPTIMIZER_STEP,), part=group.name, tier=tier)


def _buckets(engine: Engine, kept: set[str]) -> Iterator[Term]:
    """One bucket, allocated whole and never freed, the gradients of the unit at work, and a call's interleaved copy."""
    width = engine.bytes_of(engine.comm_dtype)
    if engine.settings["contiguous_gradients"]:
        bucket = apply(
            buffer_bytes,
            buffers=1,
            num_elements=engine.settings["reduce_bucket_size"],
            bytes_per_element=width,
        )
        yield buffer_term("reduce_bucket", bucket, RESIDENT)
    if not engine.shapes_known:
        return
    param = engine.bytes_of(engine.param_dtype)
    midway = gradient_buckets(engine)[:-1]
    largest = max((sum(p.numel for p in bucket) for bucket in midway), default=0)
    yield buffer_term("reduce_scatter_input", sized(largest, width), (BACKWARD,))
    yield buffer_term("arriving_grad", sized(engine.largest_layer_tensor, param), (BACKWARD,))
    yield from _tail(engine, kept)


def _tail(engine: Engine, kept: set[str]) -> Iterator[Term]:
    """The end of backward: the first module still gathered, its gradient, and a call's copy or an fp64 norm's."""
    param, width = engine.bytes_of(engine.param_dtype), engine.bytes_of(engine.comm_dtype)
    last, ranks = engine.gradient_order[-1], engine.trained[0].ranks
    held = stage3_tail(engine, ranks)
    copies = sized(held.copies, width)
    norm = sized(ceil_div(last.numel, ranks), 8)
    yield buffer_term("last_grad", sized(held.grads, param), (BACKWARD_END,))
    if engine.offloads_optimizer and norm.value > copies.value:
        yield buffer_term("norm_copy", norm, (BACKWARD_END,))
    else:
        yield buffer_term("reduce_scatter_input", copies, (BACKWARD_END,))
    if last.name not in kept:
        yield buffer_term("gathered_params", sized(last.numel, param), (BACKWARD_END,))


def gradient_buckets(engine: Engine) -> list[list[Param]]:
    """Gradients as they arrive, bucket by bucket."""
    arriving = engine.gradient_order if engine.shapes_known else [p for g in engine.trained for p in g.params]
    return fill(arriving, engine.settings["reduce_bucket_size"])


def _gathered(engine: Engine, gathers: Gathers) -> Iterator[Term]:
    """Parameters that are whole for a while: the most at once in either pass, and hpZ's second copy."""
    width = engine.bytes_of(engine.param_dtype)
    live = {
        FORWARD: gathers.live_peak("forward"),
        FORWARD_BACKWARD: gathers.live_at_turn,
        BACKWARD: gathers.live_peak("backward"),
    }
    for phase, elements in live.items():
        if elements:
            yield buffer_term("gathered_params", sized(elements, width), (phase,))
    together = {FORWARD: gathers.largest_together("forward"), BACKWARD: gathers.largest_together("backward")}
    for phase, elements in together.items():
        if elements:
            yield buffer_term("gather_buffer", sized(elements, width), (phase,))
    if gathers.secondary_group > 1:
        copied = Counter(param.numel for param in gathers.copied)
        ranks = engine.groups[0].ranks
        amount = apply_grouped(
            secondary_shard_bytes,
            [
                (
                    k,
                    {
                        "num_elements": n,
                        "bytes_per_element": width,
                        "ranks": ranks,
                        "group": gathers.secondary_group,
                    },
                )
                for n, k in copied.items()
            ],
        )
        yield buffer_term("secondary_params", amount, tuple(phase for phase in STEADY if phase != "at_rest"))
