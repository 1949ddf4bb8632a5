"""Seconds of collectives, FLOPs, and the tokens that hide traffic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.worked.asking import estimate
from zerocalc.formulas import timing


def ring(i: Mapping[str, Any]) -> dict[str, Any]:
    return {"full_bytes": i["S"], "latency_s": i["alpha"], "bandwidth_bytes_per_s": i["B"]}


def tree(i: Mapping[str, Any]) -> float:
    return timing.tree_all_reduce_s(levels=timing.tree_levels(i["N"]), **ring(i))


def hierarchical(i: Mapping[str, Any]) -> float:
    return timing.hierarchical_all_reduce_s(
        full_bytes=i["S"], ranks_per_node=i["L"], num_nodes=i["M"], node_bandwidth_bytes_per_s=i["Bi"],
        nic_bandwidth_bytes_per_s=i["Bo"],
    )  # fmt: skip


def bus_factors(i: Mapping[str, Any]) -> Any:
    ours = {"alltoall": "all_to_all"}
    names = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "reduce")
    return {name: timing.BUS_FACTORS[ours.get(name, name)](ranks=i["n"]) for name in names}


def crossover(i: Mapping[str, Any]) -> Any:
    """Tokens that hide ZeRO-3's traffic on one node of so many GPUs, read from the estimate's time."""
    result = estimate(
        f"{i['N']}b", dp=i["N"], strategy="zero3", gpu="80GB", micro_batch=1, seq_len=1024, mfu="1",
        peak_flops=f"{i['E']}", busbw=f"{i['B'] / 1e9}GB/s", checkpointing="full" if i["c"] == 8 else "none",
        reduce_dtype="fp32" if i["bytes_per_param"] == 8 else "bf16",
    )  # fmt: skip
    assert result.time is not None
    return next(link.tokens_to_hide for link in result.time.links if link.link == "intra_node")


def flops(i: Mapping[str, Any]) -> Any:
    tokens, rest = i["T"], i["params"] - i["V"] * i["h"]
    shape = {
        "num_layers": i["L"], "num_heads": 1, "head_dim": i["h"], "seq_len": i["s"], "tokens": tokens,
    }  # fmt: skip
    linear = timing.linear_flops(matmul_params=rest, tokens=tokens, recomputed_forwards=0)
    attention = timing.attention_flops(**shape, recomputed_forwards=0)
    again = timing.linear_flops(matmul_params=rest, tokens=tokens, recomputed_forwards=1) - linear
    again += timing.attention_flops(**shape, recomputed_forwards=1) - attention
    return {"linear": linear, "attn": attention, "total": linear + attention, "recompute_extra": again}
