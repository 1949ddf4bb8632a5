"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from zerocalc.errors import FileError


def write_atomically(path: str, text: str) -> None:
    """Write text to a file through a temporary one beside it; on failure nothing new is left.

    What is no regular file (a device, a pipe) is written directly. Raises FileError naming the file and the reason.
    """
    if not path.strip():
        raise FileError("--output: is empty", hint="name a file, or - for standard output")
    try:
        mode = _mode_of(path)
        if (mode is not None and stat.S_ISDIR(mode)) or path.endswith(os.sep):
            raise FileError(f"{path}: is a directory", hint="name a file in it")
        if mode is not None and not stat.S_ISREG(mode):
            # By the name as given: what /dev/stdout leads to may be a pipe that has no other name.
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)
            return
        target = Path(os.path.realpath(path))
        _replace(target, text, stat.S_IMODE(mode) if mode is not None else 0o666 & ~_umask())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FileError(
            f"{path}: cannot be written: {reason}", hint="choose another place with -o"
        ) from error
    except ValueError as error:
        raise FileError(f"{path!r}: is no file name: {error}") from error


def _mode_of(path: str) -> int | None:
    """What a path leads to, None where there is nothing yet. Raises OSError for links in a circle, like any other."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _replace(target: Path, text: str, mode: int) -> None:
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(13, "permission denied")
    import tempfile

    descriptor, temporary = tempfile.mkstemp(
        dir=target.parent, prefix=f".{target.name[:100]}.", suffix=".part"
    )
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(mode)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
