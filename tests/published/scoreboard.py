"""Predicted against given for every published fact: `python -m tests.published.scoreboard`.

    --framework NAME   only the rows of one framework, by the rows' names
    --gate             only the rows that give every input
    --misses           only the rows that miss
    --csv              comma-separated, raw bytes

What each field of a row means is told in tests/data/published/README.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.published.figures import predicted
from tests.published.jobs import NotExpressibleError, untranslated
from zerocalc.errors import ZerocalcError

DATA = Path(__file__).parents[1] / "data" / "published" / "gate.json"
ALLOCATED = ("allocated", "reserved")
WITHIN = 0.15


@dataclass(frozen=True)
class Outcome:
    """A row, our answer, and the reason where there is none."""

    row: dict[str, Any]
    answer: int | bool | None
    reason: str = ""

    @property
    def error(self) -> float | None:
        """Relative error; None where there is no answer or the answer is a verdict."""
        if self.answer is None or isinstance(self.answer, bool) or not self.row["value"]:
            return None
        return self.answer / self.row["value"] - 1

    @property
    def kind(self) -> str:
        """How the row is judged: theory, allocator, fits, or not at all."""
        if self.row["quantity"] == "fits":
            return "fits"
        if self.row["level"] == "theory":
            return "theory"
        return "allocator" if self.row["level"] in ALLOCATED else "other"

    @property
    def hit(self) -> bool:
        """Whether the answer is right by the measure of its kind."""
        if self.kind == "fits":
            return self.answer is self.row["value"]
        if self.error is None:
            return False
        return abs(self.error) <= (self.row["tolerance"]["rel"] if self.kind == "theory" else WITHIN)


def rows(path: Path = DATA) -> list[dict[str, Any]]:
    """Every row of the table."""
    return json.loads(path.read_text())


def judge(row: dict[str, Any]) -> Outcome:
    """Answer one row; what cannot be expressed is an outcome with its reason."""
    try:
        left_out = untranslated(row)
        return Outcome(row, predicted(row), f"without {', '.join(left_out)}" if left_out else "")
    except (NotExpressibleError, ZerocalcError) as error:
        return Outcome(row, None, str(error))
    except Exception as error:  # a fault of ours is a miss too, and says so
        return Outcome(row, None, f"fault: {error!r}")


def judge_all(chosen: Iterable[dict[str, Any]]) -> list[Outcome]:
    """Answer every row, in the order of framework, level and quantity."""
    order = ("framework", "level", "quantity")
    outcomes = [judge(row) for row in chosen]
    return sorted(outcomes, key=lambda o: [str(o.row["job"].get(key, o.row.get(key))) for key in order])


@dataclass(frozen=True)
class Score:
    """How many rows of a kind are right; for the allocator level also the median error."""

    total: int
    hits: int
    answered: int
    median_error: float | None

    @property
    def share(self) -> float:
        """The part that is right; one where there is nothing to judge."""
        return self.hits / self.total if self.total else 1.0


def score(outcomes: Iterable[Outcome]) -> Score:
    """Count hits and misses; a row without an answer is a miss and an infinite error."""
    counted = list(outcomes)
    errors = [abs(o.error) if o.error is not None else float("inf") for o in counted]
    return Score(
        total=len(counted),
        hits=sum(o.hit for o in counted),
        answered=sum(o.answer is not None for o in counted),
        median_error=median(errors) if errors else None,
    )


def summary(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """One line per kind, then per kind and framework."""
    counted = list(outcomes)
    for kind in ("theory", "allocator", "fits", "other"):
        of_kind = [o for o in counted if o.kind == kind]
        if not of_kind:
            continue
        yield _line(kind, score(of_kind), kind)
        for framework in sorted({o.row["job"]["framework"] for o in of_kind}):
            yield _line(
                f"  {framework}", score(o for o in of_kind if o.row["job"]["framework"] == framework), kind
            )


def _line(label: str, found: Score, kind: str) -> str:
    shown = found.median_error is not None and found.median_error != float("inf") and kind != "fits"
    middle = f"  median |error| {found.median_error:7.2%}" if shown else ""
    return f"{label:18} {found.hits:4} of {found.total:4} right ({found.share:6.1%}), {found.answered:4} answered{middle}"


def table(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """One line per row, grouped by framework, level and quantity."""
    last = None
    for o in outcomes:
        group = (o.row["job"]["framework"], o.row["level"], o.row["quantity"])
        if group != last:
            yield ""
            yield f"{' / '.join(group)}: bytes given, bytes predicted, relative error"
            last = group
        mark = " " if o.hit else "!"
        gate = "gate" if o.row["gate"] else "    "
        error = f"{o.error:+8.2%}" if o.error is not None else " " * 8
        answer = (
            "-" if o.answer is None else f"{o.answer:,}" if not isinstance(o.answer, bool) else str(o.answer)
        )
        given = f"{o.row['value']:,}" if not isinstance(o.row["value"], bool) else str(o.row["value"])
        yield f"{mark} {gate} {o.row['row']:66} {given:>22} {answer:>22} {error}  {o.reason}"


def write_csv(outcomes: Iterable[Outcome], stream: Any) -> None:
    """Raw numbers, one row each."""
    writer = csv.writer(stream)
    writer.writerow(
        [
            "row",
            "framework",
            "level",
            "quantity",
            "gate",
            "given",
            "predicted",
            "relative_error",
            "right",
            "reason",
        ]
    )
    for o in outcomes:
        writer.writerow(
            [o.row["row"], o.row["job"]["framework"], o.row["level"], o.row["quantity"], o.row["gate"],
             o.row["value"], o.answer, o.error, o.hit, o.reason]
        )  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Print the scoreboard."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--framework")
    parser.add_argument("--gate", action="store_true")
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--csv", action="store_true")
    parser.add_argument("--rows", type=Path, default=DATA, help="another table of rows")
    asked = parser.parse_args(arguments)
    chosen = [
        row
        for row in rows(asked.rows)
        if (not asked.gate or row["gate"]) and asked.framework in (None, row["job"]["framework"])
    ]
    outcomes = judge_all(chosen)
    shown = [o for o in outcomes if not (asked.misses and o.hit)]
    if asked.csv:
        write_csv(shown, sys.stdout)
        return
    for line in table(shown):
        print(line)
    print()
    for line in summary(outcomes):
        print(line)


if __name__ == "__main__":
    main()
