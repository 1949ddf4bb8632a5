"""What a reader hands back: values in zerocalc's own words, each with the file and key it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Given:
    """A value and where it came from, such as `file:ds_config.json:zero_optimization.stage`."""

    value: Any
    origin: str


@dataclass(slots=True)
class Reading:
    """One file in zerocalc's vocabulary.

    `values` are keyed by flag names in snake_case, `settings` by the framework's own names (dotted below a section,
    such as `offload_optimizer.ratio`). What moves bytes but is not modelled, has no effect, or is unknown is in
    `warnings`; what had to be supposed is in `assumptions`.
    """

    values: dict[str, Given] = field(default_factory=dict)
    settings: dict[str, Given] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)

    def value(self, name: str, default: Any = None) -> Any:
        """The plain value of `name`, or `default` when the file does not say."""
        given = self.values.get(name)
        return default if given is None else given.value

    def absorb(self, other: Reading) -> None:
        """Add what `other` says; what is already here stands."""
        for name, given in other.values.items():
            self.values.setdefault(name, given)
        for name, given in other.settings.items():
            self.settings.setdefault(name, given)
        self.warnings += other.warnings
        self.assumptions += other.assumptions
