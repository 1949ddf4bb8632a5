"""`solve`: the unknown under each strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.render import numbers
from zerocalc.render.document import Block, Cell, Column, Document, Note, Table, Verbatim
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
    from collections.abc import Iterator

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
    blocks += _next(result, look)
    return Document(tuple(blocks))


NEXT = {
    "params": "compare {value}",
    "gpus": "compare --gpus {value}",
    "strategy": "estimate --strategy {value}",
    "micro-batch": "estimate --micro-batch {value} --strategy {strategy}",
    "seq-len": "estimate --seq-len {value} --strategy {strategy}",
}
"""The command that shows more of an answer, by what was asked."""
_LEAST_IS_BEST = {"gpus"}


def _next(result: Solution, look: Look) -> Iterator[Verbatim]:
    """What to ask of the best answer, where there is one."""
    answered = [answer for answer in result.answers if answer.value is not None]
    if not answered or result.quantity not in NEXT:
        return
    order = min if result.quantity in _LEAST_IS_BEST else max
    best = order(answered, key=lambda answer: answer.value if isinstance(answer.value, int) else 0)
    asked_in = asked(result.request, "framework", PAPER)
    framework = [] if asked_in == PAPER else [f"--framework {asked_in}"]
    command, *options = NEXT[result.quantity].format(value=best.value, strategy=best.strategy).split(" --")
    yield next_command(look, command, *(f"--{option}" for option in options), *framework)


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
