"""What differs between two answers: which inputs changed, which terms moved and by how much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from zerocalc._version import __version__
from zerocalc.errors import FileError
from zerocalc.questions.snapshots import snapshot_of, term_bytes, text, unit_of
from zerocalc.results import SCHEMA_VERSION, Resolved
from zerocalc.results.check import (
    Baseline,
    Changed,
    Diff,
    InputChange,
    MetricChange,
    Snapshot,
    TermBytes,
    TermChange,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

KINDS = ("compare", "estimate", "baseline")
_MISSING = object()


def diff(
    base: Sequence[Snapshot], new: Sequence[Snapshot], *, names: tuple[str, str], warnings: Sequence[str] = ()
) -> Diff:
    """Compare the configurations of two answers by name."""
    former = {snapshot.name: snapshot for snapshot in base}
    changes = [changed(former.pop(snapshot.name, None), snapshot) for snapshot in new]
    changes += [Changed(name=name, status="removed") for name in former]
    order = {"changed": 0, "added": 1, "removed": 2, "same": 3}
    changes.sort(key=lambda change: order[change.status])
    counts: dict[str, Any] = {
        f"num_{status}": sum(change.status == status for change in changes) for status in order
    }
    return Diff(
        kind="diff",
        request={
            "base": Resolved(value=names[0], origin="flag"),
            "new": Resolved(value=names[1], origin="flag"),
        },
        base=names[0],
        new=names[1],
        changes=changes,
        warnings=list(warnings),
        **counts,
    )


def changed(base: Snapshot | None, new: Snapshot) -> Changed:
    """One configuration before and after."""
    if base is None:
        return Changed(name=new.name, status="added")
    inputs = list(_inputs(base.request, new.request))
    terms = list(_terms(base.terms, new.terms))
    metrics = list(_metrics(base.metrics, new.metrics))
    same = not (inputs or terms or metrics)
    return Changed(
        name=new.name, status="same" if same else "changed", inputs=inputs, terms=terms, metrics=metrics
    )


def _inputs(base: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[InputChange]:
    for word in dict.fromkeys((*new, *base)):
        before, after = base.get(word), new.get(word)
        if before != after:
            yield InputChange(word=word, base=before, new=after)


def _terms(base: Sequence[TermBytes], new: Sequence[TermBytes]) -> Iterable[TermChange]:
    """Terms of the same name, part and tier count together; the largest change first."""
    before, after = _summed(base), _summed(new)
    moved = []
    for key in dict.fromkeys((*after, *before)):
        old, now = before.get(key), after.get(key)
        if old != now:
            tier, name, part = key
            change = (now or 0) - (old or 0)
            moved.append(
                TermChange(
                    tier=tier, name=name, part=part, base_bytes=old, new_bytes=now, change_bytes=change
                )
            )
    return sorted(moved, key=lambda term: -abs(term.change_bytes))


def _summed(terms: Sequence[TermBytes]) -> dict[tuple[str, str, str], int]:
    totals: dict[tuple[str, str, str], int] = {}
    for term in terms:
        key = (term.tier, term.name, term.part)
        totals[key] = totals.get(key, 0) + term.bytes
    return totals


def _metrics(base: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[MetricChange]:
    for path in dict.fromkeys((*new, *base)):
        before, after = base.get(path), new.get(path)
        if before != after:
            yield MetricChange(
                metric=path,
                unit=unit_of(path, before if after is None else after),
                base=before,
                new=after,
                change=after - before if _is_number(before) and _is_number(after) else None,
            )


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def snapshots_in(data: Any, label: str) -> list[Snapshot]:
    """The configurations of an answer read from JSON.

    Raises FileError in one line for what is no answer, an answer of another kind or of another schema version.
    """
    _check_answer(data, label)
    try:
        if data["kind"] == "baseline":
            return [_snapshot(entry) for entry in data["budgets"]]
        request = {word: given["value"] for word, given in data["request"].items()}
        return _named(request, [row for row in data["results"] if row["applicable"]])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        missing = f" ({error.args[0]} is missing)" if isinstance(error, KeyError) and error.args else ""
        raise FileError(f"{label}: not an answer of zerocalc as its schema has it{missing}") from None


def _check_answer(data: Any, label: str) -> None:
    hint = "write one with `zerocalc estimate … -f json` or `zerocalc check --write-baseline FILE`"
    if not isinstance(data, dict) or "schema_version" not in data or "kind" not in data:
        raise FileError(f"{label}: not an answer of zerocalc: schema_version and kind are missing", hint=hint)
    kind, version = data["kind"], data["schema_version"]
    if kind not in KINDS:
        raise FileError(
            f"{label}: kind {kind!r:.40} cannot be compared; one of {', '.join(KINDS)} can", hint=hint
        )
    if version != SCHEMA_VERSION:
        raise FileError(
            f"{label}: schema version {version!r:.40}, and this is zerocalc {__version__} with {SCHEMA_VERSION}",
            hint="write both with the same version of zerocalc",
        )


def _named(request: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> list[Snapshot]:
    """One snapshot per result, named by what tells the results of this answer apart."""
    several = len({row["framework"] for row in results}) > 1
    if len(results) == 1:
        return [snapshot_of("the job", request, results[0])]
    return [
        snapshot_of(f"{row['strategy']} {row['framework']}" if several else row["strategy"], request, row)
        for row in results
    ]


def _snapshot(entry: Mapping[str, Any]) -> Snapshot:
    return Snapshot(
        name=text(entry["name"]),
        request=dict(entry["request"].items()),
        metrics=dict(entry["metrics"].items()),
        terms=[term_bytes(text(term["tier"]), term) for term in entry["terms"]],
    )


def read_snapshots(path: str) -> list[Snapshot]:
    """The configurations of an answer in a file. Raises FileError."""
    from zerocalc.readers.text import parse_json, read_text

    return snapshots_in(parse_json(read_text(path), path), path)


def baseline(snapshots: list[Snapshot]) -> Baseline:
    """The figures of every budget, to be written."""
    return Baseline(kind="baseline", request={}, budgets=snapshots)
