"""`estimate`: one configuration in full, every term in every phase, every collective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.render import numbers
from zerocalc.render.document import Block, Cell, Column, Document, Note, Table, Tone, cells
from zerocalc.render.views import timing
from zerocalc.render.views.common import (
    label_of,
    machine_of,
    next_command,
    notes_of,
    phase_label,
    scope,
    size_of,
    when,
    words,
)
from zerocalc.render.views.compare import OFFLOAD_LINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from zerocalc.render import Look
    from zerocalc.results import Communication, Estimates, StrategyResult, TermResult, TierMemory

TIERS = {"cpu": "Host", "nvme": "NVMe"}
MOST_PHASES = 6
"""So many phases are read as columns; the frameworks model up to twice as many."""
LARGEST = 3
"""So many terms are named as most of a phase."""


def view(result: Estimates, look: Look) -> Document:
    """Terms by phase on every tier, the verdict, the wire, the notes, the next command."""
    blocks: list[Block] = []
    for row in result.results:
        blocks += _one(result, row, look)
    blocks += notes_of(result)
    blocks.append(next_command(look, "explain total", *scope(result.results)))
    return Document(tuple(blocks))


def _one(result: Estimates, row: StrategyResult, look: Look) -> Iterator[Block]:
    assert row.memory is not None
    assert row.communication is not None
    units, gpu = look.units, row.memory.gpu
    each = machine_of(result.request, units)
    title = (
        f"{label_of(row.strategy)} ({row.framework}), {size_of(result.request)}{f', {each}' if each else ''}"
    )
    yield from terms_tables(f"{title}; {units} per GPU by phase", gpu.terms, gpu.phases, units)
    for tier, label in TIERS.items():
        memory: TierMemory = getattr(row.memory, tier)
        if memory.terms:
            yield from terms_tables(f"{label}; {units} per rank by phase", memory.terms, memory.phases, units)
    yield collectives_table(row.communication, units)
    if row.time is not None:
        yield from timing.in_full(result, row, row.time, units)
    yield Note(_peak(row, units), "Peak")
    yield _floor(row, units)
    yield _more_gpus(row, units)
    for tier, label in TIERS.items():
        yield from _tier(label, getattr(row.memory, tier), units)
    yield from _links(row.communication, units)
    if (row.offload.optimizer, row.offload.params) != ("none", "none"):
        yield Note(OFFLOAD_LINE)


def terms_tables(title: str, terms: list[TermResult], phases: dict[str, int], units: str) -> Iterator[Table]:
    """Terms by phase; of many phases the sums and what is live in them stand apart, to be read at a glance."""
    if len(phases) <= MOST_PHASES:
        yield terms_table(title, terms, phases, units)
        return
    yield _sums_table(title, terms, phases, units)
    yield _live_table(f"Terms; {units}", terms, phases, units)


def _sums_table(title: str, terms: list[TermResult], phases: dict[str, int], units: str) -> Table:
    """A line per phase: its sum, and the largest of what is live in it."""
    decimals = numbers.decimals_for(list(phases.values()), units)
    rows = []
    for phase, total in phases.items():
        live = sorted((t for t in terms if phase in t.phases), key=lambda term: -term.bytes)[:LARGEST]
        told = ", ".join(f"{words(t.name)} {numbers.in_units(t.bytes, units, 1)}" for t in live)
        weight: Tone = "strong" if total == max(phases.values()) else "plain"
        rows.append(
            (
                Cell(phase_label(phase), weight),
                Cell(numbers.in_units(total, units, decimals), weight),
                Cell(told),
            )
        )
    return Table(
        title, (Column("Phase", right=False), Column("Sum"), Column("Most of it", right=False)), tuple(rows)
    )


def _live_table(title: str, terms: list[TermResult], phases: dict[str, int], units: str) -> Table:
    """A line per term: its bytes, and when it is live."""
    decimals = numbers.decimals_for([term.bytes for term in terms], units)
    parts = len({term.part for term in terms}) > 1
    rows = [
        cells(
            [
                words(term.name),
                *([term.part] if parts else []),
                numbers.count(term.sharded_over),
                numbers.in_units(term.bytes, units, decimals),
                _when_live(term.phases, phases),
            ]
        )
        for term in terms
    ]
    columns = [Column("Term", right=False), *([Column("Part", right=False)] if parts else [])]
    columns += [Column("Ranks"), Column("Held"), Column("Live in", right=False)]
    return Table(title, tuple(columns), tuple(rows))


def _when_live(live: list[str], phases: dict[str, int]) -> str:
    """`throughout`, `all but …`, or the phases by name, whichever is shortest."""
    absent = [phase_label(phase).lower() for phase in phases if phase not in live]
    if not absent:
        return "throughout"
    present = [phase_label(phase).lower() for phase in phases if phase in live]
    return f"all but {', '.join(absent)}" if len(absent) < len(present) else ", ".join(present)


def terms_table(title: str, terms: list[TermResult], phases: dict[str, int], units: str) -> Table:
    """Terms down, phases across, sums below: a term stands in the phases in which it is live."""
    several = len({term.part for term in terms}) > 1
    held = [term.bytes for term in terms] + list(phases.values())
    decimals = numbers.decimals_for(held, units)
    columns = [
        Column("Term", right=False),
        *([Column("Part", right=False)] if several else []),
        Column("Ranks"),
    ]
    rows = [
        cells([words(name), *([part] if several else []), numbers.count(ranks)])
        + tuple(_live(live.get(phase), units, decimals) for phase in phases)
        for (name, part, ranks), live in _lines(terms)
    ]
    blank = [""] * (len(columns) - 1)
    sums = (Cell(numbers.in_units(total, units, decimals), "strong") for total in phases.values())
    rows.append((Cell("Sum", "strong"), *cells(blank), *sums))
    columns += [Column(phase_label(phase)) for phase in phases]
    return Table(title, tuple(columns), tuple(rows), total=True)


def _lines(terms: Iterable[TermResult]) -> list[tuple[tuple[str, str, int], dict[str, TermResult]]]:
    """A line per term; terms of one name that are never live together share theirs."""
    lines: list[tuple[tuple[str, str, int], dict[str, TermResult]]] = []
    for term in terms:
        key = (term.name, term.part, term.sharded_over)
        live = next(
            (live for name, live in lines if name == key and live.keys().isdisjoint(term.phases)), None
        )
        if live is None:
            lines.append((key, live := {}))
        live |= dict.fromkeys(term.phases, term)
    return lines


def _live(term: TermResult | None, units: str, decimals: int) -> Cell:
    if term is None:
        return Cell(numbers.NOTHING, "faint")
    return Cell(numbers.in_units(term.bytes, units, decimals))


def _peak(row: StrategyResult, units: str) -> str:
    assert row.memory is not None
    gpu = row.memory.gpu
    text = f"{numbers.with_unit(gpu.peak_bytes, units)} {when(gpu.peak_phase)}"
    if row.binding:
        text += f", most of it {words(row.binding)}"
    if row.rank_class != "all":
        text += f", on {row.rank_class}"
    if row.headroom_bytes is None or row.capacity_bytes is None:
        return text
    room = numbers.with_unit(abs(row.headroom_bytes), units)
    of = numbers.with_unit(row.capacity_bytes, units)
    kept = f" less {numbers.with_unit(row.reserve_bytes, units)} kept free" if row.reserve_bytes else ""
    return f"{text}; {f'fits, yes: {room} left' if row.fits else f'fits, no: {room} too much'} of {of}{kept}"


def _floor(row: StrategyResult, units: str) -> Note:
    assert row.memory is not None
    floor = numbers.with_unit(row.memory.gpu.floor_bytes, units)
    states = numbers.with_unit(row.memory.gpu.model_states_bytes, units)
    saved = "" if row.savings_factor is None else f", {numbers.short(row.savings_factor)}× less than DDP"
    return Note(f"{states} per GPU{saved}; {floor} would stay however many GPUs share it", "Model states")


def _more_gpus(row: StrategyResult, units: str) -> Note:
    """The peak as a constant and a part that falls with N_d, and where the latter no longer matters."""
    assert row.memory is not None
    gpu = row.memory.gpu
    if not gpu.falling_bytes:
        text = "no part of the peak falls as N_d grows"
    elif gpu.enough_data_parallel_size is None:
        text = "all of the peak falls as 1/N_d, so every further one helps"
    else:
        falls = numbers.with_unit(gpu.falling_bytes, units)
        stays = numbers.with_unit(gpu.constant_bytes, units)
        enough = numbers.count(gpu.enough_data_parallel_size)
        text = f"{falls} of the peak fall as 1/N_d, {stays} stay: from N_d = {enough} on adding GPUs stops helping"
    return Note(text, "More GPUs")


def _tier(label: str, memory: TierMemory, units: str) -> Iterator[Note]:
    if not memory.terms:
        return
    text = f"{numbers.with_unit(memory.bytes_per_rank, units)} per rank"
    if memory.bytes_per_node is not None:
        text += f", {numbers.with_unit(memory.bytes_per_node, units)} per node"
    if memory.capacity_bytes is not None:
        text += f" of {numbers.with_unit(memory.capacity_bytes, units)}"
    if memory.fits is not None:
        text += ": fits, yes" if memory.fits else ": fits, no"
    yield Note(text, label)


def collectives_table(wire: Communication, units: str) -> Table:
    """Every collective of a step, their volumes and bytes summed."""
    sent = numbers.column([row.sent_bytes for row in wire.collectives] + [wire.sent_bytes_per_rank], units)
    rows = [
        cells(
            [
                words(row.op), words(row.tensor), row.dtype, words(row.phase), numbers.count(row.group_size),
                numbers.count(row.count), numbers.times_psi(row.volume_params), text,
            ]
        )
        for row, text in zip(wire.collectives, sent, strict=False)
    ]  # fmt: skip
    parts = {row.part for row in wire.collectives}
    if len(parts) > 1:
        named = zip(rows, wire.collectives, strict=True)
        rows = [(*row[:2], Cell(collective.part), *row[2:]) for row, collective in named]
    headers = ["Collective", "Tensor", *(["Part"] if len(parts) > 1 else []), "Dtype", "When"]
    columns = [
        *(Column(name, right=False) for name in headers),
        *map(Column, ("Ranks", "Calls", "Volume", "Sent")),
    ]
    last = [Cell("Sum", "strong"), *cells([""] * (len(columns) - 3))]
    last += [Cell(numbers.times_psi(wire.volume_params), "strong"), Cell(sent[-1], "strong")]
    return Table(
        f"On the wire in one optimizer step; {units} sent per GPU",
        tuple(columns),
        (*rows, tuple(last)),
        total=True,
    )


def _links(wire: Communication, units: str) -> Iterator[Note]:
    host, nvme = wire.links.host, wire.links.nvme
    pairs: Iterable[tuple[str, tuple[tuple[str, int], ...]]] = (
        ("PCIe", (("to the host", host.to_host_bytes), ("back", host.from_host_bytes))),
        ("NVMe traffic", (("read", nvme.read_bytes), ("written", nvme.write_bytes))),
    )
    for label, moved in pairs:
        if any(amount for _, amount in moved):
            text = ", ".join(f"{numbers.with_unit(amount, units)} {how}" for how, amount in moved)
            yield Note(f"{text} per GPU and optimizer step", label)
