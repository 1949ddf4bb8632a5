from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerocalc.render import numbers


@pytest.mark.parametrize(
    ("amount", "units", "decimals", "text"),
    [
        (1_120_000_000_000, "GB", 1, "1120.0"),
        (293_125_000_000, "GB", 1, "293.1"),
        (155_312_500_000, "GB", 1, "155.3"),
        (17_500_000_000, "GB", 1, "17.5"),
        (-1_040_000_000_000, "GB", 1, "−1040.0"),
        (2**30, "GiB", 1, "1.0"),
        (0, "GB", 1, "0.0"),
        (1, "GB", 4, "<0.0001"),
        (-1, "GB", 4, "−<0.0001"),
        (2**63 - 1, "GB", 1, "9223372036.9"),
    ],
)
def test_sizes_in_a_unit(amount, units, decimals, text):
    assert numbers.in_units(amount, units, decimals) == text


@given(st.integers(0, 2**63), st.sampled_from(["GB", "GiB"]), st.integers(1, 4))
def test_rounding_is_exact_half_up(amount, units, decimals):
    text = numbers.in_units(amount, units, decimals)
    shown = Fraction(text.removeprefix("<"))
    unit = numbers.UNITS[units]
    if text.startswith("<"):
        assert 0 < Fraction(amount, unit) < shown
    else:
        assert abs(shown - Fraction(amount, unit)) <= Fraction(1, 2 * 10**decimals)


@pytest.mark.parametrize(
    ("amounts", "decimals"),
    [
        ([10**9], 1),
        ([10**12, 999_999_999], 2),
        ([10**12, 14_600_000], 3),
        ([1], 4),
        ([10**12, 512], 1),
        ([None, 0], 1),
        ([], 1),
    ],
)
def test_a_column_shows_two_digits_of_its_smallest_amount(amounts, decimals):
    assert numbers.decimals_for(amounts, "GB") == decimals


def test_headroom_too_small_for_the_unit_is_given_in_bytes():
    assert numbers.headroom(-12, "GB", 1) == "−12 B"
    assert numbers.headroom(12, "GB", 1) == "+12 B"
    assert numbers.headroom(0, "GB", 1) == "+0.0"
    assert numbers.headroom(62_500_000_000, "GB", 1) == "+62.5"


@pytest.mark.parametrize(("volume", "text"), [(2.0, "2Ψ"), (2.5, "2.5Ψ"), (5 / 3, "1.67Ψ"), (0.0, "0Ψ")])
def test_volumes_are_printed_as_the_papers_do(volume, text):
    assert numbers.times_psi(volume) == text
