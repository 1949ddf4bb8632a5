"""`compare`: strategies side by side, then the line that decides between them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from zerocalc.render import numbers
from zerocalc.render.document import Block, Cell, Column, Document, Note, Table, Verbatim, cells
from zerocalc.render.views import timing
from zerocalc.render.views.common import (
    NONE,
    asked,
    fits_cells,
    label_of,
    machine_of,
    next_command,
    notes_of,
    peaks_above_states,
    scope,
    size_of,
    state_bytes,
    verdict,
    when,
    words,
)
from zerocalc.units import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zerocalc.render import Look
    from zerocalc.results import DividingLine, Estimates, Memory, StrategyResult, TierMemory


def view(result: Estimates, look: Look) -> Document:
    """The table, what rests off the GPU, the dividing line, the notes, the next command."""
    blocks: list[Block] = [_main_table(result, look)]
    if any(row.memory and (row.memory.cpu.terms or row.memory.nvme.terms) for row in result.results):
        blocks.append(_tier_table(result, look))
    blocks += timing.compared(result.results)
    blocks += timing.crossed(result.crossovers)
    blocks += [Note(f"{label_of(row.strategy)} does not apply: {row.reason}") for row in _refused(result)]
    blocks += _peaks(result)
    if result.dividing_line is not None:
        blocks.append(Note(_dividing(result, result.dividing_line, look.units)))
    if any(_offloads(row) for row in result.results):
        blocks.append(Note(OFFLOAD_LINE))
    blocks += notes_of(result)
    blocks.append(_next(result, look))
    return Document(tuple(blocks))


OFFLOAD_LINE = "Offload is capacity, not throughput: it says what can be held, not how fast it then runs"


def _offloads(row: StrategyResult) -> bool:
    return (row.offload.optimizer, row.offload.params) != ("none", "none")


def _refused(result: Estimates) -> list[StrategyResult]:
    seen: dict[tuple[str, str | None], StrategyResult] = {}
    for row in result.results:
        if not row.applicable:
            seen.setdefault((row.strategy, row.reason), row)
    return list(seen.values())


def _sizes(result: Estimates, pick: Callable[[Memory], int], units: str) -> list[Cell]:
    """One column of sizes, with a dash where a strategy does not apply."""
    texts = numbers.column([pick(row.memory) if row.memory else None for row in result.results], units)
    return [Cell(text, "faint" if text == numbers.NOTHING else "plain") for text in texts]


def _main_table(result: Estimates, look: Look) -> Table:
    rows = result.results
    columns: list[tuple[Column, list[Cell]]] = [
        (Column("Strategy", right=False), [Cell(label_of(row.strategy), "strong") for row in rows])
    ]
    if _several(result):
        columns.append((Column("Framework", right=False), [Cell(row.framework) for row in rows]))
    columns += _memory_columns(result, look.units)
    columns.append((Column("Wire"), [_wire(row) for row in rows]))
    sent = _several(result) or _several_dtypes(rows)
    if sent:
        columns.append((Column("Sent"), _sent_cells(rows, look.units)))
    if any(row.headroom_bytes is not None for row in rows):
        columns.append((Column("Fits"), fits_cells(rows, look.units)))
    each = machine_of(result.request, look.units)
    title = f"{size_of(result.request)}{f', {each}' if each else ''}; {look.units} per GPU"
    title += ", sent in one optimizer step" if sent else ""
    return Table(
        title,
        tuple(column for column, _ in columns),
        tuple(zip(*(filled for _, filled in columns), strict=True)),
    )


def _memory_columns(result: Estimates, units: str) -> Iterator[tuple[Column, list[Cell]]]:
    for header, state in (("Params", "params"), ("Grads", "grads"), ("Optimizer", "optimizer_states")):
        yield Column(header), _sizes(result, partial(state_bytes, state=state), units)
    yield Column("Total"), _sizes(result, lambda memory: memory.gpu.model_states_bytes, units)
    if any(row.memory and peaks_above_states(row.memory) for row in result.results):
        yield Column("Peak"), _sizes(result, lambda memory: memory.gpu.peak_bytes, units)
    yield Column("Floor"), _sizes(result, lambda memory: memory.gpu.floor_bytes, units)


def _wire(row: StrategyResult) -> Cell:
    return NONE if row.communication is None else Cell(numbers.times_psi(row.communication.volume_params))


def _several_dtypes(rows: list[StrategyResult]) -> bool:
    """Whether a Ψ on the wire is not the same bytes everywhere."""
    wires = [row.communication for row in rows if row.communication is not None]
    return len({each.dtype for wire in wires for each in wire.collectives if each.volume_params}) > 1


def _sent_cells(rows: list[StrategyResult], units: str) -> list[Cell]:
    sent = [row.communication.sent_bytes_per_rank if row.communication else None for row in rows]
    return [NONE if text == numbers.NOTHING else Cell(text) for text in numbers.column(sent, units)]


def _peaks(result: Estimates) -> Iterator[Note]:
    """When the peak falls, and what takes most of it, where more than model states is counted; a line per framework."""
    for framework in dict.fromkeys(row.framework for row in result.results):
        shown: dict[str, list[str]] = {}
        for row in result.results:
            if row.framework == framework and row.memory and peaks_above_states(row.memory):
                where = f"{when(row.memory.gpu.peak_phase)}, most of it {words(row.binding or 'nothing')}"
                shown.setdefault(where, []).append(label_of(row.strategy))
        if shown:
            each = [f"{', '.join(labels)} {where}" for where, labels in shown.items()]
            yield Note("; ".join(each), f"Peak under {framework}" if _several(result) else "Peak")


def _several(result: Estimates) -> bool:
    return len({row.framework for row in result.results}) > 1


def _tier_table(result: Estimates, look: Look) -> Table:
    """Host and NVMe, per rank and per node, with its own verdict."""
    rows = [row for row in result.results if row.memory is not None]
    columns: list[tuple[Column, list[Cell]]] = [
        (Column("Strategy", right=False), [Cell(label_of(row.strategy), "strong") for row in rows])
    ]
    for name, tier in (("Host", "cpu"), ("NVMe", "nvme")):
        held: list[TierMemory] = [getattr(row.memory, tier) for row in rows]
        if any(memory.terms for memory in held):
            columns += _tier_columns(name, held, look.units)
    title = f"Off the GPU; {look.units} per rank and per node"
    return Table(
        title,
        tuple(column for column, _ in columns),
        tuple(zip(*(filled for _, filled in columns), strict=True)),
    )


def _tier_columns(name: str, held: list[TierMemory], units: str) -> Iterator[tuple[Column, list[Cell]]]:
    yield (
        Column(f"{name}/rank"),
        list(cells(numbers.column([memory.bytes_per_rank for memory in held], units))),
    )
    if any(memory.bytes_per_node is not None for memory in held):
        yield (
            Column(f"{name}/node"),
            list(cells(numbers.column([memory.bytes_per_node for memory in held], units))),
        )
    if any(memory.capacity_bytes is not None for memory in held):
        yield (
            Column("Capacity"),
            list(cells(numbers.column([memory.capacity_bytes for memory in held], units))),
        )
        yield Column("Fits"), [verdict(memory.fits) for memory in held]


def _dividing(result: Estimates, line: DividingLine, units: str) -> str:
    """The dividing line in words: whether parameters kept whole fit one GPU, and what follows."""
    degrees = asked(result.request, "tp", 1) * asked(result.request, "pp", 1)
    per_param = dtype_bytes(asked(result.request, "param_dtype", "bf16"))
    symbol = f"{numbers.short(float(per_param))}Ψ" + ("/(tp·pp)" if degrees > 1 else "")
    whole, room = (
        numbers.with_unit(line.whole_params_bytes, units),
        numbers.with_unit(line.capacity_bytes, units),
    )
    if not line.whole_params_fit:
        return (
            f"Parameters kept whole ({symbol}) take {whole} and one GPU has {room}: no number of GPUs helps "
            "ZeRO-1 or ZeRO-2, parameters must be sharded (ZeRO-3)"
        )
    without = " without offload" if any(_offloads(row) for row in result.results) else ""
    least = line.zero2_min_data_parallel_size
    if least is None:
        return (
            f"Parameters kept whole ({symbol}) take {whole} of {room}, yet ZeRO-2 fits with no number of GPUs"
        )
    return (
        f"Parameters kept whole ({symbol}) take {whole} of {room}: ZeRO-2 fits from N_d = {least} on{without}"
    )


def _next(result: Estimates, look: Look) -> Verbatim:
    """The one command most worth running after this answer."""
    if all(row.capacity_bytes is None for row in result.results):
        return next_command(look, "compare", "--gpu 80GB", *scope(result.results))
    fitting = [row for row in result.results if row.fits]
    if not fitting:
        return next_command(look, "solve gpus", *scope([row for row in result.results if row.applicable]))
    best = min(fitting, key=_sent)
    return next_command(look, "estimate", *scope([best]))


def _sent(row: StrategyResult) -> Any:
    return row.communication.sent_bytes_per_rank if row.communication else 0
