"""The papers' ideal: model states, what crosses the wire, groups inside nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import zerocalc
from tests.worked.asking import estimate, moved, states


def zero_table_1(i: Mapping[str, Any]) -> Any:
    return {
        s: states(i["params"], strategy=s, dp=i["dp"], k=str(i["K"])) for s in ("zero1", "zero2", "zero3")
    }


def zero_figure_1(i: Mapping[str, Any]) -> Any:
    rows = zerocalc.compare(zerocalc.job(i["params"], dp=i["dp"])).results
    names = ("baseline", "zero1", "zero2", "zero3")
    return {
        name: row.memory.gpu.model_states_bytes for name, row in zip(names, rows, strict=True) if row.memory
    }


def collectives_alone(i: Mapping[str, Any]) -> Any:
    whole = {s: estimate(i["params"], strategy=s, dp=i["N"]) for s in ("ddp", "zero1")}
    return {
        "all_reduce": moved(whole["ddp"], "sent_bytes"),
        "reduce_scatter": moved(whole["zero1"], "sent_bytes", op="reduce_scatter"),
        "all_gather": moved(whole["zero1"], "sent_bytes", op="all_gather"),
    }


def hsdp(i: Mapping[str, Any]) -> Any:
    result = estimate(i["params"], strategy="hsdp", gpus=i["n"] * i["R"], shard_size=i["n"])
    return {
        "intra_ag": moved(result, "sent_bytes", op="all_gather"),
        "intra_rs": moved(result, "sent_bytes", op="reduce_scatter"),
        "inter_all_reduce": moved(result, "sent_bytes", op="all_reduce"),
    }


def zeropp_volume(i: Mapping[str, Any]) -> Any:
    def across_nodes(strategy: str) -> float:
        row = estimate(i["params"], gpus=64, gpus_per_node=8, strategy=strategy).communication
        assert row is not None
        return row.inter_node_volume_params * 2 * i["params"]

    return {strategy: across_nodes(strategy) for strategy in ("zero3", "zeropp")}


def hpz_memory(i: Mapping[str, Any]) -> Any:
    words = {"gpus": i["N"], "gpus_per_node": i["n"]}
    sharded, secondary, whole = (states(i["params"], strategy=s, **words) for s in ("zero3", "zeropp", "ddp"))
    return {
        "zero3": sharded, "hpz": secondary, "dp": whole, "ratio_dp": whole / secondary,
        "ratio_z3": secondary / sharded,
    }  # fmt: skip


def deepseek_v3(i: Mapping[str, Any]) -> Any:
    job = zerocalc.job(
        i["total"], expert_params=i["routed"], gpus=i["gpus"], pp=i["pp"], ep=i["ep"], strategy="zero1",
        precision="deepseek-v3",
    )  # fmt: skip
    (result,) = zerocalc.estimate(job).results
    assert result.memory is not None
    params = {t.part: t.inputs["num_params"] for t in result.memory.gpu.terms if t.name == "params"}
    return {
        "dp": job.parallelism.data_parallel_size,
        "edp": job.parallelism.expert_shard_size,
        "expert_params_gpu": params["expert"],
        "other_params_gpu": params["dense"],
        "bytes": result.memory.gpu.model_states_bytes,
    }
