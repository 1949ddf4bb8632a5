"""The published facts that give every input, held to the thresholds by which they are judged."""

from __future__ import annotations

import pytest

from tests.published.scoreboard import Outcome, judge_all, rows, score, summary

MISSES: dict[str, str] = {}
"""Rows that miss, and why."""


@pytest.fixture(scope="module")
def outcomes():
    found = judge_all(row for row in rows() if row["gate"])
    print()
    print("\n".join(summary(found)))
    return found


def of_kind(outcomes: list[Outcome], kind: str) -> list[Outcome]:
    return [o for o in outcomes if o.kind == kind]


def missed(outcomes: list[Outcome]) -> list[str]:
    return [
        f"{o.row['row']}: given {o.row['value']}, got {o.answer} {o.reason}" for o in outcomes if not o.hit
    ]


def test_every_gate_row_has_an_answer(outcomes):
    assert outcomes
    assert [o.row["row"] for o in outcomes if o.answer is None] == []


def test_theory_is_within_its_tolerance(outcomes):
    assert missed(of_kind(outcomes, "theory")) == []


def test_allocations_are_close(outcomes):
    found = score(of_kind(outcomes, "allocator"))
    assert found.median_error is not None
    assert found.median_error <= 0.05
    assert found.share >= 0.90, missed(of_kind(outcomes, "allocator"))


def test_what_fits_fits(outcomes):
    assert score(of_kind(outcomes, "fits")).share >= 0.95, missed(of_kind(outcomes, "fits"))


def test_known_misses_are_the_only_ones(outcomes):
    assert {o.row["row"] for o in outcomes if not o.hit} == set(MISSES)
