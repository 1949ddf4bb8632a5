"""One number against one bound."""

from functools import cache

import pytest

import zerocalc
from zerocalc.errors import SpecError, UnknownNameError, UsageError
from zerocalc.questions.limits import Asked, Base, check_limit
from zerocalc.specs.budget import Limit


@cache
def result(gpu="80GB"):
    words = {"gpu": gpu} if gpu else {}
    return zerocalc.estimate(zerocalc.job("70b", dp=64, strategy="zero3", **words)).results[0]


def verdict(metric, bound, written, *, base=None, gpu="80GB"):
    limit = Limit.model_validate({"metric": metric, bound: written})
    return check_limit(Asked(limit, bound, written, "error", 1), result(gpu), base or Base())


@pytest.mark.parametrize(
    ("metric", "bound", "written", "status", "limit", "excess"),
    [
        ("memory.gpu.peak_bytes", "max", "17.5GB", "passed", 17_500_000_000, 0),
        ("memory.gpu.peak_bytes", "max", "17.499999999GB", "failed", 17_499_999_999, 1),
        ("memory.gpu.peak_bytes", "max", 17_500_000_000, "passed", 17_500_000_000, 0),
        ("memory.gpu.peak_bytes", "max", "21.875%", "passed", 17_500_000_000, 0),
        ("memory.gpu.peak_bytes", "max", "21.874%", "failed", 17_499_200_000, 800_000),
        ("memory.gpu.peak_bytes", "min", "16GiB", "passed", 2**34, 2**34 - 17_500_000_000),
        ("memory.gpu.phases.at_rest", "max", 0, "failed", 0, 15_312_500_000),
        ("headroom_bytes", "min", "62.5GB", "passed", 62_500_000_000, 0),
        ("headroom_bytes", "min", "79%", "failed", 63_200_000_000, 700_000_000),
        ("communication.volume_params", "max", 3, "passed", 3, 0),
        ("communication.volume_params", "max", "2.5", "failed", 2.5, 0.5),
        ("communication.volume_params", "equals", 3, "passed", 3, None),
        ("fits", "equals", True, "passed", True, -62_500_000_000),
        ("fits", "equals", False, "failed", False, -62_500_000_000),
        ("strategy", "equals", "zero3", "passed", "zero3", None),
        ("binding", "equals", "params", "failed", "params", None),
        ("memory.gpu.peak_bytes", "equals", "17.5GB", "passed", 17_500_000_000, None),
    ],
)
def test_verdicts_are_exact(metric, bound, written, status, limit, excess):
    found = verdict(metric, bound, written)
    assert (found.status, found.limit, found.excess) == (status, limit, excess)


@pytest.mark.parametrize(
    ("base", "written", "status", "limit"),
    [
        (17_500_000_000, 0, "passed", 17_500_000_000),
        (17_156_862_746, "2%", "passed", 17_500_000_000.92),
        (17_156_862_745, "2%", "failed", 17_499_999_999.9),
        (17_000_000_000, "500MB", "passed", 17_500_000_000),
        (17_000_000_000, "499MB", "failed", 17_499_000_000),
        (20_000_000_000, "0%", "passed", 20_000_000_000),
    ],
)
def test_growth_against_a_baseline(base, written, status, limit):
    found = verdict("memory.gpu.peak_bytes", "max_increase", written, base=Base(base))
    assert found.limit == pytest.approx(limit, rel=1e-15)
    assert (found.status, found.base) == (status, base)


@pytest.mark.parametrize(
    "base",
    [Base(None, "no baseline"), Base("words"), Base(True), Base(None)],
    ids=["none", "word", "bool", "null"],
)
def test_growth_without_a_number_to_grow_from_is_skipped_with_the_reason(base):
    found = verdict("memory.gpu.peak_bytes", "max_increase", "2%", base=base)
    assert found.status == "skipped"
    assert found.reason


@pytest.mark.parametrize(
    ("metric", "bound", "written", "kind", "says"),
    [
        ("memory.gpu.peak_byte", "max", "1GB", UnknownNameError, "did you mean 'memory.gpu.peak_bytes'"),
        ("memory.gpu.terms", "max", "1GB", UnknownNameError, "unknown metric"),
        ("memory.gpu", "max", "1GB", UnknownNameError, "unknown metric"),
        ("__class__", "equals", "x", UnknownNameError, "unknown metric"),
        ("memory.gpu.peak_bytes", "max", 80, SpecError, "has no clear unit"),
        ("memory.gpu.peak_bytes", "max", "80", SpecError, "has no clear unit"),
        ("memory.gpu.peak_bytes", "max", "80 G", SpecError, "has no clear unit"),
        ("memory.gpu.peak_bytes", "max", "lots", SpecError, "is not a size"),
        ("memory.gpu.peak_bytes", "max", "many%", SpecError, "is not a number"),
        ("memory.gpu.peak_bytes", "max", 10**30, SpecError, "below 2^63"),
        ("memory.gpu.peak_bytes", "equals", True, SpecError, "is a number"),
        ("communication.sent_bytes_per_rank", "max", "90%", SpecError, "of what?"),
        ("fits", "max", 1, SpecError, "is true, no number"),
        ("fits", "equals", 1, SpecError, "must be true or false"),
        ("strategy", "equals", True, SpecError, "must be a name"),
        ("fits", "max_increase", "2%", SpecError, "cannot grow"),
    ],
)
def test_what_cannot_be_meant_is_refused(metric, bound, written, kind, says):
    with pytest.raises(kind, match=says.replace("?", r"\?").replace("^", r"\^")):
        verdict(metric, bound, written)


@pytest.mark.parametrize(
    ("metric", "bound", "written", "says"),
    [
        ("fits", "equals", True, "give gpu"),
        ("headroom_bytes", "min", "1GB", "give gpu"),
        ("memory.gpu.peak_bytes", "max", "90%", "give gpu"),
        ("memory.cpu.bytes_per_node", "max", "1TB", "gpus_per_node"),
    ],
)
def test_what_the_job_does_not_say_is_asked_for(metric, bound, written, says):
    with pytest.raises(UsageError) as caught:
        verdict(metric, bound, written, gpu=None)
    assert says in caught.value.hint
