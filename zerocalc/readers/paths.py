"""What a path turns out to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def what_is_wrong_with(path: Path) -> str:
    """Why a path is neither a file nor a folder: a link that leads nowhere, a pipe or device, or nothing at all."""
    try:
        path.stat()
    except OSError:
        return "a link that leads nowhere" if path.is_symlink() else "no such file or folder"
    except ValueError:
        return "no such file or folder"
    return "not a regular file"
