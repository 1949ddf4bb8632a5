"""One evaluated formula as a line of an explanation: its numbers, where each came from, and its source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zerocalc.results.explanation import ExplainedInput, ExplainedLine
from zerocalc.sources import SOURCES

if TYPE_CHECKING:
    from zerocalc.frameworks.terms import Evaluated
    from zerocalc.specs.job import Job

_ORIGIN_OF_INPUT = {
    "shards": ("world_size", "tp", "pp", "cp", "sharding_group_size"),
    "ranks": ("world_size", "tp", "pp", "cp", "sharding_group_size"),
    "num_params": ("num_params",),
    "count": ("grad_accum",),
    "tokens": ("micro_batch", "seq_len"),
    "batch_size": ("micro_batch", "gpus_per_node"),
    "seq_len": ("seq_len",),
    "flops_per_s": ("peak_flops_per_s", "mfu"),
    "peak_flops_per_s": ("peak_flops_per_s",),
    "utilization": ("mfu",),
    "compute.flops_per_s": ("peak_flops_per_s",),
    "node_bandwidth_bytes_per_s": ("link_bytes_per_s",),
    "nic_bandwidth_bytes_per_s": ("network_bytes_per_s",),
    "network_bytes_per_s": ("network_bytes_per_s",),
    "host.bandwidth_bytes_per_s": ("host_bytes_per_s", "host_node_bytes_per_s", "gpus_per_node"),
    "cpu.bandwidth_bytes_per_s": ("host_bytes_per_s", "host_node_bytes_per_s", "gpus_per_node"),
    "nvme.bandwidth_bytes_per_s": ("nvme_bytes_per_s", "gpus_per_node"),
    "pcie_share_bytes_per_s": ("host_bytes_per_s", "host_node_bytes_per_s", "gpus_per_node"),
    "cpu.tier_share_bytes_per_s": ("host_bytes_per_s", "host_node_bytes_per_s", "gpus_per_node"),
    "nvme.tier_share_bytes_per_s": ("nvme_bytes_per_s", "gpus_per_node"),
    "params_per_s": ("cpu_adam_params_per_s",),
    "ranks_per_node": ("gpus_per_node",),
}
"""The job's words that an input follows from; a tier before the dot where it depends on that."""
_BYTES_OF_STATE = {
    "params": "param_dtype",
    "grads": "grad_dtype",
    "optimizer_states": "optimizer_bytes_per_param",
}


def line_of(
    job: Job,
    amount: Evaluated,
    *,
    name: str,
    part: str,
    tier: str,
    state: str | None = None,
    phases: Sequence[str] = (),
    unit: str = "byte",
) -> ExplainedLine:
    """One evaluated formula as a line: its numbers, where each came from, and its source."""
    source = SOURCES[amount.source]
    return ExplainedLine(
        strategy=job.strategy,
        name=name,
        part=part,
        tier=tier,
        value=amount.value,
        unit=unit,
        formula=amount.expression,
        substituted=amount.substituted(),
        inputs=[
            ExplainedInput(name=key, value=value, origin=_origin(job, key, value, state, tier))
            for key, value in amount.inputs.items()
        ],
        source=amount.source,
        citation=f"{source.title}, {source.section} ({source.url})",
        phases=list(phases),
    )


def _origin(job: Job, key: str, value: object, state: str | None, tier: str) -> str:
    """Where an input came from: the words of the job it follows from, each with its origin."""
    if key == "shards" and value == 1 and job.parallelism.shard_size > 1:
        return f"{job.strategy} keeps it whole"
    if key.startswith("bytes_per") and state in _BYTES_OF_STATE:
        words: Sequence[str] = (_BYTES_OF_STATE[state],)
    else:
        words = _ORIGIN_OF_INPUT.get(f"{tier}.{key}") or _ORIGIN_OF_INPUT.get(key, ())
    origins = {**(job.speed.origins if job.speed else {}), **job.origins}
    known = {word: origins[word] for word in words if origins.get(word, "default") != "default"}
    if not known:
        return "default" if words else "derived"
    return ", ".join(f"{word} from {origin}" for word, origin in known.items())
