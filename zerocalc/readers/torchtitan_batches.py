"""torchtitan's batches: accumulation by the global batch, and the micro-batches of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.readers.convert import AUTO
from zerocalc.readers.reading import Given, Reading
from zerocalc.readers.torchtitan_keys import P, T

if TYPE_CHECKING:
    from zerocalc.readers.keys import Found

_ONE_F_ONE_B = ("1F1B", "GPIPE")


def read_batches(found: Found, label: str, reading: Reading) -> None:
    """Accumulation from the global batch, the local one and the data-parallel size."""
    total = found.get(f"{T}.global_batch_size")
    if total is None or total.value == AUTO or total.value < 0:
        return
    reading.totals["global_batch"] = total
    micro, dp = reading.value("micro_batch"), reading.value("dp")
    if micro is None or dp is None or "grad_accum" in reading.values:
        return
    if total.value % (micro * dp):
        reading.warnings.append(
            f"{label}: global_batch_size {total.value} is not a multiple of local_batch_size {micro} × "
            f"data-parallel size {dp}: torchtitan refuses this"
        )
        return
    reading.values["grad_accum"] = Given(total.value // (micro * dp), total.origin)


def read_pipeline(found: Found, label: str, reading: Reading, *, sharded: bool) -> None:
    """Under pipelining the local batch passes in micro-batches, and gradients are synchronised after the last one."""
    schedule, local = found.get(f"{P}.pipeline_parallel_schedule"), reading.values.get("micro_batch")
    if reading.value("pp", 1) == 1:
        return
    if schedule is not None and schedule.value.upper() not in _ONE_F_ONE_B:
        reading.warnings.append(
            f"{label}: pipeline_parallel_schedule {schedule.value} is not modelled: micro-batches in flight and stages are "
            "those of 1F1B"
        )
    if local is None:
        return
    size = _microbatch(found, reading, local)
    if size is None:
        reading.warnings.append(
            f"{label}: local batch {local.value} does not divide into its pipeline micro-batches: torchtitan refuses this"
        )
        return
    passes = local.value // size.value
    accum = reading.values.get("grad_accum")
    reading.values["micro_batch"] = size
    reading.values["grad_accum"] = Given(
        passes * (accum.value if accum else 1), f"{local.origin} / pipeline micro-batch {size.value}"
    )
    if sharded and passes > 1:
        for name in ("requires_gradient_sync", "reshard_after_backward"):
            reading.settings[name] = Given(False, f"{size.origin} (the last micro-batch alone synchronises)")


def _microbatch(found: Found, reading: Reading, local: Given) -> Given | None:
    """Sequences of one pipeline micro-batch: given, by their number, or torchtitan's default of the file's time."""
    given, number = (
        found.get(f"{P}.pipeline_parallel_{name}") for name in ("microbatch_size", "microbatches")
    )
    if given is not None and given.value != AUTO:
        return given if local.value % given.value == 0 else None
    if number is None and local.origin.endswith(".local_batch_size"):
        return Given(1, "default:torchtitan pipeline_parallel_microbatch_size")
    count = reading.values["pp"] if number is None or number.value == AUTO else number
    origin = count.origin if count is number else "default:torchtitan as many micro-batches as stages"
    return Given(local.value // count.value, origin) if local.value % count.value == 0 else None
