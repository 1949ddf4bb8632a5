"""JSON Schemas of every output and input, committed so that reading one needs nothing but a file.

They are generated from the result and spec classes by `python -m zerocalc.schemas.generate`.
"""

from __future__ import annotations

from pathlib import Path

from zerocalc.errors import unknown_name

FOLDER = Path(__file__).parent


def kinds() -> list[str]:
    """What has a schema."""
    return sorted(path.name.removesuffix(".json") for path in FOLDER.glob("*.json"))


def schema_text(kind: str) -> str:
    """The schema of a kind, as committed. Raises UnknownNameError with the near kinds."""
    known = kinds()
    if kind.strip().lower() not in known:
        raise unknown_name("schema", kind, known, hint=f"one of {', '.join(known)}")
    return (FOLDER / f"{kind.strip().lower()}.json").read_text(encoding="utf-8")
