"""Files as they were at a git revision, in a folder of their own. The work tree and the index are never touched."""

from __future__ import annotations

import os
import posixpath
import subprocess
import tempfile
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from zerocalc.errors import FileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SUFFIXES = ("", ".json", ".hjson", ".toml", ".yaml", ".yml", ".safetensors")
"""What a job may be told by; nothing else is copied."""
MAX_FILE_BYTES = 16 * 2**20
MAX_TOTAL_BYTES = 512 * 2**20
MAX_FILES = 20_000
MAX_LINKS = 10
QUIETLY = {"GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
"""No network, no lock, no question."""
_LINK = "120000"


class Blob(NamedTuple):
    """A file of a revision."""

    mode: str
    name: str
    size: int


def split_range(text: str) -> tuple[str, str | None]:
    """`A..B` as two revisions, `A` as one that is compared with the work tree. Raises UsageError for anything else."""
    base, dots, new = text.partition("..")
    if not base or (dots and (not new or new.startswith("."))) or ".." in new:
        raise UsageError(
            f"--rev {text}: must be REV or REV1..REV2", hint="like --rev main, or --rev main..HEAD"
        )
    return base, new if dots else None


@contextmanager
def inside(revision: str) -> Iterator[Path]:
    """Work in the same folder of the repository as it was at a revision.

    Raises FileError where git, the repository or the revision is missing.
    """
    root = Path(_git(Path.cwd(), "rev-parse", "--show-toplevel").decode().strip())
    commit = _commit(root, revision)
    with tempfile.TemporaryDirectory(prefix="zerocalc-") as folder:
        _export(root, commit, Path(folder))
        here = Path(folder) / os.path.relpath(Path.cwd().resolve(), root.resolve())
        here.mkdir(parents=True, exist_ok=True)
        with chdir(here):
            yield here


def _commit(root: Path, revision: str) -> str:
    """The commit that a revision names."""
    if revision.startswith("-") or not revision.isprintable():
        raise UsageError(f"{revision!r} is no git revision")
    try:
        return _git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()
    except FileError:
        raise FileError(
            f"{revision}: git knows no such revision", hint="in CI, fetch it: checkout with fetch-depth: 0"
        ) from None


def _git(folder: Path, *arguments: str, given: bytes | None = None) -> bytes:
    try:
        run = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            input=given,
            capture_output=True,
            check=False,
            env=os.environ | QUIETLY,
        )
    except OSError as error:
        raise FileError(f"git cannot be run: {(error.strerror or str(error)).lower()}") from None
    if run.returncode:
        lines = run.stderr.decode(errors="replace").strip().splitlines()
        raise FileError(f"git {arguments[0]}: {lines[0][:200] if lines else 'failed'}")
    return run.stdout


def _export(root: Path, commit: str, folder: Path) -> None:
    """Write the revision's configuration files, symbolic links as what they point to."""
    tree = _tree(root, commit)
    wanted = {path: _target(root, tree, path) for path in tree if Path(path).suffix.lower() in SUFFIXES}
    files = {path: blob for path, blob in wanted.items() if blob is not None and blob.size <= MAX_FILE_BYTES}
    if len(files) > MAX_FILES or sum(blob.size for blob in files.values()) > MAX_TOTAL_BYTES:
        raise FileError(f"{commit[:12]}: {len(files):,} configuration files are too many to compare")
    contents = _contents(root, sorted({blob.name for blob in files.values()}))
    for path, blob in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(contents[blob.name])


def _tree(root: Path, commit: str) -> dict[str, Blob]:
    tree = {}
    for line in _git(root, "ls-tree", "-r", "-l", "-z", "--full-tree", commit).split(b"\0"):
        if not line:
            continue
        facts, _, path = line.partition(b"\t")
        mode, kind, name, size = facts.split()
        if kind == b"blob":
            tree[os.fsdecode(path)] = Blob(mode.decode(), name.decode(), int(size))
    return tree


def _target(root: Path, tree: Mapping[str, Blob], path: str) -> Blob | None:
    """The file behind a path; None where a link leads outside, nowhere or in a circle."""
    for _ in range(MAX_LINKS):
        blob = tree.get(path)
        if blob is None or blob.mode != _LINK:
            return blob
        link = os.fsdecode(_contents(root, [blob.name])[blob.name])
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    return None


def _contents(root: Path, names: list[str]) -> dict[str, bytes]:
    """The bytes of blobs, by name."""
    if not names:
        return {}
    output = _git(root, "cat-file", "--batch", given="".join(f"{name}\n" for name in names).encode())
    found, at = {}, 0
    for name in names:
        end = output.index(b"\n", at)
        size = int(output[at:end].split()[2])
        found[name] = output[end + 1 : end + 1 + size]
        at = end + 1 + size + 1
    return found
