"""Is sharding further worth what it sends? Pairs of strategies, by the bounds of their steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerocalc.results import StrategyResult
    from zerocalc.results.time import Crossover, Timing

PAIRS = (("zero3", "zero2"), ("zeropp", "zero3"), ("hsdp", "zero3"), ("mics", "zero3"))
"""Each strategy with the one whose memory or traffic it gives up."""
WIRE = ("intra_node", "inter_node")


def crossovers(results: Iterable[StrategyResult]) -> list[Crossover]:
    """Every pair of which both strategies were timed in the same framework."""
    timed = {(row.framework, row.strategy): row.time for row in results if row.time is not None}
    return [
        _crossover(framework, strategy, against, timed)
        for framework in dict.fromkeys(framework for framework, _ in timed)
        for strategy, against in PAIRS
        if (framework, strategy) in timed and (framework, against) in timed
    ]


def _crossover(
    framework: str, strategy: str, against: str, timed: dict[tuple[str, str], Timing]
) -> Crossover:
    from zerocalc.results.time import Crossover

    ours, theirs = timed[framework, strategy], timed[framework, against]
    return Crossover(
        framework=framework,
        strategy=strategy,
        against=against,
        lower_difference_s=ours.step_s.lower - theirs.step_s.lower,
        upper_difference_s=ours.step_s.upper - theirs.step_s.upper,
        tokens_to_hide=max(_wire_tokens(ours), _wire_tokens(theirs)) or None,
    )


def _wire_tokens(time: Timing) -> float:
    """Tokens that hide everything on the wire, one class of links after the other."""
    return sum((link.tokens_to_hide or 0.0 for link in time.links if link.link in WIRE), 0.0)
