"""What each pipeline stage's ranks hold of a layout: its own layers, each tensor divided by tensor and expert parallelism."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocalc.errors import UsageError
from zerocalc.layout import Layout, Tensor, Unit
from zerocalc.units import ceil_div

if TYPE_CHECKING:
    from zerocalc.specs.job import Parallelism


def stage_layouts(layout: Layout, parallelism: Parallelism) -> list[tuple[Sequence[int], Layout]]:
    """What each pipeline stage's ranks hold of a layout, equal stages together, before data-parallel sharding."""
    p = parallelism
    if layout.anonymous:
        return [(range(p.pp), _anonymous_share(layout, p))]
    if p.pp > 1 and layout.num_layers < p.pp:
        raise UsageError(
            f"--pp {p.pp}: the model has only {layout.num_layers} layers",
            hint="give at most one stage a layer",
        )
    shares: dict[int, tuple[Tensor, ...]] = {}
    classes: dict[tuple[tuple[tuple[Tensor, ...], int], ...], tuple[list[int], Layout]] = {}
    for stage, (low, high) in enumerate(_stage_bounds(layout.num_layers, p.pp, p.stage_layers)):
        units = list(_stage_units(layout, low, high, first=stage == 0, last=stage == p.pp - 1))
        if p.pp > 1 and stage == p.pp - 1 and (head := _tied_head(layout)) is not None:
            units.append(head)
        for unit in units:
            # The stages' units share their tensors, which are divided once.
            if id(unit.tensors) not in shares:
                shares[id(unit.tensors)] = tuple(
                    _divide(t, tp=p.tp, ep=p.ep, etp=p.etp) for t in unit.tensors
                )
        local = [replace(unit, tensors=shares[id(unit.tensors)]) for unit in units]
        key = tuple((unit.tensors, unit.count) for unit in local)
        if key in classes:
            classes[key][0].append(stage)
        else:
            classes[key] = ([stage], replace(layout, units=tuple(local)))
    return list(classes.values())


def _anonymous_share(layout: Layout, parallelism: Parallelism) -> Layout:
    p = parallelism
    divisors = {"dense": p.tp * p.pp, "expert": p.ep * p.etp * p.pp}
    tensors = tuple(
        replace(t, shape=(ceil_div(t.shape[0], divisors[t.part]),)) for t in layout.units[0].tensors
    )
    return replace(layout, units=(replace(layout.units[0], tensors=tensors),))


def _stage_bounds(num_layers: int, stages: int, given: tuple[int, ...] | None) -> list[tuple[int, int]]:
    """Layers of each stage. What does not divide goes to the stages after the first, which has the embedding."""
    base, extra = divmod(num_layers, stages)
    even = [base + (1 if (stage - 1) % stages < extra else 0) for stage in range(stages)]
    bounds, start = [], 0
    for size in given if given and sum(given) == num_layers else even:
        bounds.append((start, start + size))
        start += size
    return bounds


def _stage_units(layout: Layout, low: int, high: int, *, first: bool, last: bool) -> Iterator[Unit]:
    """The units of one pipeline stage, which holds layers `low` to `high` - 1."""
    seen, total = 0, layout.num_layers
    for unit in layout.units:
        if not unit.is_layer:
            home_is_first, home_is_last = seen == 0, seen == total
            if (
                (home_is_first and first)
                or (home_is_last and last)
                or (low < seen <= high and 0 < seen < total)
            ):
                yield unit
            continue
        begin, end = max(low, seen), min(high, seen + unit.count)
        if begin < end:
            yield replace(unit, count=end - begin, first=unit.first + begin - seen)
        seen += unit.count


def _tied_head(layout: Layout) -> Unit | None:
    """The copy of a tied embedding that the last pipeline stage needs for its output layer."""
    names = {tie.target for tie in layout.ties if tie.name.startswith("lm_head") or "head" in tie.name}
    for unit in layout.units:
        for tensor in unit.tensors:
            if not unit.is_layer and tensor.name in names:
                return Unit("tied_head", (replace(tensor, name="tied_head.weight", kind="head"),))
    return None


def _divide(tensor: Tensor, *, tp: Any, ep: Any, etp: Any) -> Tensor:
    """One rank's share of a tensor: experts dealt over ep, the split dimension over the tensor-parallel ranks."""
    shape = list(tensor.shape)
    split = etp if tensor.part == "expert" else tp
    if tensor.part == "expert":
        shape[0] = ceil_div(shape[0], ep)
    if tensor.tp_axis is not None:
        shape[tensor.tp_axis] = ceil_div(shape[tensor.tp_axis], split)
    return replace(tensor, shape=tuple(shape))
