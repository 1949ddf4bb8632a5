"""`plan`: the configurations to run, why the first is first, or what comes nearest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.render import numbers
from zerocalc.render.document import Block, Cell, Column, Document, Note, Table
from zerocalc.render.views.common import label_of, machine_of, next_command, notes_of, size_of, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zerocalc.render import Look
    from zerocalc.results.sweep import Difference, PlanAnswer, Planned


HELD_SHOWN = 3


def view(result: PlanAnswer, look: Look) -> Document:
    """The list, then why, then the notes and the next command."""
    blocks: list[Block] = []
    shown = result.plans or ([result.closest] if result.closest else [])
    if shown:
        blocks.append(_table(result, shown, look))
    blocks.append(Note(_counts(result)))
    if not result.plans:
        blocks.append(
            Note("the closest configuration is shown; it is over by what Left says", "Nothing fits", "bad")
        )
        blocks += [Note(line, "It would fit with") for line in result.advice]
    if result.differences:
        blocks.append(Note(_why(result.differences, look.units), "1 before 2"))
    blocks += notes_of(result)
    if result.plans:
        blocks.append(next_command(look, "estimate", result.plans[0].command))
    return Document(tuple(blocks))


def _counts(result: PlanAnswer) -> str:
    return (
        f"{result.num_candidates:,} candidates at a global batch of {result.global_batch:,} sequences, "
        f"{result.num_evaluated:,} answered in full, {result.num_fitting:,} of these fit"
    )


def _table(result: PlanAnswer, shown: Sequence[Planned], look: Look) -> Table:
    columns: list[tuple[Column, list[Cell]]] = [
        (Column("#"), [Cell(str(row.place) if row.place else numbers.NOTHING, "strong") for row in shown]),
        (Column("Strategy", right=False), [Cell(label_of(row.strategy), "strong") for row in shown]),
    ]
    for degree in ("tp", "pp", "cp", "ep"):
        values = [getattr(row, degree) for row in shown]
        if any(value != 1 for value in values):
            columns.append((Column(degree), [Cell(str(value)) for value in values]))
    columns.append((Column("Batch"), [Cell(f"{row.micro_batch}×{row.grad_accum}") for row in shown]))
    if any(row.checkpointing != "none" for row in shown):
        columns.append((Column("Recompute", right=False), [Cell(row.checkpointing) for row in shown]))
    if any(_offload(row) != "none" for row in shown):
        columns.append((Column("Offload", right=False), [Cell(_offload(row)) for row in shown]))
    peaks = numbers.column([row.peak_bytes for row in shown], look.units)
    left = numbers.column([row.headroom_bytes for row in shown], look.units)
    columns += [
        (Column("Peak"), [Cell(text) for text in peaks]),
        (
            Column("Left"),
            [
                Cell(text, "good" if row.headroom_bytes >= 0 else "bad")
                for text, row in zip(left, shown, strict=True)
            ],
        ),
        (Column("s/step ≤"), [Cell(numbers.short(row.step_s_upper)) for row in shown]),
        (Column("s/step ≥"), [Cell(numbers.short(row.step_s_lower)) for row in shown]),
        (Column("tokens/s ≥"), [Cell(numbers.short(row.tokens_per_s_lower)) for row in shown]),
    ]
    each = machine_of(result.request, look.units)
    title = f"{size_of(result.request)}{f', {each}' if each else ''}; {look.units} per GPU"
    return Table(
        title,
        tuple(column for column, _ in columns),
        tuple(zip(*(cells for _, cells in columns), strict=True)),
    )


def _offload(row: Planned) -> str:
    """`optimizer cpu`, `optimizer nvme, params cpu`, or none."""
    parts = [(name, getattr(row, f"offload_{name}")) for name in ("optimizer", "params")]
    return ", ".join(f"{name} {tier}" for name, tier in parts if tier != "none") or "none"


def _why(differences: Sequence[Difference], units: str) -> str:
    """The differences in words, seconds first, and of what is held only the largest."""
    held = [item for item in differences if item.name.startswith("peak.")]
    held = sorted(held, key=lambda item: max(item.value or 0, item.against or 0), reverse=True)[:HELD_SHOWN]
    parts = [
        f"{_name(item.name)} {_amount(item.value, item.unit, units)} against {_amount(item.against, item.unit, units)}"
        for item in differences
        if item in held or not item.name.startswith("peak.")
    ]
    return "; ".join(parts)


_NAMES = {
    "step_s_upper": "a step takes at most", "step_s_lower": "at least", "compute_s": "compute",
    "intra_node_s": "links in the node", "inter_node_s": "links between nodes", "host_s": "PCIe", "nvme_s": "NVMe",
    "cpu_optimizer_s": "update on the CPU", "bubble_factor": "pipeline bubble", "sent_bytes_per_rank": "sent per rank",
    "peak_bytes": "peak",
}  # fmt: skip


def _name(name: str) -> str:
    return _NAMES.get(name, f"{words(name.removeprefix('peak.'))} at the peak")


def _amount(value: float | None, unit: str, units: str) -> str:
    if value is None:
        return "nothing"
    if unit == "byte":
        return numbers.with_unit(int(value), units)
    return f"{numbers.short(value)} s" if unit == "s" else numbers.short(value)
