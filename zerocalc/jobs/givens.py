"""The words a job can be told by, and what is known about each: its value, its origin, how to point at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.errors import SpecError, near_names, shown
from zerocalc.units import parse_count

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from zerocalc.readers.reading import Given

SPEED_WORDS = {
    "peak_flops": "peak_flops_per_s",
    "busbw": "ring_bytes_per_s",
    "network": "network_bytes_per_s",
    "host_bandwidth": "host_bytes_per_s",
    "nvme_bandwidth": "nvme_bytes_per_s",
    "cpu_adam": "cpu_adam_params_per_s",
    "dram_bandwidth": "dram_bytes_per_s",
}
"""Each flag and the rate it sets."""

WORDS = frozenset(
    {
        *SPEED_WORDS,
        "model",
        "gpus",
        "dp",
        "tp",
        "pp",
        "cp",
        "ep",
        "etp",
        "gpus_per_node",
        "shard_size",
        "gpu",
        "node",
        "host_memory",
        "nvme_memory",
        "reserve",
        "precision",
        "optimizer",
        "k",
        "param_dtype",
        "grad_dtype",
        "reduce_dtype",
        "trainable",
        "frozen_dtype",
        "lora_rank",
        "lora_targets",
        "also",
        "offload_optimizer",
        "offload_params",
        "micro_batch",
        "seq_len",
        "grad_accum",
        "checkpointing",
        "attention",
        "sequence_parallel",
        "expert_params",
        "strategy",
        "framework",
        "mfu",
        "tokens",
    }
)
"""Every word a job can be told by; flags have hyphens for underscores."""


class Givens:
    """The given words, what has been assumed on the way, and where each resolved value came from."""

    def __init__(self, given: Mapping[str, Given], presets_dir: Path | None = None) -> None:
        self._given = dict(given)
        self.presets_dir = presets_dir
        self.origins: dict[str, str] = {}
        self.assumptions: list[str] = []
        self.warnings: list[str] = []

    def __contains__(self, word: str) -> bool:
        return self._given.get(word) is not None and self._given[word].value is not None

    def raw(self, word: str) -> Any:
        """The value as given, or None."""
        return self._given[word].value if word in self else None

    def origin(self, word: str, *, default: str = "default") -> str:
        """Where the word's value came from."""
        return self._given[word].origin if word in self else default

    def where(self, word: str) -> str:
        """How to point the user at a word: the flag, or the file and key."""
        origin = self.origin(word, default="flag")
        if origin in {"flag", "argument"}:
            return f"--{word.replace('_', '-')}"
        file, _, key = origin.removeprefix("file:").rpartition(":")
        return f"{file}: {key}" if file else key

    def text(self, word: str, default: str | None = None) -> str | None:
        """A word's value as text; empty text is refused."""
        if word not in self:
            return default
        text = str(self.raw(word)).strip()
        if not text:
            raise SpecError(f"{self.where(word)}: is empty")
        return text

    def count(self, word: str, default: Any = None, *, minimum: int = 1, maximum: int = 10**15) -> Any:
        """A whole number."""
        if word not in self:
            return default
        value = self.raw(word)
        if isinstance(value, bool):
            raise SpecError(f"{self.where(word)}: must be a whole number (got {str(value).lower()})")
        return parse_count(str(value), name=self.where(word), minimum=minimum, maximum=maximum)

    def note(self, path: str, word: str, *, default: str = "default") -> None:
        """Record a resolved value's origin."""
        self.origins[path] = self.origin(word, default=default)


def choice(
    g: Givens, word: str, allowed: tuple[str, ...], default: str, aliases: Mapping[str, str] | None = None
) -> Any:
    """One of a few words, in lower case. Raises SpecError listing them."""
    text = (g.text(word, default) or default).lower()
    text = (aliases or {}).get(text, text)
    if text not in allowed:
        near = near_names(text, list(allowed))
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise SpecError(
            f"{g.where(word)}: must be one of {', '.join(allowed)} (got {shown(g.raw(word))}){meant}"
        )
    return text
