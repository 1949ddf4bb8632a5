"""ZeRO-Offload and ZeRO-Infinity: host, NVMe, PCIe, the efficiency they leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import zerocalc
from tests.worked.asking import estimate, memory, terms
from zerocalc.formulas import offload


def infinity_table(i: Mapping[str, Any]) -> Any:
    model = f"{i['nl']}x{i['hd']}x{i['attn_heads']}"
    node = {"gpus": 16, "gpus_per_node": 16, "seq_len": i["seq"], "checkpointing": "full"}
    job = zerocalc.job(
        model, strategy="zero3", precision="zero-infinity", offload_optimizer="nvme", offload_params="nvme",
        micro_batch=i["bsz_node"] // 16, settings={"cpu_checkpointing": True}, **node,
    )  # fmt: skip
    (result,) = zerocalc.estimate(job).results
    assert result.memory is not None
    said = explained(model, micro_batch=i["bsz_gpu"], **node)
    return {
        "params": job.model.num_params,
        "model_states": result.memory.nvme.bytes_per_node,
        "act_ckpt": result.memory.cpu.bytes_per_node,
        "MSWM": terms(result, name="gathered_operator"),
        "AWM": said["activation_working_memory", "zero-infinity", "gpu"],
    }


def explained(model: Any, **words: Any) -> dict[tuple[str, str, str], Any]:
    """The lines of `zerocalc explain offload`, by name, part and tier."""
    lines = zerocalc.explain(zerocalc.job(model, **words), "offload").lines
    return {(line.name, line.part, line.tier): line.value for line in lines}


def params_bandwidth(i: Mapping[str, Any]) -> Any:
    words = {"micro_batch": i["bsz"], "seq_len": i["seq"], "peak_flops": f"{i['peak_flops']}"}
    said = explained("1b", gpus=16, **words)
    return {
        "ait": said["arithmetic_intensity", "params_and_grads", ""],
        "bw_for_50pct_Bps": said["bandwidth_for_50%", "params_and_grads", ""],
    }


def optimizer_bandwidth(i: Mapping[str, Any]) -> Any:
    words = {"micro_batch": i["bsz"], "seq_len": i["seq"], "peak_flops": f"{i['peak_flops']}"}
    said = explained("1b", gpus=16, **words)
    return {
        "ait": said["arithmetic_intensity", "optimizer_states", ""],
        "bw_Bps": said[f"bandwidth_for_{i['eff']:.0%}", "optimizer_states", ""],
    }


def checkpoint_efficiency(i: Mapping[str, Any]) -> Any:
    """From `explain`, and the same from an estimate whose checkpoints are offloaded."""
    rates = {"peak_flops": f"{i['peak_flops']}", "host_bandwidth": f"{i['bw'] / 1e9}GB/s"}
    model = f"1x{i['hd']}x16"
    said = explained(model, gpus=1, **rates)
    timed = estimate(
        model, gpus=1, strategy="ddp", micro_batch=1, seq_len=1024, checkpointing="full",
        settings={"cpu_checkpointing": True}, **rates,
    ).time  # fmt: skip
    assert timed is not None
    assert timed.efficiency == {"activation_checkpoints": said["efficiency", "activation_checkpoints", "cpu"]}
    return {
        "ait": said["arithmetic_intensity", "activation_checkpoints", ""],
        "eff": said["efficiency", "activation_checkpoints", "cpu"],
    }


def params_efficiency(i: Mapping[str, Any]) -> Any:
    result = estimate(
        "1b", dp=1, strategy="zero3", offload_params="cpu", offload_optimizer="cpu", micro_batch=1,
        seq_len=i["ait"], peak_flops=f"{i['peak_flops']}", host_bandwidth=f"{i['bw'] / 1e9}GB/s",
    )  # fmt: skip
    assert result.time is not None
    return result.time.efficiency["params_and_grads"]


def capacity_ceilings(i: Mapping[str, Any]) -> Any:
    def largest(tier: str, **room: str) -> Any:
        job = zerocalc.job(
            1, gpus=16, gpus_per_node=16, gpu="32GB", strategy="zero3", precision="zero-infinity",
            offload_optimizer=tier, offload_params=tier, **room,
        )  # fmt: skip
        return zerocalc.solve(job, "params", strategies=["zero3"]).answers[0].value

    return {
        "nvme_params": largest("nvme", nvme_memory=f"{i['nvme']}B"),
        "cpu_params": largest("cpu", host_memory=f"{i['cpu']}B"),
    }


def aggregate_rates(i: Mapping[str, Any]) -> Any:
    per_node = 16
    said = explained(
        "1b", gpus=per_node * i["nodes"], gpus_per_node=per_node,
        host_bandwidth=f"{i['cpu_Bps_node'] / per_node / 1e9}GB/s", nvme_bandwidth=f"{i['nvme_Bps_node'] / 1e9}GB/s",
    )  # fmt: skip
    return {tier: said["bandwidth_of_all_nodes", "bandwidth-centric", tier] for tier in ("cpu", "nvme")}


def zero_offload(i: Mapping[str, Any]) -> Any:
    held = memory(i["params"], gpus=1, gpus_per_node=1, strategy="zero2", offload_optimizer="cpu")
    gpu, host = held.gpu.model_states_bytes, held.cpu.bytes_per_rank
    return {"total": gpu + host, "gpu": gpu, "cpu": host}


def pcie_traffic(i: Mapping[str, Any]) -> Any:
    words = {"strategy": "zero2", "offload_optimizer": "cpu"}
    moved = estimate(i["params"], gpus=i["N"], **words).communication
    alone = estimate(
        i["params"], gpus=1, micro_batch=1, seq_len=1, peak_flops="1T", host_bandwidth=f"{i['pcie_Bps'] / 1e9}GB/s", **words
    )  # fmt: skip
    assert moved is not None
    assert alone.time is not None
    down, up = moved.links.host.to_host_bytes, moved.links.host.from_host_bytes
    assert down == up
    return {
        "total": i["N"] * (down + up),
        "per_rank_each_way": down,
        "sec_1gpu": alone.time.links[-1].seconds.upper,
    }


def tokens_that_hide(i: Mapping[str, Any]) -> Any:
    def tokens(checkpointing: str) -> float | None:
        result = estimate(
            "10b", gpus=1, strategy="zero2", offload_optimizer="cpu", micro_batch=1, seq_len=1024, mfu="1",
            peak_flops=f"{i['E']}", host_bandwidth=f"{i['B'] / 1e9}GB/s", checkpointing=checkpointing,
        )  # fmt: skip
        assert result.time is not None
        return next(link.tokens_to_hide for link in result.time.links if link.link == "host")

    return {"no_recompute": tokens("none"), "recompute": tokens("full")}


def cpu_adam(i: Mapping[str, Any]) -> Any:
    rates = [
        offload.update_rate(num_params=count * 10**9, seconds=seconds)
        for count, seconds in zip(i["params"], i["cpu_adam_s"], strict=True)
    ]
    return {"params_per_s": [round(rate) for rate in rates]}
