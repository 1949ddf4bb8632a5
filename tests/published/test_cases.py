"""Published facts that are arithmetic: paper tables, closed forms, estimators' output, single operators.

`CASES` says how each fact is computed; one that is missing there must have its reason in `UNASSERTED`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import zerocalc
from zerocalc.formulas import activations, loss, offload, timing
from zerocalc.strategies import COMPARED

FACTS = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[1] / "data/published/cases.json").read_text())
}
GB, MIB, GIB, TIB = 10**9, 2**20, 2**30, 2**40
WORKSPACE_MIB = 16.3
"""cuBLAS's own workspace, which every peak of a kernel benchmark holds besides what is modelled."""

UNASSERTED = {
    "zero-act-gpt2-1.5b": "the paper's rough 12 values per hidden element, printed as about",
    "zero-act-100b": "printed as about 60 GB where its own shape gives 67; the layers are inferred",
    "zinf-40b-1gpu": "a fit on a machine whose reserve is not said; gate rows judge fits",
    "kor-530b-2240": "a speed, not a size",
}
"""Facts that are no exact arithmetic, and why."""

Fact = Mapping[str, Any]


def memory(model: Any, **words: Any) -> Any:
    """The memory of the one result of an estimate."""
    return zerocalc.estimate(zerocalc.job(model, **words)).results[0].memory


def states(model: Any, **words: Any) -> int:
    held: int = memory(model, **words).gpu.model_states_bytes
    return held


def decimals(printed: float | str) -> int:
    """Digits printed behind the point."""
    return len(str(printed).partition(".")[2].rstrip("0"))


def is_printed(value: float, printed: float) -> bool:
    """Whether a number rounds, or is cut, to what is printed: the papers do both."""
    step = 10.0 ** -decimals(printed)
    return abs(value - printed) < step * (1 + 1e-9)


# ZeRO


def table_1(inputs: Fact, measured: Fact) -> None:
    for strategy in ("zero1", "zero2", "zero3"):
        held = states(
            int(inputs["params"]), strategy=strategy, dp=inputs["dp"], k=str(inputs["optimizer_bytes_K"])
        )
        assert is_printed(held / GB, measured[f"{strategy}_GB"]), strategy


def figure_1(inputs: Fact, measured: Fact) -> None:
    results = zerocalc.compare(zerocalc.job(int(inputs["params"]), dp=inputs["dp"])).results
    for row, name in zip(results, ("baseline", "zero1", "zero2", "zero3"), strict=True):
        assert row.memory is not None
        assert (
            round(row.memory.gpu.model_states_bytes / GB, decimals(measured[f"{name}_GB"]))
            == measured[f"{name}_GB"]
        )


def table_2(inputs: Fact, measured: Fact) -> None:
    """The largest model by theory: the paper rounds that of one GPU and multiplies by the model-parallel degree."""
    job = zerocalc.job(
        1, gpus=inputs["gpus"], tp=inputs["mp"], gpu=f"{inputs['budget_GB']}GB", k=str(inputs["K"])
    )
    for answer in zerocalc.solve(job, "params", strategies=COMPARED).answers:
        printed = measured["theory_" + {"ddp": "baseline"}.get(answer.strategy, answer.strategy)]
        assert isinstance(answer.value, int)
        whole = round(answer.value / inputs["mp"] / GB, 1) * inputs["mp"]
        number = float(printed[:-1]) * {"B": 1, "T": 1024}[printed[-1]]
        assert whole == pytest.approx(number, rel=1e-12), answer.strategy


def volumes(_: Fact, measured: Fact) -> None:
    results = zerocalc.compare(zerocalc.job("7.5b", dp=64)).results
    found = {row.strategy: row.communication.volume_params for row in results if row.communication}
    assert found == {strategy: measured[strategy] for strategy in COMPARED}
    ratio = next(row.communication.volume_ratio_to_ddp for row in results[-1:] if row.communication)
    assert ratio == measured["ratio_zero3_vs_dp"]


def fused_buffer(inputs: Fact, measured: Fact) -> None:
    settings = {"constant_buffer": int(inputs["params"])}
    terms = memory(int(inputs["params"]), dp=1, strategy="ddp", settings=settings).gpu.terms
    assert sum(t.bytes for t in terms if t.name == "constant_buffer") == measured["buffer_GB"] * GB


def states_and_weights(inputs: Fact, measured: Fact) -> None:
    gpu = memory(int(inputs["params"]), dp=1, strategy="ddp").gpu
    assert gpu.model_states_bytes == measured["states_GB"] * GB
    assert sum(t.bytes for t in gpu.terms if t.name == "params") == measured["weights_GB"] * GB


def partitioned_checkpoints(_: Fact, measured: Fact) -> None:
    sizes = {"tokens": 1024, "hidden_size": 8192}
    restored = activations.partitioned_checkpoint_elements(**sizes)
    block = activations.tensor_parallel_block_elements(**sizes)
    assert f"1/{block // restored}" == measured["extra_fraction"]


def largest_without_sharding(inputs: Fact, _: Fact) -> None:
    """What the paper trains fits; twice its states do not."""
    words = {"dp": 1, "strategy": "ddp", "gpu": "v100-sxm2-32gb"}
    fits = [
        zerocalc.estimate(zerocalc.job(int(inputs["params_max"]) * times, **words)).results[0].fits
        for times in (1, 2)
    ]
    assert fits == [True, False]


# ZeRO-Offload and ZeRO-Infinity

PLACEMENTS = {
    "everything on GPU": "baseline",
    "fp16 gradients on CPU": "grads",
    "fp16 gradients and fp32 update states on CPU": "optimizer",
    "only fp16 parameters remain on the GPU": "zero-offload",
}


def placement(inputs: Fact, measured: Fact) -> None:
    """The rows of the paper's table; its third row keeps 16-bit gradients on the GPU, as 4 bytes say."""
    lines = zerocalc.explain(zerocalc.job("10b", gpus=1), "offload").lines
    kept = {line.part: line.value for line in lines if line.name == "kept_on_gpu"}
    per_param = kept[PLACEMENTS[inputs["placement"]]] / 10**10
    assert per_param == measured["gpu_bytes_per_param"]
    assert is_printed(16 / per_param, float(measured["reduction"].rstrip("x")))


def one_gpu_offload(inputs: Fact, measured: Fact) -> None:
    words = {"gpus": 1, "gpu": "v100-sxm2-32gb"}
    model = int(inputs["params"])
    offloaded = zerocalc.job(model, strategy="zero2", offload_optimizer="cpu", **words)
    assert zerocalc.estimate(offloaded).results[0].fits is measured["fits"]
    assert zerocalc.estimate(zerocalc.job(model, strategy="ddp", **words)).results[0].fits is False


def infinity_table(inputs: Fact, measured: Fact) -> None:
    model = f"{inputs['layers']}x{inputs['hidden']}x{inputs['heads']}"
    held = memory(
        model, gpus=16, gpus_per_node=16, strategy="zero3", precision="zero-infinity", offload_optimizer="nvme",
        offload_params="nvme",
    )  # fmt: skip
    said = zerocalc.explain(
        zerocalc.job(model, gpus=16, micro_batch=inputs["bsz"], seq_len=inputs["seq"]), "offload"
    )
    working = next(line.value for line in said.lines if line.name == "activation_working_memory")
    assert zerocalc.job(model, gpus=1).model.num_params == measured["params_formula"]
    assert is_printed(held.nvme.bytes_per_node / TIB, measured["model_states_TiB"])
    assert is_printed(working / GIB, measured["awm_GiB"])
    if not isinstance(measured["mswm_GiB"], str):  # the 0.10T row prints 1.95 where its formula gives 1.56
        assert is_printed(held.gpu.peak_bytes / GIB, measured["mswm_GiB"])


def intensities(inputs: Fact, measured: Fact) -> None:
    job = zerocalc.job("1x2048x16", gpus=1, micro_batch=3, seq_len=inputs["seq"])
    found = {
        line.part: line.value
        for line in zerocalc.explain(job, "offload").lines
        if line.name == "arithmetic_intensity"
    }
    names = {"seq": inputs["seq"], "bsz": 3, "hd": 2048, "ci": 1}
    parts = {
        "params_grads_ait": "params_and_grads",
        "optimizer_ait": "optimizer_states",
        "act_ckpt_ait": "activation_checkpoints",
    }
    assert {key: eval(text, {}, names) for key, text in measured.items()} == {
        key: found[part] for key, part in parts.items()
    }


def checkpoint_bandwidth(inputs: Fact, measured: Fact) -> None:
    ait = offload.checkpoint_intensity(hidden_size=inputs["hidden"], layers_per_checkpoint=inputs["ci"])
    reached = offload.efficiency(
        intensity=ait,
        bandwidth_bytes_per_s=inputs["bw_GBps"] * 1e9,
        peak_flops_per_s=inputs["peak_tflops"] * 1e12,
    )
    assert reached > float(measured["efficiency"].removeprefix(">"))


# Activations

GPT = {"s": 2048, "b": 2, "h": 6144, "a": 64, "t": 8}


@cache
def gpt(directory: Path, hidden: int, heads: int, layers: int) -> str:
    path = directory / f"gpt-{hidden}-{heads}-{layers}.json"
    keys = {"model_type": "gpt2", "n_embd": hidden, "n_head": heads, "n_layer": layers, "vocab_size": 51200}
    path.write_text(json.dumps(keys | {"n_positions": 2048}))
    return str(path)


LAYOUTS: dict[str, dict[str, Any]] = {
    "kor-eq-none": {},
    "kor-eq-tp": {"tp": GPT["t"]},
    "kor-eq-tpsp": {"tp": GPT["t"], "sequence_parallel": True},
    "kor-eq-sel": {"tp": GPT["t"], "sequence_parallel": True, "checkpointing": "selective"},
    "kor-eq-full": {"tp": GPT["t"], "checkpointing": "full"},
}


def korthikanti(name: str) -> Callable[[Fact, Fact], None]:
    def held(_: Fact, measured: Fact) -> None:
        words = {"gpus": GPT["t"], "strategy": "ddp", "micro_batch": GPT["b"], "seq_len": GPT["s"]}
        terms = memory(
            f"1x{GPT['h']}x{GPT['a']}", attention="eager", settings={"activations": "korthikanti"}, **words,
            **LAYOUTS[name],
        ).gpu.terms  # fmt: skip
        kept = sum(t.bytes for t in terms if t.name in {"activations", "activation_checkpoints"})
        assert kept == pytest.approx(eval(measured["bytes_per_layer"], {}, GPT), rel=1e-12)

    return held


def korthikanti_run(inputs: Fact, measured: Fact, directory: Path) -> None:
    """The runs of table 5: the attention term to the digit, and that they fit."""
    ratio = activations.attention_memory_ratio(
        num_heads=inputs["heads"], seq_len=inputs["seq"], hidden_size=inputs["hidden"]
    )
    assert ratio == pytest.approx(measured["attention_term_5as_over_h"], rel=1e-12)
    job = zerocalc.job(
        gpt(directory, inputs["hidden"], inputs["heads"], inputs["layers"]), gpus=inputs["gpus"], tp=inputs["tp"],
        pp=inputs["pp"], gpu="a100-80gb", framework="megatron", strategy="ddp", precision="fp16",
        micro_batch=inputs["micro_batch"], seq_len=inputs["seq"], checkpointing=inputs["recompute"],
        sequence_parallel=True, grad_accum=inputs["pp"], attention="eager",
    )  # fmt: skip
    assert zerocalc.estimate(job).results[0].fits is measured["fits"]


def head_and_loss(inputs: Fact, measured: Fact) -> None:
    sizes = {"tokens": inputs["tokens"], "hidden_size": inputs["hidden"], "vocab_size": inputs["vocab"]}
    eager = loss.linear_cross_entropy_bytes(**sizes, bytes_per_element=2) / MIB
    assert measured["eager_MiB"] - eager == pytest.approx(WORKSPACE_MIB, abs=0.1)
    chunk = loss.liger_chunk_tokens(**sizes)
    fused = loss.fused_linear_cross_entropy_bytes(**sizes, chunk_tokens=chunk, bytes_per_element=2) / MIB
    assert 0 <= measured["fused_MiB"] - fused <= WORKSPACE_MIB


def loss_alone(inputs: Fact, measured: Fact) -> None:
    """20 bytes per logit, eager: four copies, and the gradient that a benchmark keeps of its input; 4 in place."""
    copies = {"eager": 5, "fused": 1}
    for name, count in copies.items():
        one = loss.logits_bytes(
            tokens=inputs["tokens"], vocab_size=inputs["vocab"], bytes_per_element=4, tensor_parallel=1
        )
        assert measured[f"{name}_MiB"] - count * one / MIB == pytest.approx(0, abs=0.5)


def gated_mlp(inputs: Fact, measured: Fact) -> None:
    sizes = {"tokens": inputs["tokens"], "hidden_size": inputs["hidden"], "ffn_size": inputs["intermediate"]}
    forward = loss.gated_mlp_forward_bytes(**sizes, bytes_per_element=2) / MIB
    backward = loss.gated_mlp_backward_bytes(**sizes, bytes_per_element=2) / MIB
    assert (measured["forward_MiB"] - forward, measured["full_MiB"] - backward) == (16.25, 16.25)


def long_logits(inputs: Fact, measured: Fact) -> None:
    """fp32 logits and their 16-bit copy: what stands at the end of forward beside log-softmax."""
    copy = loss.logits_bytes(
        tokens=inputs["tokens"], vocab_size=inputs["vocab"], bytes_per_element=4, tensor_parallel=1
    )
    assert round(copy / GIB, decimals(measured["fp32_GiB"])) == measured["fp32_GiB"]
    job = zerocalc.job(
        "llama-3-8b", gpus=1, micro_batch=1, seq_len=inputs["tokens"], settings={"loss": "naive"}
    )
    (result,) = zerocalc.estimate(job).results
    assert result.memory is not None
    logits = next(term for term in result.memory.gpu.terms if term.name == "logits")
    widths = [
        part["inputs"]["bytes_per_element"]
        for part in logits.inputs["parts"]
        if part["name"] in {"logits", "logits in fp32"}
    ]
    assert sum(widths) == measured["bytes_per_element"]


def hidden_copies(inputs: Fact, measured: Fact) -> None:
    """Hidden-sized copies a Llama 3.1 8B layer keeps: the source counts 28, and 24 to 48 for other models."""
    one = inputs["tokens"] * inputs["hidden"] * 2
    assert measured["copies_per_layer"] * one == measured["GiB_per_layer"] * GIB
    terms = memory("llama-3.1-8b", gpus=1, strategy="ddp", micro_batch=1, seq_len=inputs["tokens"]).gpu.terms
    kept = sum(term.bytes for term in terms if term.name == "activations") / 32 / one
    assert 24 <= kept <= measured["copies_per_layer"]


# Estimators, precisions, factors, counts

T5_3B = {
    "model_type": "t5", "d_model": 1024, "d_kv": 128, "d_ff": 16384, "num_heads": 32, "num_layers": 24,
    "vocab_size": 32128,
}  # fmt: skip


def estimator(strategy: str, model: Any, **words: Any) -> tuple[float, float]:
    """GiB that DeepSpeed's function prints, for a GPU and for the host."""
    held = memory(
        model, strategy=strategy, framework="deepspeed-estimator", gpus_per_node=words["gpus"], **words
    )
    return held.gpu.peak_bytes / GIB, held.cpu.bytes_per_node / GIB


def t5_3b(directory: Path) -> str:
    path = directory / "t5-3b.json"
    path.write_text(json.dumps(T5_3B))
    return str(path)


def estimator_of_t5_stage_2(_: Fact, measured: Fact, directory: Path) -> None:
    words = {"gpus": 8, "settings": {"version": "before-2024-06"}}
    gpu, cpu = estimator("zero2", t5_3b(directory), **words)
    offloaded, host = estimator("zero2", t5_3b(directory), offload_optimizer="cpu", **words)
    assert (round(gpu, 2), round(cpu, 2)) == (measured["gpu_no_offload_GiB"], measured["cpu_no_offload_GiB"])
    assert (round(offloaded, 2), round(host, 2)) == (
        measured["gpu_offload_GiB"],
        measured["cpu_offload_GiB_cpu"],
    )


def estimator_of_t5_stage_3(inputs: Fact, measured: Fact, directory: Path) -> None:
    places = {"p+o cpu": ("cpu", "cpu"), "o cpu": ("cpu", "none"), "none": ("none", "none")}
    place, _, init = inputs["options"].partition(", zero_init=")
    optimizer, params = places[place]
    gpu, cpu = estimator(
        "zero3", t5_3b(directory), gpus=8, offload_optimizer=optimizer, offload_params=params,
        settings={"zero_init": init == "1"},
    )  # fmt: skip
    assert (round(gpu, 2), round(cpu, 2)) == (measured["gpu_GiB"], measured["cpu_GiB"])


def estimator_of_an_issue(inputs: Fact, measured: Fact) -> None:
    """The issue prints parameters in whole millions, so its figures are met to a digit of the second decimal."""
    words = {"gpus": inputs["gpus"], "settings": {"largest_layer_params": 32000 * 4096}}
    everything = estimator("zero3", "llama-2-7b", offload_optimizer="cpu", offload_params="cpu", **words)
    optimizer = estimator("zero3", "llama-2-7b", offload_optimizer="cpu", **words)
    assert everything[::-1] == pytest.approx(tuple(measured["all_offload_cpu_gpu_GiB"]), abs=0.01)
    assert optimizer[::-1] == pytest.approx(tuple(measured["opt_offload_cpu_gpu_GiB"]), abs=0.01)


def gradient_conventions(_: Fact, measured: Fact) -> None:
    assert states("1b", dp=1, strategy="ddp") == measured["bytes_per_param_fp16grad"] * GB
    assert (
        states("1b", dp=1, strategy="ddp", precision="zero-infinity")
        == measured["bytes_per_param_fp32grad"] * GB
    )


OPERATIONS = {"alltoall": "all_to_all", "sendrecv": "send_recv"}


def bus_factor(name: str) -> Callable[[Fact, Fact], None]:
    def held(_: Fact, measured: Fact) -> None:
        operation = OPERATIONS.get(name, name)
        for ranks in (2, 8, 64):
            expected = eval(measured["busbw_factor"], {}, {"n": ranks})
            assert timing.BUS_FACTORS[operation](ranks=ranks) == pytest.approx(expected, rel=1e-12)

    return held


def parameters_of_gpt(inputs: Fact, measured: Fact, directory: Path) -> None:
    """MosaicML's and llm.c's tables are of GPT-2's architecture."""
    path = directory / f"params-{measured['params']}.json"
    positions = inputs.get("learned_positions", inputs.get("positions"))
    keys = {"n_embd": inputs["hidden"], "n_layer": inputs["layers"], "vocab_size": inputs["vocab"]}
    path.write_text(
        json.dumps({"model_type": "gpt2", "n_head": inputs.get("heads", 12), "n_positions": positions} | keys)
    )
    assert zerocalc.job(str(path), gpus=1).model.num_params == measured["params"]


def parameters_of_a_llama_layer(_: Fact, measured: Fact) -> None:
    layout = zerocalc.job("llama-2-7b", gpus=1).model.layout
    assert next(unit.numel for unit in layout.units if unit.is_layer) == measured["params"]


CASES: dict[str, Callable[..., None]] = {
    r"zero-t1-.*": table_1,
    "zero-fig1": figure_1,
    r"zero-t2-.*": table_2,
    "zero-comm-volumes": volumes,
    "zero-buffer-1.5b": fused_buffer,
    "zero-min-1.5b": states_and_weights,
    "zero-pa-comm": partitioned_checkpoints,
    "zero-ddp-1.4b-oom": largest_without_sharding,
    r"zoff-partition-.*": placement,
    "zoff-13b-v100": one_gpu_offload,
    r"zinf-fig2-.*": infinity_table,
    "zinf-ait": intensities,
    "zinf-bw-act": checkpoint_bandwidth,
    **{name: korthikanti(name) for name in LAYOUTS},
    r"kor-cfg-.*": korthikanti_run,
    "fp8lm-16-20": gradient_conventions,
    r"liger-flce-.*": head_and_loss,
    r"liger-ce-.*": loss_alone,
    r"liger-geglu-.*": gated_mlp,
    "iss-stas-logits": long_logits,
    "iss-stas-hidden": hidden_copies,
    "ds-est-t5-3b-z2": estimator_of_t5_stage_2,
    r"ds-est-t5-3b-z3-\d": estimator_of_t5_stage_3,
    "ds-est-axolotl-1129": estimator_of_an_issue,
    **{
        f"nccl-factor-{name}": bus_factor(name)
        for name in ("all_reduce", "reduce_scatter", "alltoall", "broadcast", "reduce", "sendrecv")
    },
    r"params-(mpt-.*|gpt2)": parameters_of_gpt,
    "params-llama2-7b-layer": parameters_of_a_llama_layer,
}
"""How each fact is held, by a pattern of its id."""
ON_DISK = {korthikanti_run, estimator_of_t5_stage_2, estimator_of_t5_stage_3, parameters_of_gpt}
"""Those that write a config.json first."""


@pytest.mark.parametrize("name", [name for name in FACTS if name not in UNASSERTED])
def test_published_fact(name: str, tmp_path: Path) -> None:
    (held,) = [held for pattern, held in CASES.items() if re.fullmatch(pattern, name)]
    where = (tmp_path,) if held in ON_DISK else ()
    held(FACTS[name]["inputs"], FACTS[name]["measured"], *where)


def test_every_way_is_of_use() -> None:
    assert set(FACTS) >= set(UNASSERTED)
    for pattern in CASES:
        assert any(re.fullmatch(pattern, name) for name in FACTS), pattern
