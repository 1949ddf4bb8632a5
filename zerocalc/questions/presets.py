"""What can be named, and what a name stands for. The answers stand here so that others need not build them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerocalc.errors import unknown_name
from zerocalc.presets import KINDS, list_presets, show
from zerocalc.records import Record
from zerocalc.results import Answer, Resolved

if TYPE_CHECKING:
    from pathlib import Path

    from zerocalc.presets.rows import Preset

SETTINGS = "settings"
LISTED = (*KINDS, SETTINGS)
"""What can be listed: the kinds of preset, and the frameworks' settings."""


@dataclass(kw_only=True, eq=False, repr=False)
class PresetRow(Record):
    """One preset in a list."""

    kind: str
    name: str
    summary: str
    aliases: list[str]


@dataclass(kw_only=True, eq=False, repr=False)
class PresetList(Answer):
    """`presets list`: what can be named."""

    counts: dict[str, int]
    """How many there are of each kind that was asked for."""
    rows: list[PresetRow]


@dataclass(kw_only=True, eq=False, repr=False)
class PresetAnswer(Answer):
    """`presets show`: one preset as written, every figure with its unit and source."""

    preset_kind: str
    name: str
    values: dict[str, Any]


def kind_named(text: str) -> str:
    """A kind of preset, in the singular as well. Raises UnknownNameError with the near ones."""
    lowered = text.strip().lower()
    for kind in LISTED:
        if lowered in {kind, kind[:-1]}:
            return kind
    raise unknown_name("kind of preset", text, list(LISTED), hint=f"one of {', '.join(LISTED)}")


def presets(kind: str | None = None, *, directory: Path | None = None) -> PresetList:
    """Every preset of one kind, or of all kinds."""
    kinds = LISTED if kind is None else (kind_named(kind),)
    rows = {each: _rows(each, directory) for each in kinds}
    return PresetList(
        kind="presets",
        request={"kind": Resolved(value=kind, origin="flag" if kind else "default")},
        counts={each: len(of_kind) for each, of_kind in rows.items()},
        rows=[row for of_kind in rows.values() for row in of_kind],
    )


def preset(kind: str, name: str, *, directory: Path | None = None) -> PresetAnswer:
    """One preset as written. Raises UnknownNameError with the near names."""
    known = kind_named(kind)
    if known == SETTINGS:
        from zerocalc.questions.settings import setting

        name, values = setting(name)
    else:
        values = show(known, name, directory=directory)
    request = {"kind": Resolved(value=known, origin="flag"), "name": Resolved(value=name, origin="flag")}
    return PresetAnswer(kind="preset", request=request, preset_kind=known, name=values["id"], values=values)


def _rows(kind: str, directory: Path | None) -> list[PresetRow]:
    if kind != SETTINGS:
        return [_row(found) for found in list_presets(kind, directory=directory)]
    from zerocalc.questions.settings import all_settings, summary

    return [
        PresetRow(kind=kind, name=name, summary=summary(row), aliases=[])
        for name, row in all_settings().items()
    ]


def _row(found: Preset) -> PresetRow:
    table = found.table
    names = [*table.get("default_for", ()), *table.get("aliases", ())]
    return PresetRow(
        kind=found.kind, name=found.id, summary=_summary(table), aliases=[str(name) for name in names]
    )


def _summary(table: dict[str, Any]) -> str:
    """The row's own name, or what it measures; a model's count."""
    parts = [str(table[key]) for key in ("name", "hf_id", "what") if key in table][:1]
    count = table.get("num_params")
    if isinstance(count, dict) and isinstance(count.get("value"), int):
        parts.append(f"{count['value']:,} parameters")
    return ", ".join(parts)
