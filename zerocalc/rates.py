"""Rates of what a node's ranks share: their way to the host, and the drives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.units import smallest

if TYPE_CHECKING:
    from zerocalc.specs.job import Job


def ranks_per_node(job: Job) -> int:
    """Ranks of the job on one node, all of them where nodes are not known."""
    p = job.parallelism
    return min(p.gpus_per_node or p.world_size, p.world_size)


def host_rate(job: Job) -> float | None:
    """Bytes per second between one GPU and its host: its own link's, or its share of what the node's have together."""
    speed = job.speed
    if speed is None or speed.host_bytes_per_s is None:
        return None
    if speed.host_node_bytes_per_s is None:
        return speed.host_bytes_per_s
    return smallest(speed.host_bytes_per_s, speed.host_node_bytes_per_s / ranks_per_node(job))


def nvme_rates(job: Job) -> tuple[float, float] | None:
    """Bytes per second of one rank's share of its node's drives, reading and writing."""
    speed = job.speed
    if speed is None or speed.nvme_bytes_per_s is None:
        return None
    ranks = ranks_per_node(job)
    return speed.nvme_bytes_per_s / ranks, (speed.nvme_write_bytes_per_s or speed.nvme_bytes_per_s) / ranks
