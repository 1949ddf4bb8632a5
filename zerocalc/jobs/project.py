"""The project file: find it, read it, and know on which line everything stands.

`zerocalc.toml`, or `[tool.zerocalc]` of pyproject.toml, in the working directory or the nearest folder above it, up to
the repository's root. Paths in it are relative to it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from zerocalc.errors import FileError, SpecError, shown, unknown_name
from zerocalc.jobs.discovery import OWN_NAME, SHARED_NAME, TOOL, has_tool, nearest
from zerocalc.readers.text import parse_toml, read_text
from zerocalc.records import Record
from zerocalc.specs.budget import Budget, Limit, Project

_EXPECTED = {
    "metric": "the path of a number in the answer, like memory.gpu.peak_bytes",
    "max": "a size (72GiB), a share (90%) or a number",
    "min": "a size (72GiB), a share (90%) or a number",
    "equals": "true, false, a size, a number or a name",
    "max_increase": "a share of the baseline (2%), a size or a number",
    "level": "error or warn",
    "name": "a name of at most 200 characters",
    "job": "a table of flags, or the path of a job file",
    "limit": "tables like [[budget.limit]], at most 100",
    "budget": "tables like [[budget]], at most 10,000",
    "baseline": "the path of a file",
}
_MULTILINE = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""|\'\'\'(?:[^\']|\'(?!\'\'))*\'\'\'', re.DOTALL)
_HEADER = re.compile(r"^[ \t]*\[\[?[ \t]*([^\[\]#\n]{1,400}?)[ \t]*\]\]?[ \t]*(?:#.*)?$")


@dataclass(eq=False, repr=False)
class Block(Record):
    """The lines below one header, first and last counted from 1."""

    name: str
    first: int
    last: int


@dataclass(eq=False, repr=False)
class Lines(Record):
    """Where budgets, limits and keys stand in the text."""

    lines: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    budgets: tuple[tuple[Block, ...], ...] = ()
    """For each budget its own block and those of its limits and tables."""

    def of(self, budget: int | None = None, limit: int | None = None, key: str | None = None) -> int:
        """The line of a key, or of the nearest header above it that is known; 1 where nothing is."""
        blocks = self.budgets[budget] if budget is not None and budget < len(self.budgets) else ()
        if budget is not None and not blocks:
            return 1
        if limit is not None:
            own = tuple(block for block in blocks if block.name.endswith("budget.limit"))
            blocks = own[limit : limit + 1] or blocks
        place = blocks or self.blocks
        found = self._key(place, key) if key else None
        return found or (blocks[0].first if blocks else 1)

    def _key(self, blocks: tuple[Block, ...], key: str) -> int | None:
        pattern = re.compile(rf"""^[ \t]*["']?{re.escape(key)}["']?[ \t]*[.=]""")
        inline = re.compile(rf"""[{{,][ \t]*["']?{re.escape(key)}["']?[ \t]*=""")
        for search in (pattern.match, inline.search):
            for block in blocks:
                for number in range(block.first, block.last + 1):
                    if search(self.lines[number - 1]):
                        return number
        return None


def lines_of(text: str, prefix: str, count: int) -> Lines:
    """Find the headers of `count` budgets; none are known when the text is written in another way."""
    blanked = _MULTILINE.sub(lambda match: "\n" * match[0].count("\n"), text)
    lines = tuple(blanked.split("\n"))
    headers = [
        (match[1].replace(" ", "").replace("\t", ""), number)
        for number, line in enumerate(lines, start=1)
        if (match := _HEADER.match(line))
    ]
    starts = [("", 1), *headers]
    ends = [number - 1 for _, number in starts[1:]] + [len(lines)]
    blocks = [Block(name, first, last) for (name, first), last in zip(starts, ends, strict=True)]
    budgets: list[list[Block]] = []
    for block in blocks:
        if block.name == f"{prefix}budget":
            budgets.append([])
        if budgets and block.name.startswith(f"{prefix}budget"):
            budgets[-1].append(block)
    known = tuple(map(tuple, budgets)) if len(budgets) == count else ()
    own = tuple(block for block in blocks if block.name.startswith(prefix) or not prefix)
    return Lines(lines, own, known)


@dataclass(eq=False, repr=False)
class ProjectFile(Record):
    """A project as read."""

    project: Project
    label: str
    """The file as messages name it."""
    base: Path
    """The folder that paths are relative to."""
    lines: Lines = field(default_factory=Lines)
    warnings: tuple[str, ...] = ()


def find_project(start: Path | None = None) -> Path:
    """The nearest project file. Raises FileError when there is none."""
    found = nearest(start)
    if found is None:
        raise FileError(
            f"no {OWN_NAME}, and no [{TOOL}] in a {SHARED_NAME}, here or above",
            hint="write budgets there, or name the file with --config FILE",
        )
    return found


def _label(path: Path) -> str:
    """The path as seen from here, with forward slashes as annotations need them."""
    try:
        return Path(os.path.relpath(path)).as_posix()
    except ValueError:
        return path.as_posix()


def read_project(path: Path) -> ProjectFile:
    """Read and check a project file.

    Raises FileError when it cannot be read or is no TOML, SpecError with file and line for what it should not say.
    """
    label = _label(path)
    text = read_text(path)
    data: Any = parse_toml(text, label)
    warnings: tuple[str, ...] = ()
    prefix = ""
    if path.name == SHARED_NAME:
        prefix = f"{TOOL}."
        tools = data.get("tool")
        data = tools.get("zerocalc") if isinstance(tools, dict) else None
        if not isinstance(data, dict):
            raise FileError(f"{label}: has no [{TOOL}]", hint="write budgets as [[tool.zerocalc.budget]]")
    elif (sibling := path.parent / SHARED_NAME).is_file() and _mentions(sibling):
        warnings = (f"{_label(sibling)}: [{TOOL}] is not read: {label} comes first",)
    budgets = data.get("budget")
    lines = lines_of(text, prefix, len(budgets) if isinstance(budgets, list) else 0)
    project = _checked(data, label, lines)
    return ProjectFile(project, label, Path(label).parent, lines, warnings)


def _mentions(path: Path) -> bool:
    try:
        return has_tool(path)
    except FileError:
        return False


def _checked(data: Any, label: str, lines: Lines) -> Project:
    try:
        project = Project.model_validate(data)
    except ValidationError as error:
        raise _complaint(error, data, label, lines) from None
    seen: dict[str, int] = {}
    for index, budget in enumerate(project.budget):
        where = f"{label}:{lines.of(index, key='name')}"
        if not budget.name.strip() or not budget.name.isprintable():
            raise SpecError(f"{where}: name: must be printable text on one line (got {shown(budget.name)})")
        if budget.name in seen:
            first = lines.of(seen[budget.name], key="name")
            raise SpecError(
                f"{where}: budget {shown(budget.name)} appears twice", hint=f"the first is on line {first}"
            )
        seen[budget.name] = index
        for number, limit in enumerate(budget.limit):
            if not limit.bounds:
                raise SpecError(
                    f"{label}:{lines.of(index, number)}: budget {shown(budget.name)}: {limit.metric} has no bound",
                    hint="give max, min, equals or max_increase",
                )
    return project


def _complaint(error: ValidationError, data: Any, label: str, lines: Lines) -> SpecError:
    """The first complaint, with the line it is about and what would be right."""
    first = error.errors(include_url=False, include_context=False)[0]
    location, kind = list(first["loc"]), first["type"]
    names = [part for part in location if isinstance(part, str) and (part in _EXPECTED or kind == _EXTRA)]
    key = str(names[-1]) if names else str(location[0])
    numbers = [part for part in location if isinstance(part, int)]
    budget = numbers[0] if numbers and location[0] == "budget" else None
    limit = numbers[1] if len(numbers) > 1 and "limit" in location else None
    where = f"{label}:{lines.of(budget, limit, key)}: {_budget_name(data, budget)}"
    if kind == _EXTRA:
        owner = Limit if limit is not None else Budget if budget is not None else Project
        return _unknown_key(where, key, owner)
    if kind == "missing":
        return SpecError(f"{where}{key} is missing", hint=f"it is {_EXPECTED[key]}")
    return SpecError(
        f"{where}{key}: must be {_EXPECTED.get(key, 'something else')} (got {shown(first['input'])})"
    )


_EXTRA = "extra_forbidden"


def _budget_name(data: Any, index: int | None) -> str:
    """`budget 'fits': `, as far as it can be told from data that is wrong somewhere."""
    if index is None:
        return ""
    name = data["budget"][index].get("name") if isinstance(data["budget"][index], dict) else None
    return f"budget {shown(name)}: " if isinstance(name, str) else f"budget {index + 1}: "


def _unknown_key(where: str, key: str, owner: type[BaseModel]) -> SpecError:
    known = list(owner.model_fields)
    error = unknown_name("key", key if len(key) <= 60 else f"{key[:59]}…", known)
    return SpecError(f"{where}{error.message}", hint=f"keys here: {', '.join(known)}")
