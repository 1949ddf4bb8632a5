"""An answer laid out as a page: the sections of a report, each made of the same blocks as a terminal's answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerocalc.render import document_of, numbers
from zerocalc.render.document import Block, Cell, Column, Note, Table, Verbatim, cells
from zerocalc.render.figures import by_framework, series_label
from zerocalc.render.views.common import NONE, machine_of, named, size_of
from zerocalc.render.views.estimate import collectives_table, terms_table

if TYPE_CHECKING:
    from zerocalc.render import Look
    from zerocalc.results import Estimates, Resolved, StrategyResult
    from zerocalc.results.curve import Curve

NOTES = ("Warning", "Assumed", "Not counted")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One configuration in three lines."""

    name: str
    fits: bool | None
    words: str
    peak: str


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of the page; a folded one shows its title until it is opened."""

    title: str
    blocks: tuple[Block, ...]
    folded: bool = False


def title_of(result: Any) -> str:
    """What the page is about."""
    request = getattr(result, "request", None)
    about = size_of(request) if request and "num_params" in request else ""
    return about or f"zerocalc {result.kind}"


def machine_line(result: Any, units: str) -> str:
    """The GPU and its memory; empty where none is given."""
    request = getattr(result, "request", None)
    return machine_of(request, units) if request else ""


def verdicts(result: Any, look: Look) -> list[Verdict]:
    """Every configuration's verdict, for a reader who reads no further."""
    rows = [row for row in getattr(result, "results", ()) if row.memory is not None]
    peaks = numbers.column([row.memory.gpu.peak_bytes for row in rows], look.units)
    return [
        Verdict(named(row, rows), row.fits, _verdict(row, look.units), f"{peak} {look.units}")
        for row, peak in zip(rows, peaks, strict=True)
    ]


def _verdict(row: StrategyResult, units: str) -> str:
    if row.headroom_bytes is None:
        return "no GPU given"
    amount = numbers.with_unit(abs(row.headroom_bytes), units)
    return f"fits, {amount} left" if row.fits else f"does not fit, {amount} too much"


def answer(result: Any, look: Look) -> tuple[Section, Section | None, str]:
    """The answer as a terminal shows it, its notes apart, and the next command."""
    blocks = document_of(result, look).blocks
    notes = tuple(block for block in blocks if isinstance(block, Note) and block.label in NOTES)
    following = [block.text for block in blocks if isinstance(block, Verbatim) and block.tone == "link"]
    rest = tuple(
        block
        for block in blocks
        if block not in notes and not (isinstance(block, Verbatim) and block.tone == "link")
    )
    section = Section("Assumed and not counted", notes) if notes else None
    return Section("Answer", rest), section, following[0] if following else ""


def behind(result: Any, look: Look) -> Iterator[Section]:
    """What the answer rests on: the wire, every term, the curves' numbers, the request."""
    if result.kind == "compare":
        yield Section("On the wire", (_wire(result, look.units),))
        for row in result.results:
            if row.memory is not None:
                yield Section(
                    f"{named(row, result.results)} in full", tuple(_full(row, look.units)), folded=True
                )
    if getattr(result, "curves", ()):
        yield Section("Numbers of the curves", tuple(_curves(result, look.units)), folded=True)
    if getattr(result, "request", None):
        yield Section(
            "What was asked, and where each value is from", (_request(result.request),), folded=True
        )


def _wire(result: Estimates, units: str) -> Table:
    rows = [row for row in result.results if row.communication is not None]
    sent = numbers.column([row.communication.sent_bytes_per_rank for row in rows if row.communication], units)
    body = []
    for row, amount in zip(rows, sent, strict=True):
        assert row.communication is not None
        wire = row.communication
        body.append(
            cells(
                [
                    Cell(named(row, rows), "strong"),
                    numbers.times_psi(wire.volume_params),
                    f"{numbers.short(wire.volume_ratio_to_ddp)}×",
                    numbers.times_psi(wire.inter_node_volume_params),
                    amount,
                    numbers.count(sum(each.count for each in wire.collectives)),
                ]
            )
        )
    columns = (
        Column("Strategy", right=False),
        *map(Column, ("Volume", "Of DDP", "Across nodes", "Sent", "Calls")),
    )
    return Table(f"In one optimizer step; {units} sent per GPU", columns, tuple(body))


def _full(row: StrategyResult, units: str) -> Iterator[Block]:
    assert row.memory is not None
    assert row.communication is not None
    for tier, where in (("gpu", "GPU"), ("cpu", "Host"), ("nvme", "NVMe")):
        memory = getattr(row.memory, tier)
        if memory.terms:
            yield terms_table(f"{where}; {units} per rank by phase", memory.terms, memory.phases, units)
    yield collectives_table(row.communication, units)


def _curves(result: Estimates, units: str) -> Iterator[Table]:
    """One row per degree, one column per strategy, and what stays."""
    grouped = by_framework(result.curves)
    for framework, curves in grouped.items():
        of = f", {framework}" if len(grouped) > 1 else ""
        yield _curve_table(f"Peak by data-parallel degree{of}; {units} per GPU", curves, units)


def _curve_table(title: str, curves: list[Curve], units: str) -> Table:
    degrees = sorted({point.data_parallel_size for curve in curves for point in curve.points})
    columns: list[list[Cell]] = [
        [*(Cell(numbers.count(degree)) for degree in degrees), Cell("stays", "strong")]
    ]
    for curve in curves:
        at = {point.data_parallel_size: point for point in curve.points}
        amounts = [
            *(at[degree].peak_bytes if degree in at else None for degree in degrees),
            curve.constant_bytes,
        ]
        texts = numbers.column(amounts, units)
        shown = [
            NONE if degree not in at else Cell(text, "good" if at[degree].fits else "plain")
            for degree, text in zip(degrees, texts, strict=False)
        ]
        columns.append([*shown, Cell(texts[-1], "strong")])
    headers = [Column("N_d"), *(Column(series_label(curve.strategy, "")) for curve in curves)]
    return Table(title, tuple(headers), tuple(zip(*columns, strict=True)), total=True)


def _request(request: dict[str, Resolved]) -> Table:
    rows = tuple(
        cells([word, numbers.value(item.value), item.origin])
        for word, item in request.items()
        if item.value is not None
    )
    return Table(
        "Every value with its origin",
        tuple(Column(n, right=False) for n in ("Word", "Value", "Origin")),
        rows,
    )
