"""The frameworks' own knobs as rows that can be listed and shown like presets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.errors import unknown_name
from zerocalc.frameworks import FRAMEWORKS, framework_named

if TYPE_CHECKING:
    from zerocalc.frameworks.settings import Setting

KIND = "settings"


def all_settings() -> dict[str, Setting]:
    """Every setting of every framework, named like `deepspeed:reduce_bucket_size`."""
    return {
        f"{framework}:{row.name}": row
        for framework in FRAMEWORKS
        for row in framework_named(framework).SETTINGS
    }


def summary(row: Setting) -> str:
    """What a setting takes, its default, and what it does."""
    kind = " | ".join(row.choices) or row.kind
    default = "" if row.default is None else f", default {_written(row.default)}"
    return f"{kind}{default}: {row.doc}"


def setting(name: str) -> tuple[str, dict[str, Any]]:
    """One setting by its name, with its framework before it where several have it. Raises UnknownNameError."""
    rows = all_settings()
    wanted = name.strip().lower()
    hits = [known for known in rows if wanted in {known.lower(), known.partition(":")[2].lower()}]
    if len(hits) != 1:
        raise unknown_name("setting", name, hits or list(rows), hint=f"zerocalc presets list {KIND}")
    row = rows[hits[0]]
    values = {
        "id": hits[0], "set": f"--framework {hits[0].partition(':')[0]} --set {row.name}=", "kind": row.kind,
        "default": None if row.default is None else _written(row.default), "choices": list(row.choices),
        "strategies": sorted(row.strategies), "doc": row.doc, "changed": row.changed,
    }  # fmt: skip
    return hits[0], {key: value for key, value in values.items() if value not in (None, [], "")}


def _written(value: Any) -> str:
    """A value as it is written after `--set`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
