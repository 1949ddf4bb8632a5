"""What a reader hands back: values in zerocalc's own words, each with the file and key it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zerocalc.records import Record

MISSING = "is not beside it"
"""How the warning of a DeepSpeed file that is not there reads: moot once another one is given."""


class HubId(str):
    """A model by its id on the Hugging Face Hub, asked for by name: what the network is for."""

    __slots__ = ()


@dataclass(eq=False, repr=False)
class Given(Record):
    """A value and where it came from, such as `file:ds_config.json:zero_optimization.stage`."""

    value: Any
    origin: str


@dataclass(slots=True)
class Reading:
    """One file in zerocalc's vocabulary.

    `values` are keyed by the job's words (the flags in snake_case), `settings` by the framework's own names (dotted
    below a section, such as `offload_optimizer.ratio`). `totals` are what the file says that is no word of a job but
    ties words together: `global_batch`, `replicas`. `files` are the other files a job file names. What moves bytes but
    is not modelled, has no effect, or is unknown is in `warnings`; what had to be supposed is in `assumptions`.
    """

    values: dict[str, Given] = field(default_factory=dict)
    settings: dict[str, Given] = field(default_factory=dict)
    totals: dict[str, Given] = field(default_factory=dict)
    files: dict[str, Given] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)

    def value(self, name: str, default: Any = None) -> Any:
        """The plain value of `name`, or `default` when the file does not say."""
        given = self.values.get(name)
        return default if given is None else given.value

    def absorb(self, other: Reading) -> None:
        """Add what `other` says; what is already here stands."""
        for mine, theirs in (
            (self.values, other.values),
            (self.settings, other.settings),
            (self.totals, other.totals),
            (self.files, other.files),
        ):
            for name, given in theirs.items():
                mine.setdefault(name, given)
        self.warnings += other.warnings
        self.assumptions += other.assumptions
