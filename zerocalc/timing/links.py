"""Seconds on the links: what a rank sends inside its node, across nodes, to the host and to NVMe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from zerocalc.formulas import offload as off
from zerocalc.formulas import timing as tm
from zerocalc.rates import host_rate, nvme_rates, ranks_per_node
from zerocalc.records import Record
from zerocalc.results.time import Bounds
from zerocalc.strategies import LEGS
from zerocalc.units import largest, smallest

if TYPE_CHECKING:
    from zerocalc.frameworks.terms import Collective, Plan
    from zerocalc.rank import RankView
    from zerocalc.specs.job import Job, Speed


@dataclass(eq=False, repr=False)
class Use(Record):
    """A class of links in use: bytes one rank sends, and seconds at the nominal and at the measured rate."""

    link: str
    num_bytes: int
    seconds: Bounds
    bandwidth: Bounds


def wire_uses(view: RankView, plan: Plan, speed: Speed) -> Iterator[Use]:
    """Seconds inside the nodes and across them."""
    job = view.job
    for link, rows in _by_link(job, plan.collectives).items():
        sending = [row for row in rows if row.group_size > 1]
        if not sending or speed.link_bytes_per_s is None or speed.ring_bytes_per_s is None:
            continue
        if link == "inter_node" and speed.network_bytes_per_s is None:
            continue
        network = speed.network_bytes_per_s
        real = None if network is None else network * speed.network_efficiency
        fast = sum(
            smallest(
                leg_s(job, row, row.full_bytes, speed.link_bytes_per_s, network),
                two_hops_s(job, row, speed.link_bytes_per_s, network),
            )
            for row in sending
        )
        slow = sum(leg_s(job, row, row.full_bytes, speed.ring_bytes_per_s, real) for row in sending)
        waits = sum(_latency_s(view, row, speed) for row in sending)
        bandwidth = (
            Bounds(lower=speed.ring_bytes_per_s, upper=speed.link_bytes_per_s)
            if link == "intra_node" or network is None or real is None
            else Bounds(lower=real, upper=network)
        )
        yield Use(
            link, sum(row.sent_bytes for row in sending), Bounds(lower=fast, upper=slow + waits), bandwidth
        )


def offload_uses(job: Job, plan: Plan) -> Iterator[Use]:
    """Seconds over PCIe (both directions at once, or one after the other) and to NVMe (every rank reads its part)."""
    moved = dict.fromkeys(("to_host", "from_host", "read", "write"), 0)
    for row in plan.traffic:
        moved[row.direction] += row.bytes
    host, drives = host_rate(job), nvme_rates(job)
    for link, rates in (
        ("host", host and {"to_host": host, "from_host": host}),
        ("nvme", drives and {"read": drives[0], "write": drives[1]}),
    ):
        total = sum(moved[name] for name in rates or ())
        if total and rates:
            times = [
                off.transfer_s(num_bytes=moved[name], bandwidth_bytes_per_s=rate)
                for name, rate in rates.items()
            ]
            slow, fast = reduce(smallest, rates.values()), reduce(largest, rates.values())
            bounds = Bounds(lower=reduce(largest, times), upper=sum(times))
            yield Use(link, total, bounds, Bounds(lower=slow, upper=fast))


def _by_link(job: Job, rows: Iterable[Collective]) -> dict[str, list[Collective]]:
    links: dict[str, list[Collective]] = {}
    for row in rows:
        links.setdefault("intra_node" if is_inside(job, row) else "inter_node", []).append(row)
    return links


def is_inside(job: Job, row: Collective) -> bool:
    """Whether a collective's ranks are neighbours in one node."""
    return row.group not in {"replica", "across_nodes"} and row.group_size <= ranks_per_node(job)


def leg_s(job: Job, row: Collective, full_bytes: int, inside: float, node: float | None) -> float:
    """Seconds of all of a row's legs at the given rates: per GPU inside, per node across."""
    ranks, legs = row.group_size, LEGS.get(row.op, 1)
    if ranks <= 1:
        return 0.0
    if is_inside(job, row) or node is None:
        leg = tm.ring_leg_s(full_bytes=full_bytes, ranks=ranks, latency_s=0.0, bandwidth_bytes_per_s=inside)
    else:
        sharing = ranks_per_node(job) if row.group in {"replica", "across_nodes"} else 1
        leg = tm.flat_ring_leg_s(
            full_bytes=full_bytes,
            ranks=ranks,
            node_bandwidth_bytes_per_s=inside,
            nics_per_node=1,
            nic_bandwidth_bytes_per_s=node / sharing,
        )
    seconds: float = legs * leg
    return seconds


def two_hops_s(job: Job, row: Collective, inside: float, node: float | None) -> float:
    """Seconds of a row's legs done hierarchically; those of the flat ring where that is no choice."""
    per_node = ranks_per_node(job)
    if (
        is_inside(job, row)
        or node is None
        or row.group in {"replica", "across_nodes"}
        or row.group_size % per_node
    ):
        return leg_s(job, row, row.full_bytes, inside, node)
    leg = tm.hierarchical_leg_s(
        full_bytes=row.full_bytes,
        ranks_per_node=per_node,
        num_nodes=row.group_size // per_node,
        node_bandwidth_bytes_per_s=inside,
        network_bytes_per_s=node,
    )
    seconds: float = LEGS.get(row.op, 1) * leg
    return seconds


def _latency_s(view: RankView, row: Collective, speed: Speed) -> float:
    """Seconds of start-up: every hop of every call, one call per layer where the plan counts a pass as one."""
    calls = max(row.count, view.job.workload.grad_accum * max(1, view.layout.num_layers))
    hops: int = calls * LEGS.get(row.op, 1) * (row.group_size - 1)
    return hops * speed.latency_s
