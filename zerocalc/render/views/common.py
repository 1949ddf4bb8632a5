"""What several views say alike: notes under a table, the next command, the request in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.render import numbers
from zerocalc.render.document import Cell, Note, Tone, Verbatim
from zerocalc.strategies import COMPARED, STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from zerocalc.render import Look
    from zerocalc.results import Memory, Resolved, StrategyResult

PAPER = "paper"
PHASE_LABELS = {
    "initialization": "Initialization",
    "at_rest": "At rest",
    "forward_backward": "Forward+backward",
    "backward_end": "Backward end",
    "optimizer_step": "Optimizer step",
}
GOOD: Tone = "good"
BAD: Tone = "bad"
NONE = Cell(numbers.NOTHING, "faint")


def asked(request: Mapping[str, Resolved], word: str, default: Any = None) -> Any:
    """One value of the resolved job, by its word."""
    found = request.get(word)
    return default if found is None else found.value


def label_of(strategy: str) -> str:
    """A strategy as it is printed: `ZeRO-3`."""
    row = STRATEGIES.get(strategy)
    return strategy if row is None else row.label


def phase_label(phase: str) -> str:
    """A phase as it is printed."""
    return PHASE_LABELS.get(phase, phase.replace("_", " ").capitalize())


def when(phase: str) -> str:
    """A phase inside a sentence: `at rest`, `in forward+backward`."""
    label = phase_label(phase)
    return label.lower() if label.startswith("At ") else f"in {label.lower()}"


def words(name: str) -> str:
    """A wire name as words: `optimizer_states` is read as optimizer states."""
    return name.replace("_", " ")


def size_of(request: Mapping[str, Resolved]) -> str:
    """`70b: 70,000,000,000 parameters on 64 GPUs`, with the degrees that are not one."""
    params, name = asked(request, "num_params"), asked(request, "model")
    gpus = asked(request, "world_size")
    what = f"{numbers.count(params)} parameters" if params is not None else "no model"
    named = f"{name}: {what}" if name and str(params) != str(name) else what
    degrees = [
        f"{degree} {asked(request, degree, 1)}"
        for degree in ("tp", "pp", "cp", "ep", "etp")
        if asked(request, degree, 1) != 1
    ]
    if degrees:
        degrees.insert(0, f"dp {asked(request, 'data_parallel_size')}")
    where = f"{numbers.count(gpus)} GPU{'s' if gpus != 1 else ''}" if gpus is not None else "GPUs unknown"
    return f"{named} on {where}" + (f" ({', '.join(degrees)})" if degrees else "")


def machine_of(request: Mapping[str, Resolved], units: str) -> str:
    """`80.0 GB each`, with the GPU's name and the reserve where there are some; empty without a GPU.

    A named GPU is sold in GB that are GiB, nearly: both are shown.
    """
    capacity = asked(request, "capacity_bytes")
    if capacity is None:
        return ""
    reserve = asked(request, "reserve_bytes", 0)
    gpu = asked(request, "gpu")
    named = f"{gpu}, " if gpu and not str(gpu)[:1].isdigit() else ""
    kept = f", {numbers.with_unit(reserve, units)} kept free" if reserve else ""
    size = numbers.with_unit(capacity, units)
    if named and units == "GB":
        size += f" ({numbers.with_unit(capacity, 'GiB')})"
    return f"{named}{size} each{kept}"


def state_bytes(memory: Memory, state: str, tier: str = "gpu") -> int:
    """The terms of one state on one tier."""
    return sum(term.bytes for term in getattr(memory, tier).terms if term.state == state)


def peaks_above_states(memory: Memory) -> bool:
    """Whether the peak is more than model states, because other terms are counted."""
    return memory.gpu.peak_bytes > memory.gpu.model_states_bytes


def fits_cells(results: Iterable[StrategyResult], units: str) -> list[Cell]:
    """`yes +62.5`, `no −1040.0`, or why there is no verdict."""
    listed = list(results)
    decimals = numbers.decimals_for((row.headroom_bytes for row in listed), units)
    return [_fits_cell(row, units, decimals) for row in listed]


def _fits_cell(row: StrategyResult, units: str, decimals: int) -> Cell:
    if not row.applicable:
        return Cell("n/a", "faint")
    if row.headroom_bytes is None:
        return NONE
    word, tone = ("yes", GOOD) if row.fits else ("no", BAD)
    return Cell(f"{word} {numbers.headroom(row.headroom_bytes, units, decimals)}", tone)


def verdict(fits: bool | None) -> Cell:
    """Yes, no, or a dash where it is not known."""
    return NONE if fits is None else Cell("yes", "good") if fits else Cell("no", "bad")


def notes_of(result: Any) -> Iterator[Note]:
    """Warnings first, then what was assumed and what is not counted."""
    for warning in result.warnings:
        yield Note(warning, "Warning", "warning")
    for assumption in result.assumptions:
        yield Note(assumption, "Assumed")
    for missing in result.excluded:
        yield Note(missing, "Not counted")


def by_group(substituted: str) -> str:
    """A sum over groups of equal tensors, one group a line; any other formula as it is."""
    lines, depth, start = [], 0, 0
    for index, character in enumerate(substituted):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and substituted.startswith(" + ", index):
            lines.append(substituted[start:index])
            start = index + 1
    return "\n    ".join([*lines, substituted[start:]])


def named(row: StrategyResult, rows: Sequence[StrategyResult]) -> str:
    """A strategy's label, with its framework where the answer has several."""
    several = len({each.framework for each in rows}) > 1
    return f"{label_of(row.strategy)} ({row.framework})" if several else label_of(row.strategy)


def scope(rows: Sequence[StrategyResult], *, usual: Sequence[str] = COMPARED) -> list[str]:
    """The flags that ask for these rows' strategies and frameworks again; none where they are the usual ones."""
    strategies = list(dict.fromkeys(row.strategy for row in rows))
    frameworks = list(dict.fromkeys(row.framework for row in rows))
    flags = [f"--strategy {','.join(strategies)}"] if strategies != list(usual) else []
    return flags + ([f"--framework {','.join(frameworks)}"] if frameworks != [PAPER] else [])


def next_command(look: Look, command: str, *more: str) -> Verbatim:
    """One command worth running now."""
    parts = ["zerocalc", *command.split(), look.arguments, *more]
    return Verbatim(" ".join(part for part in parts if part), "Next", "link")
