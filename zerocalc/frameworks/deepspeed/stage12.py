"""Stages 1 and 2: 16-bit parameters laid flat and padded, a partition of everything else on each rank."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from zerocalc.formulas.deepspeed import (
    buffer_bytes,
    flat_group_bytes,
    flat_partition_bytes,
)
from zerocalc.formulas.registry import Applied, apply
from zerocalc.frameworks.deepspeed.buckets import FlatGroup, all_reduce_calls, fill, reduce_calls, round_robin
from zerocalc.frameworks.deepspeed.collectives import collective
from zerocalc.frameworks.deepspeed.engine import (
    BACKWARD,
    FORWARD,
    IN_BACKWARD,
    RESIDENT,
    SIXTEEN_BITS,
    STEADY,
    TURN,
    UPCAST,
    Engine,
    Group,
)
from zerocalc.frameworks.deepspeed.states import (
    buffer_term,
    scalars,
    shaped_states,
    sized,
    state_term,
    state_widths,
    step_counters,
)
from zerocalc.frameworks.deepspeed.tail import stage1_partition, stage2_tail
from zerocalc.frameworks.terms import (
    BACKWARD_END,
    FORWARD_BACKWARD,
    INITIALIZATION,
    OPTIMIZER_STEP,
    Collective,
    Term,
    Tier,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.frameworks.deepspeed.modules import Param

ALIGNMENT = 2
"""Elements that a partition is a multiple of: four bytes of a 16-bit type (nccl_start_alignment_factor)."""
START_ALIGNMENT_BYTES = 16


def flat_group(engine: Engine, group: Group) -> FlatGroup:
    """A parameter group as it lies in its flat buffer."""
    params = (
        round_robin(group.params, group.ranks) if engine.settings["round_robin_gradients"] else group.params
    )
    aligned = engine.settings["parameter_alignment"]
    start = START_ALIGNMENT_BYTES // engine.bytes_of(engine.param_dtype) if aligned else 1
    return FlatGroup(params, ranks=group.ranks, alignment=ALIGNMENT, start_alignment=start)


def _flat(flat: FlatGroup, width: Any) -> Applied:
    return apply(
        flat_group_bytes,
        num_elements=flat.num_elements, bytes_per_element=width, alignment=ALIGNMENT, ranks=flat.ranks,
    )  # fmt: skip


def _partition(flat: FlatGroup, width: Any) -> Applied:
    return apply(
        flat_partition_bytes,
        num_elements=flat.num_elements, bytes_per_element=width, alignment=ALIGNMENT, ranks=flat.ranks,
    )  # fmt: skip


def terms(engine: Engine) -> Iterator[Term]:
    """What one rank holds, on the GPU and, when the optimizer is offloaded, on the host."""
    tier: Tier = "cpu" if engine.offloads_optimizer else "gpu"
    for group in engine.groups:
        width = engine.bytes_of(group.dtype)
        if not group.trainable:
            yield state_term("params", sized(group.numel, width), group, state="params", falls=False)
            continue
        flat = flat_group(engine, group)
        yield state_term("params", _flat(flat, width), group, state="params", falls=False)
        yield from _initial_copy(engine, group, flat)
        yield from _states(engine, group, flat, tier)
        yield from _gradients(engine, group, flat)
    if engine.trained:
        yield from _buckets(engine)
        yield from step_counters(engine, len(engine.trained), tier=tier)
        yield scalars("gradient_norm", 1, 4, tier=tier)


def _initial_copy(engine: Engine, group: Group, flat: FlatGroup) -> Iterator[Term]:
    """The weights as loaded, beside their flat copy; where that would not fit, they are flattened on the host."""
    width, capacity = engine.bytes_of(group.dtype), engine.view.job.machine.capacity_bytes
    loaded = sized(group.numel, width)
    fits = capacity is None or capacity - loaded.value >= _flat(flat, width).value
    if engine.settings["unflattened_copy"] and fits:
        yield buffer_term("unflattened_params", loaded, (INITIALIZATION,), part=group.name)


def _states(engine: Engine, group: Group, flat: FlatGroup, tier: Tier) -> Iterator[Term]:
    rows = [("master_weights", engine.bytes_of(engine.master_dtype)), *state_widths(engine)]
    for name, width in rows:
        yield state_term(name, _partition(flat, width), group, tier=tier)
    for name, amount in shaped_states(engine, flat.partition):
        yield state_term(name, amount, group, tier=tier)


def _gradients(engine: Engine, group: Group, flat: FlatGroup) -> Iterator[Term]:
    if engine.uses_bf16_optimizer:
        yield from _all_fp32_gradients(engine, group, flat)
    elif engine.offloads_optimizer:
        yield from _offloaded_gradients(engine, group, flat)
    else:
        yield from _partitioned_gradients(engine, group, flat)


def _while_accumulating(engine: Engine) -> tuple[str, ...]:
    return TURN if engine.grad_accum > 1 else ()


def _all_fp32_gradients(engine: Engine, group: Group, flat: FlatGroup) -> Iterator[Term]:
    """BF16_Optimizer: a flat fp32 gradient of the whole group that is never freed, beside the bf16 ones of a step."""
    yield state_term("fp32_grads", _flat(flat, 4), group, state="grads", falls=False)
    live = (*_while_accumulating(engine), BACKWARD_END, UPCAST, OPTIMIZER_STEP)
    yield state_term("grads", sized(group.numel, 2), group, state="grads", phases=live, falls=False)
    if engine.comm_dtype != "fp32":
        cast = _flat(flat, engine.bytes_of(engine.comm_dtype))
        yield buffer_term("cast_grads", cast, (BACKWARD_END,), part=group.name)
    yield from _temporaries(engine, group, flat)


def _partitioned_gradients(engine: Engine, group: Group, flat: FlatGroup) -> Iterator[Term]:
    """Whole gradients until the end of backward at stage 1, the rank's own at stage 2; cast to fp32 in the step."""
    width, accum = engine.bytes_of(group.dtype), engine.bytes_of(engine.accum_dtype)
    master = engine.bytes_of(engine.master_dtype)
    overlap = _overlap(engine, group, flat)
    earlier = _while_accumulating(engine)
    own = (BACKWARD_END, UPCAST)
    contiguous = engine.settings["contiguous_gradients"] and engine.shapes_known
    if engine.stage == 1:
        whole = sized(group.numel, width)
        yield state_term("grads", whole, group, state="grads", phases=(*earlier, BACKWARD_END), falls=False)
        if accum != width:
            attribute = sized(group.numel, accum)
            yield buffer_term("accumulated_grads", attribute, (*earlier, BACKWARD_END), part=group.name)
        yield buffer_term("grads_in_partition", sized(overlap, width), (UPCAST,), part=group.name)
        moving = stage1_partition(engine, flat, _arrival(engine, group), overlap) if contiguous else 0
        yield buffer_term("grads_in_partition", sized(moving, width), (BACKWARD_END,), part=group.name)
    else:
        yield state_term("grads", sized(overlap, width), group, state="grads", phases=own)
        if earlier or accum != width:
            kept = (*earlier, BACKWARD_END)
            yield buffer_term("accumulated_grads", sized(overlap, accum), kept, part=group.name)
    if accum != master:
        yield buffer_term("flat_grads", _partition(flat, accum), (UPCAST,), part=group.name)
    fp32 = _partition(flat, master)
    yield buffer_term("fp32_grads", fp32, (UPCAST, OPTIMIZER_STEP), part=group.name)
    yield from _temporaries(engine, group, flat)


def _offloaded_gradients(engine: Engine, group: Group, flat: FlatGroup) -> Iterator[Term]:
    """ZeRO-Offload: gradients go to the host as they are reduced; one buffer of the largest tensor on either side."""
    width, master = engine.bytes_of(group.dtype), engine.bytes_of(engine.master_dtype)
    yield state_term("grads", _partition(flat, master), group, state="grads", tier="cpu")
    staging = _partition(flat, width)
    yield buffer_term("updated_params", staging, RESIDENT, part=group.name, tier="cpu")
    largest = sized(max(param.numel for param in group.params) if engine.shapes_known else 0, width)
    yield buffer_term("largest_tensor_buffer", largest, RESIDENT, part=group.name, tier="cpu")
    yield buffer_term("largest_tensor_buffer", largest, RESIDENT, part=group.name)
    if engine.stage == 2 and engine.grad_accum > 1 and not engine.low_precision_master:
        kept = sized(_overlap(engine, group, flat, padded=False), width)
        yield buffer_term("accumulated_grads", kept, STEADY, part=group.name, tier="cpu")
    if engine.stage == 1:
        phases = (*_while_accumulating(engine), BACKWARD_END)
        yield state_term("grads", sized(group.numel, width), group, state="grads", phases=phases, falls=False)
    # The norm of each gradient slice is taken on a copy in fp64.
    norm = sized(flat.largest_slice(group.params) if engine.shapes_known else 0, 8)
    yield buffer_term("norm_copy", norm, (BACKWARD_END,), part=group.name)
    yield from _temporaries(engine, group, flat, tier="cpu")


def _overlap(engine: Engine, group: Group, flat: FlatGroup, *, padded: bool = True) -> int:
    """Elements of the tensors that overlap a partition; without shapes, the partition itself."""
    return flat.largest_overlap(group.params, padded=padded) if engine.shapes_known else flat.partition


def _temporaries(engine: Engine, group: Group, flat: FlatGroup, *, tier: Tier = "gpu") -> Iterator[Term]:
    """The Adam of torch works with two copies of a state; DeepSpeed's own optimizers work in place."""
    if engine.settings["optimizer_class"] == "adamw":
        work = _partition(flat, 2 * engine.bytes_of(engine.master_dtype))
        yield buffer_term("optimizer_temporaries", work, (OPTIMIZER_STEP,), part=group.name, tier=tier)


def _buckets(engine: Engine) -> Iterator[Term]:
    """The buckets that gradients are copied into, allocated whole, and gradients on their way there."""
    if engine.uses_bf16_optimizer:
        return
    kept = (FORWARD, FORWARD_BACKWARD) if engine.stage == 1 and engine.grad_accum > 1 else ()
    width = engine.bytes_of(engine.param_dtype)
    if engine.settings["contiguous_gradients"] or engine.offloads_optimizer:
        buckets = apply(
            buffer_bytes,
            buffers=2 if engine.overlaps else 1,
            num_elements=engine.settings["reduce_bucket_size"],
            bytes_per_element=width,
        )
        yield buffer_term("reduce_buckets", buckets, (*kept, *IN_BACKWARD))
    if not engine.shapes_known:
        return
    if not (engine.stage == 1 and engine.grad_accum > 1):
        yield buffer_term("arriving_grad", sized(engine.largest_layer_tensor, width), (BACKWARD,))
    if engine.stage == 2:
        yield from _tail(engine, engine.trained[0])


def _tail(engine: Engine, group: Group) -> Iterator[Term]:
    """What the last flush of stage 2 holds beside bucket and partition."""
    flat, arriving = flat_group(engine, group), _arrival(engine, group)
    overlap = 0 if engine.offloads_optimizer else _overlap(engine, group, flat)
    width = engine.bytes_of(engine.param_dtype)
    held = stage2_tail(engine, flat, arriving, overlap)
    yield buffer_term("last_grad", sized(held.grads, width), (BACKWARD_END,), part=group.name)
    yield buffer_term("flat_slices", sized(held.copies, width), (BACKWARD_END,), part=group.name)
    if engine.comm_dtype != engine.param_dtype:
        buckets = fill(arriving, engine.settings["reduce_bucket_size"])
        largest = max(sum(param.numel for param in bucket) for bucket in buckets)
        cast = sized(largest, engine.bytes_of(engine.comm_dtype))
        yield buffer_term("cast_grads", cast, (BACKWARD_END,), part=group.name)


def collectives(engine: Engine) -> Iterator[Collective]:
    """Gradients, the step's scalars, and the updated parameters of every group."""
    for group in engine.trained:
        flat = flat_group(engine, group)
        yield _gradient_collective(engine, group, flat)
        if not engine.uses_bf16_optimizer:
            yield from _scalar_collectives(engine, group)
        if group.ranks > 1:
            whole = [flat.partition * group.ranks]
            yield collective(
                engine, group, "all_gather", "params", whole, dtype=group.dtype, phase="optimizer_step"
            )


def _scalar_collectives(engine: Engine, group: Group) -> Iterator[Collective]:
    """One overflow flag per step in 16 bits, one norm per parameter group."""
    if engine.param_dtype in SIXTEEN_BITS and group is engine.trained[0]:
        yield collective(
            engine, group, "all_reduce", "overflow_flag", [1], dtype="uint8", phase="optimizer_step"
        )
    yield collective(engine, group, "all_reduce", "gradient_norm", [1], dtype="fp32", phase="optimizer_step")


def _gradient_collective(engine: Engine, group: Group, flat: FlatGroup) -> Collective:
    """How gradients are reduced: all-reduce unless told to reduce each slice to its owner; at stage 2 every micro-step."""
    op, calls = "all_reduce", Counter([flat.partition * flat.ranks])
    if not engine.uses_bf16_optimizer:
        op, calls = _bucket_calls(engine, group, flat)
    times = engine.grad_accum if engine.stage == 2 else 1
    return collective(
        engine, group, op, "grads", calls, dtype=engine.comm_dtype, phase="backward", times=times
    )


def _bucket_calls(engine: Engine, group: Group, flat: FlatGroup) -> tuple[str, Counter[int]]:
    """The operation, and how often it is called with how many elements."""
    settings, size = engine.settings, engine.settings["reduce_bucket_size"]
    buckets = fill(_arrival(engine, group), size)
    contiguous = settings["contiguous_gradients"] or engine.offloads_optimizer
    if not (contiguous and settings["reduce_scatter"]):
        return "all_reduce", Counter(sum(param.numel for param in bucket) for bucket in buckets)
    op, calls = "reduce", Counter[int]()
    if settings["use_multi_rank_bucket_allreduce"]:
        op = "all_reduce"
    for bucket in buckets:
        calls += all_reduce_calls(bucket, flat, size) if op == "all_reduce" else reduce_calls(bucket, flat)
    return op, calls


def _arrival(engine: Engine, group: Group) -> list[Param]:
    """Stage 1 without overlap walks the group at the boundary; otherwise gradients arrive as backward makes them."""
    if not engine.shapes_known or (engine.stage == 1 and not engine.overlaps):
        return list(group.params)
    names = {param.name for param in group.params}
    return [param for param in engine.gradient_order if param.name in names]
