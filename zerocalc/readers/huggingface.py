"""Read a Hugging Face config.json, alone or in a model's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zerocalc.errors import FileError
from zerocalc.readers.text import parse_json, read_text

CONFIG_NAME = "config.json"


def read_config(path: str | Path) -> dict[str, Any]:
    """Read a config.json, or the one in a folder, into its object.

    Raises FileError naming the file for what is missing, larger than 16 MiB, no text, no strict JSON or no object.
    """
    file = Path(path)
    if file.is_dir():
        file /= CONFIG_NAME
        if not file.exists():
            raise FileError(
                f"{path}: the folder has no {CONFIG_NAME}",
                hint="give the config.json or .safetensors file itself",
            )
    value = parse_json(read_text(file), str(file))
    if not isinstance(value, dict):
        kind = {list: "a list", str: "text", bool: "true or false", type(None): "null"}.get(
            type(value), "a number"
        )
        raise FileError(
            f"{file}: must hold one JSON object (got {kind})",
            hint='a model\'s config looks like {"model_type": …}',
        )
    return value
