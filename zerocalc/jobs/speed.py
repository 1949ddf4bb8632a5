"""Rates of a GPU, its node and its links, from presets and flags, each with its origin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.errors import SpecError
from zerocalc.jobs.givens import SPEED_WORDS
from zerocalc.specs.job import Speed
from zerocalc.units import parse_count, parse_rate, parse_ratio

if TYPE_CHECKING:
    from zerocalc.jobs.givens import Givens
    from zerocalc.presets import Gpu, Node
USUAL_MFU = "0.35"
"""Assumed where none is given: between what well-tuned dense runs and untuned ones report."""


_REPLACED = {"host_bandwidth": "host_node_bytes_per_s", "nvme_bandwidth": "nvme_write_bytes_per_s"}
"""What a preset says beside a rate, which a rate that was given takes the place of."""


def resolve_speed(g: Givens, gpu: Gpu | None, node: Node | None) -> Speed | None:
    """Collect the rates, when a batch makes them matter or one was given; None otherwise.

    Raises SpecError for a rate without its unit or a utilization outside (0, 1].
    """
    if not any(word in g for word in ("micro_batch", "mfu", "tokens", *SPEED_WORDS)):
        return None
    rates: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, (value, origin) in (_from_presets(gpu, node) if gpu else {}).items():
        rates[name], origins[name] = value, origin
    for word, name in SPEED_WORDS.items():
        if word in g:
            rates[name], origins[name] = _given_rate(g, word), g.origin(word)
    for word, name in _REPLACED.items():
        if word in g:
            rates.pop(name, None), origins.pop(name, None)
    if "ring_bytes_per_s" in rates and "busbw" in g:
        rates["link_bytes_per_s"], origins["link_bytes_per_s"] = rates["ring_bytes_per_s"], g.origin("busbw")
    mfu = float(parse_ratio(str(g.raw("mfu") or USUAL_MFU), name=g.where("mfu")))
    if not 0 < mfu <= 1:
        raise SpecError(f"{g.where('mfu')}: must be above 0 and at most 1 (got {g.raw('mfu')})")
    origins["mfu"] = g.origin("mfu", default="assumed")
    if "tokens" in g:
        origins["tokens"] = g.origin("tokens")
    return Speed(mfu=mfu, tokens=g.count("tokens", maximum=10**15), origins=origins, **rates)


def _given_rate(g: Givens, word: str) -> float:
    """A rate as typed: FLOP/s and parameters/s are counts, links are sizes per second."""
    text = g.text(word) or ""
    if word in {"peak_flops", "cpu_adam"}:
        bare = (
            text.removesuffix("/s").removesuffix("FLOP").removesuffix("FLOPS").removesuffix("params").strip()
        )
        return float(parse_count(bare, name=g.where(word), maximum=10**18))
    return parse_rate(text, name=g.where(word))


def _from_presets(gpu: Gpu, node: Node | None) -> dict[str, tuple[float, str]]:
    """What the presets know: nominal rates from the part, measured ones from logs."""
    from zerocalc.presets import load_link_rates

    measured = load_link_rates(gpu.id)
    nominal = node.intra_link_bytes_per_s if node and node.intra_link_bytes_per_s else gpu.scaleup_bytes_per_s
    link = nominal or gpu.host_bytes_per_s
    found = {
        "peak_flops_per_s": (gpu.half_flops_per_s, gpu.origin),
        "link_bytes_per_s": (link, node.origin if node and node.intra_link_bytes_per_s else gpu.origin),
        "ring_bytes_per_s": (measured.ring_bytes_per_s or link, measured.origin),
        "network_efficiency": (measured.network_efficiency, measured.origin),
        "host_bytes_per_s": (measured.device_to_host_bytes_per_s or gpu.host_bytes_per_s, measured.origin),
        "latency_s": (measured.latency_s, measured.origin),
        "cpu_adam_params_per_s": (measured.cpu_adam_params_per_s, measured.origin),
    }
    if node:
        found |= {
            "network_bytes_per_s": (node.network_bytes_per_s, node.origin),
            "host_node_bytes_per_s": (node.host_node_bytes_per_s, node.origin),
            "nvme_bytes_per_s": (node.nvme_read_bytes_per_s, node.origin),
            "nvme_write_bytes_per_s": (node.nvme_write_bytes_per_s, node.origin),
        }
    return {name: (value, origin) for name, (value, origin) in found.items() if value is not None}
