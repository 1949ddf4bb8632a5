"""Counts and sizes as people write them, exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerocalc.errors import SpecError
from zerocalc.units import (
    ceil,
    ceil_div,
    dtype_bytes,
    largest,
    parse_count,
    parse_dtype,
    parse_ratio,
    parse_size,
    smallest,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("70b", 70 * 10**9),
        ("70B", 70 * 10**9),
        ("7.5e9", 7_500_000_000),
        ("7_000_000_000", 7 * 10**9),
        ("7,000,000,000", 7 * 10**9),
        ("1.5T", 1_500_000_000_000),
        ("68_976_648_192", 68_976_648_192),
        ("125M", 125_000_000),
        ("1", 1),
        ("1e15", 10**15),
    ],
)
def test_counts_read_as_typed(text, count):
    assert parse_count(text) == count


@pytest.mark.parametrize(
    "text",
    ["", "b", "-5b", "0", "1.5", "nan", "inf", "1e400", "1e16", "7.5xb", "70 bb", "0x10", "٣", "1e", "--1"],
)
def test_counts_that_are_none_are_refused(text):
    with pytest.raises(SpecError):
        parse_count(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GB", 80 * 10**9),
        ("80GiB", 80 * 2**30),
        ("80 gb", 80 * 10**9),
        ("0.5TiB", 2**39),
        ("512MB", 512 * 10**6),
        ("79.19GiB", 85_029_615_042),  # floor(79.19 * 2**30)
    ],
)
def test_sizes_name_their_unit(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["80", "80g", "80G", "80T", "80 ", "GB", "-80GB", "80GBs", "1e99GB", "nanGB"]
)
def test_sizes_without_a_clear_unit_are_refused(text):
    with pytest.raises(SpecError):
        parse_size(text)


@pytest.mark.parametrize("text", ["80", "80g"])
def test_an_ambiguous_size_is_answered_with_both_readings(text):
    with pytest.raises(SpecError) as caught:
        parse_size(text)
    assert caught.value.hint == "write 80GB (10^9 bytes) or 80GiB (2^30 bytes)"


@given(total=st.integers(0, 10**18), parts=st.integers(1, 10**7))
def test_ceil_div_covers_and_is_tight(total, parts):
    share = ceil_div(total, parts)
    assert share * parts >= total
    assert share == 0 or (share - 1) * parts < total


@given(a=st.integers(-(10**6), 10**6), b=st.integers(-(10**6), 10**6))
def test_smallest_and_largest_are_min_and_max(a, b):
    assert (smallest(a, b), largest(a, b)) == (min(a, b), max(a, b))


def test_arrays_go_through_the_same_helpers():
    numpy = pytest.importorskip("numpy")
    numbers = numpy.array([1, 7, 8, 9])
    assert ceil_div(numbers, 8).tolist() == [1, 1, 1, 2]
    assert largest(numbers, 8).tolist() == [8, 8, 8, 9]
    assert ceil(numbers) is numbers


def test_ratios_are_exact():
    assert parse_ratio("2.03125") == Fraction(65, 32)
    assert ceil(Fraction(65, 32) * 3) == 7


@pytest.mark.parametrize(
    ("text", "dtype", "size"),
    [("bfloat16", "bf16", 2), ("FP32", "fp32", 4), ("int4", "int4", Fraction(1, 2))],
)
def test_dtypes_by_either_name(text, dtype, size):
    assert parse_dtype(text) == dtype
    assert dtype_bytes(dtype) == size
