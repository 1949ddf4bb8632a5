"""`solve`: the unknown under each strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.render import numbers
from zerocalc.render.document import Block, Cell, Column, Document, Note, Table
from zerocalc.render.views.common import (
    NONE,
    PAPER,
    asked,
    label_of,
    machine_of,
    next_command,
    notes_of,
    size_of,
    words,
)

if TYPE_CHECKING:
    from zerocalc.render import Look
    from zerocalc.results import Solution, SolveAnswer

QUESTIONS = {
    "params": ("Params", "Largest model that fits"),
    "gpus": ("GPUs", "Fewest GPUs that fit"),
    "strategy": ("Answer", "Strategy that fits and sends least"),
    "micro-batch": ("Micro-batch", "Largest micro-batch that fits"),
    "seq-len": ("Tokens", "Longest sequence that fits"),
}


def view(result: Solution, look: Look) -> Document:
    """The answers, why there is none where there is none, the notes, the next command."""
    blocks: list[Block] = [_table(result, look)]
    for answer in result.answers:
        if answer.value is None and answer.reason:
            name = "" if answer.strategy == "none" else label_of(answer.strategy)
            blocks.append(Note(answer.reason, name))
    blocks += notes_of(result)
    asked_in = asked(result.request, "framework", PAPER)
    framework = [] if asked_in == PAPER else [f"--framework {asked_in}"]
    answered = [answer.strategy for answer in result.answers if answer.value is not None]
    if answered and result.quantity == "strategy":
        blocks.append(next_command(look, "estimate", f"--strategy {answered[0]}", *framework))
    elif answered and result.quantity == "gpus":
        best = min((a for a in result.answers if a.value is not None), key=lambda a: int(a.value or 0))
        blocks.append(next_command(look, "compare", f"--gpus {best.value}", *framework))
    return Document(tuple(blocks))


def _title(result: Solution, look: Look) -> str:
    _, question = QUESTIONS.get(result.quantity, ("Value", f"Solved for {words(result.quantity)}"))
    gpus = asked(result.request, "world_size")
    about = f"{gpus} GPUs" if result.quantity == "params" and gpus else size_of(result.request)
    if result.quantity == "gpus":
        params, name = asked(result.request, "num_params"), asked(result.request, "model")
        about = f"{name or ''}: {numbers.count(params)} parameters".removeprefix(": ")
    each = machine_of(result.request, look.units)
    return f"{question}: {about}{f', {each}' if each else ''}; {look.units} per GPU"


def _table(result: Solution, look: Look) -> Table:
    header, _ = QUESTIONS.get(result.quantity, ("Value", ""))
    answers = result.answers
    columns: list[tuple[Column, list[Cell]]] = [
        (Column("Strategy", right=False), [Cell(_name(answer), "strong") for answer in answers]),
        (Column(header), [_value(answer) for answer in answers]),
    ]
    if any(answer.data_parallel_size is not None for answer in answers):
        degrees = [
            NONE if a.data_parallel_size is None else Cell(numbers.count(a.data_parallel_size))
            for a in answers
        ]
        columns.append((Column("N_d"), degrees))
    peaks = numbers.column([answer.peak_bytes for answer in answers], look.units)
    left = numbers.column([answer.headroom_bytes for answer in answers], look.units)
    columns += [
        (Column("Peak"), [Cell(text) for text in peaks]),
        (Column("Left"), [Cell(text) for text in left]),
        (Column("Most of it", right=False), [Cell(words(a.binding)) if a.binding else NONE for a in answers]),
    ]
    return Table(
        _title(result, look),
        tuple(column for column, _ in columns),
        tuple(zip(*(filled for _, filled in columns), strict=True)),
    )


def _name(answer: SolveAnswer) -> str:
    return label_of(answer.strategy)


def _value(answer: SolveAnswer) -> Cell:
    if answer.value is None:
        return Cell("none", "bad")
    text = answer.value if isinstance(answer.value, str) else numbers.count(answer.value)
    return Cell(text, "good")
