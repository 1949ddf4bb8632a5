"""Where the project file is: `zerocalc.toml`, or a pyproject.toml with `[tool.zerocalc]`, here or above.

Apart from what is in it, so that a start without one costs a look at a few folders and nothing else.
"""

from __future__ import annotations

from pathlib import Path

OWN_NAME, SHARED_NAME = "zerocalc.toml", "pyproject.toml"
TOOL = "tool.zerocalc"


def nearest(start: Path | None = None, *, fenced: bool = False) -> Path | None:
    """The nearest project file, up to the repository's root; None when there is none.

    `fenced` looks no further than `start` outside a repository: a file in a folder that others share must not change
    an answer. Raises FileError for a pyproject.toml that mentions the tool and cannot be read.
    """
    folder = (start or Path.cwd()).absolute()
    folders = []
    for candidate in (folder, *folder.parents):
        folders.append(candidate)
        if (candidate / ".git").exists():
            break
    else:
        folders = folders[:1] if fenced else folders
    return next((found for candidate in folders if (found := _in(candidate)) is not None), None)


def _in(folder: Path) -> Path | None:
    own, shared = folder / OWN_NAME, folder / SHARED_NAME
    if own.exists():
        return own
    return shared if shared.is_file() and has_tool(shared) else None


def has_tool(path: Path) -> bool:
    """Whether a pyproject.toml has our table; one that cannot be read has none unless it mentions it."""
    from zerocalc.errors import FileError
    from zerocalc.readers.text import parse_toml, read_text

    try:
        text = read_text(path)
    except FileError:
        return False
    return TOOL in text and "zerocalc" in (parse_toml(text, str(path)).get("tool") or {})
