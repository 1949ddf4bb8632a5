"""`params`: what a model is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.render import numbers
from zerocalc.render.document import Block, Cell, Column, Document, Facts, Table, cells
from zerocalc.render.views.common import next_command, notes_of, words

if TYPE_CHECKING:
    from zerocalc.render import Look


def view(result: Any, look: Look) -> Document:
    """The counts, then the groups of tensors behind them."""
    counts = tuple(
        (words(name.removeprefix("num_")), numbers.count(number)) for name, number in _counts(result)
    )
    blocks: list[Block] = [Facts(f"Parameters of {getattr(result, 'name', None) or 'the model'}", counts)]
    if getattr(result, "layers", None):
        blocks.append(_layers(result.layers))
    blocks += notes_of(result)
    blocks.append(next_command(look, "compare", "--gpus 64 --gpu 80GB"))
    return Document(tuple(blocks))


def _counts(result: Any) -> list[tuple[str, int]]:
    from dataclasses import fields

    named = ((field.name, getattr(result, field.name)) for field in fields(result))
    return [(name, item) for name, item in named if isinstance(item, int) and not isinstance(item, bool)]


def _layers(layers: list[Any]) -> Table:
    """One row per group of equal layers, whatever columns they carry."""
    from zerocalc.results import plain

    rows = [plain(layer) for layer in layers]
    names = [name for name, item in rows[0].items() if not isinstance(item, (dict, list))]
    columns = tuple(
        Column(
            words(name).removeprefix("num ").capitalize(), right=index > 0 and isinstance(rows[0][name], int)
        )
        for index, name in enumerate(names)
    )
    body = tuple(cells([Cell(numbers.value(row[name])) for name in names]) for row in rows)
    return Table("Layers", columns, body)
