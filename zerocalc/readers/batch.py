"""Batch sizes that determine each other: global = micro × accumulation × data-parallel size."""

from __future__ import annotations

from zerocalc.errors import SpecError


def batch_triangle(
    train: int | None, micro: int | None, accum: int | None, dp: int | None
) -> tuple[int | None, int | None, int | None, int | None]:
    """Complete train = micro × accum × dp the way DeepSpeed does; what cannot be known stays None.

    With one of micro and accum missing, the other follows; with both, accum is 1. Raises SpecError where the
    numbers contradict each other.
    """
    if train is None:
        accum = 1 if accum is None and micro is not None else accum
        if micro is None or accum is None or dp is None:
            return None, micro, accum, dp
        return micro * accum * dp, micro, accum, dp
    if micro is None and accum is None:
        accum = 1
    factors = {"micro-batch": micro, "accumulation": accum, "data-parallel size": dp}
    product = 1
    for value in factors.values():
        product *= value or 1
    missing = [name for name, value in factors.items() if value is None]
    if train % product or (not missing and train != product):
        shown_factors = " × ".join(f"{name} {value}" for name, value in factors.items() if value is not None)
        raise SpecError(f"train batch {train} is not {'a multiple of ' if missing else ''}{shown_factors}")
    if len(missing) > 1:
        return train, micro, accum, dp
    rest = train // product
    return (
        train,
        rest if micro is None else micro,
        rest if accum is None else accum,
        rest if dp is None else dp,
    )
