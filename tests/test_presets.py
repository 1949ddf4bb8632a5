"""Presets against the facts they were made from, their names, a user's own files, and what may be wrong in them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import tomllib
from collections import Counter
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerocalc import presets
from zerocalc.errors import FileError, SpecError, UnknownNameError, ZerocalcError
from zerocalc.presets import store
from zerocalc.presets.rows import Figure

FACTS = Path(__file__).parent / "data" / "hardware"
LOADERS = {
    "models": presets.load_model,
    "gpus": presets.load_gpu,
    "nodes": presets.load_node,
    "optimizers": presets.load_optimizer,
    "precisions": presets.load_precision,
}
GPU_KEYS = {
    "mem_bw": "memory_bandwidth",
    "scaleup_per_dir": "scaleup_per_direction",
    "p2p_per_dir": "p2p_per_direction",
    "host_link_per_dir": "host_link_per_direction",
    "pcie_gen": "pcie_generation",
    "pcie_per_dir": "pcie_per_direction",
}
NODE_KEYS = {
    "gpu": "gpu_as_printed",
    "host_ram": "host_memory",
    "local_nvme_total": "nvme",
    "local_nvme_layout": "nvme_layout",
    "net_total": "network",
    "net_layout": "network_layout",
    "intra_link_per_dir": "intra_link_per_direction",
}
UNITS = {
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "B": 1,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "GB per GPU": 10**9,
}
RATES = {"TFLOP/s": 10**12, "GB/s": 10**9, "TB/s": 10**12, "Gb/s": Fraction(10**9, 8)}


def facts(name):
    return json.loads((FACTS / f"{name}.json").read_text())


def printed(value):
    if isinstance(value, tuple):
        return [printed(each) for each in value]
    return float(value) if isinstance(value, Decimal) else value


def rows(kind):
    return presets.list_presets(kind)


# ---------------------------------------------------------------- facts


def test_every_gpu_is_there_and_nothing_else():
    assert sorted(presets.preset_ids("gpus")) == sorted(facts("gpus"))


@pytest.mark.parametrize(("gpu_id", "fact"), facts("gpus").items())
def test_gpu_figures_are_the_published_ones(gpu_id, fact):
    gpu = presets.load_gpu(gpu_id)
    assert (gpu.vendor, gpu.name) == (fact.pop("vendor"), fact.pop("name"))
    assert len(gpu.alternatives) == fact.pop("num_alternatives")
    found = {
        key: [printed(f.value), f.unit, f.confidence] for key, f in gpu.figures.items() if key != "usual_gap"
    }
    assert found == {GPU_KEYS.get(key, key): value for key, value in fact.items()}
    for key, (value, unit, _) in fact.items():
        scale = {**UNITS, **RATES}.get(unit, 1)
        assert gpu.figures[GPU_KEYS.get(key, key)].exact == Fraction(str(value)) * scale


@pytest.mark.parametrize(("gpu_id", "fact"), facts("gpus").items())
def test_gpu_capacity_is_what_the_framework_sees(gpu_id, fact):
    gpu = presets.load_gpu(gpu_id)
    overheads = facts("overheads")
    if "torch_total" in fact:
        assert gpu.capacity_bytes == fact["torch_total"][0] * 2**20
        assert "PyTorch's own total" in gpu.capacity_origin
    elif "smi_total" in fact:
        gap = gpu.figures["usual_gap"]
        assert gpu.capacity_bytes == (fact["smi_total"][0] - gap.value) * 2**20
        if "gap-" in gap.source:
            row = overheads[gap.source.split()[1]]
            assert [gap.value, gap.unit] == row[:2]
            assert gap.confidence == row[2] or gap.confidence == "low"
    else:
        value, unit, _ = fact["marketed_memory"]
        assert gpu.capacity_bytes == value * (2**30 if gpu_id == "v100-pcie-16" else UNITS[unit])
        assert "as sold" in gpu.capacity_origin


@pytest.mark.parametrize(("gpu_id", "fact"), facts("gpus").items())
def test_half_precision_is_bf16_else_fp16(gpu_id, fact):
    gpu = presets.load_gpu(gpu_id)
    half = "bf16" if "bf16_dense" in fact else "fp16" if "fp16_dense" in fact else None
    assert gpu.half_dtype == half
    assert gpu.half_flops_per_s == (half and Fraction(str(fact[f"{half}_dense"][0])) * 10**12)


def test_every_node_is_there_and_names_a_gpu():
    assert sorted(presets.preset_ids("nodes")) == sorted(facts("nodes"))
    gpu_ids = presets.preset_ids("gpus")
    assert all(presets.load_node(node).gpu in gpu_ids for node in presets.preset_ids("nodes"))


SHARED_RATES = ("host_link", "nvme_read", "nvme_write")
"""Figures of nodes that stand among the links' facts, or in a paper."""


@pytest.mark.parametrize(("node_id", "fact"), facts("nodes").items())
def test_node_figures_are_the_published_ones(node_id, fact):
    node = presets.load_node(node_id)
    assert node.name == fact.pop("name")
    assert len(node.alternatives) == fact.pop("num_alternatives")
    found = {
        key: [printed(f.value), f.unit, f.confidence]
        for key, f in node.figures.items()
        if key not in SHARED_RATES
    }
    assert found == {NODE_KEYS.get(key, key): value for key, value in fact.items()}
    assert node.gpus_per_node == fact["gpus_per_node"][0]
    for key, got in (("host_ram", node.host_memory_bytes), ("local_nvme_total", node.nvme_bytes)):
        expected = Fraction(str(fact[key][0])) * UNITS[fact[key][1]] if key in fact else None
        assert got == expected
    for key, got in (
        ("net_total", node.network_bytes_per_s),
        ("intra_link_per_dir", node.intra_link_bytes_per_s),
    ):
        assert got == (Fraction(str(fact[key][0])) * RATES[fact[key][1]] if key in fact else None)


def test_node_gpu_agrees_with_the_printed_part():
    for node_id in presets.preset_ids("nodes"):
        node = presets.load_node(node_id)
        words = node.figures["gpu_as_printed"].text.lower().replace("-", " ").replace("sxm3", "sxm2").split()
        gpu = presets.load_gpu(node.gpu)
        sizes = [word.removesuffix("gb") for word in words if word.removesuffix("gb").isdigit()]
        assert words[0] in node.gpu or words[1] in node.gpu
        assert not sizes or node.gpu.endswith(tuple(sizes)) or sizes == ["270"] or sizes[0] in gpu.name


@pytest.mark.parametrize(("model_id", "fact"), facts("models").items())
def test_models_are_the_published_configs(model_id, fact):
    hf_id, total, digest = fact
    model = presets.load_model(model_id)
    assert model.num_params == total
    assert hashlib.sha256(json.dumps(model.config, sort_keys=True).encode()).hexdigest() == digest
    assert model.hf_id == (None if " " in hf_id else hf_id)
    assert presets.load_model(hf_id).id == model_id if model.hf_id else True


def test_every_model_is_there():
    assert sorted(presets.preset_ids("models")) == sorted(facts("models"))
    configs = {path.stem for path in (store.SHIPPED / "models").glob("*.json")}
    assert configs == set(facts("models"))


def test_every_link_is_the_measured_one():
    links = {link.id: link for link in presets.load_links()}
    for link_id, (value, unit, confidence, peak, params, params_per_s, efficiency) in facts("links").items():
        link = links[link_id]
        figure = link.figure
        assert [printed(figure.value), figure.unit, figure.confidence] == [value, unit, confidence]
        assert link.num_params == params
        assert link.params_per_s == params_per_s
        if unit in RATES and not isinstance(value, list):
            assert link.bytes_per_s == Fraction(str(value)) * RATES[unit] or unit == "TFLOP/s"
        if peak is not None and link.bytes_per_s:
            assert link.peak_bytes_per_s == Fraction(str(peak)) * RATES[unit]
            assert efficiency is None or link.bytes_per_s / link.peak_bytes_per_s == pytest.approx(
                efficiency, abs=1e-3
            )
    gpu_ids, node_ids = presets.preset_ids("gpus"), presets.preset_ids("nodes")
    assert all(link.gpu is None or link.gpu in gpu_ids for link in links.values())
    assert all(link.node is None or link.node in node_ids for link in links.values())


def test_every_overhead_is_the_measured_one():
    for overhead_id, (value, unit, confidence, kind) in facts("overheads").items():
        overhead = presets.load_overhead(overhead_id)
        figure = overhead.figure
        assert [printed(figure.value), figure.unit, figure.confidence, overhead.kind] == [
            value,
            unit,
            confidence,
            kind,
        ]


def test_cpu_adam_of_zero_offload_table_4():
    rates = {link.id: link.params_per_s for link in presets.load_links("cpu adam")}
    seconds = {"1b": 0.22, "2b": 0.51, "4b": 1.03, "8b": 2.41, "10b": 2.57}
    for size, value in seconds.items():
        assert rates[f"cpuadam-offload-{size}"] == pytest.approx(int(size[:-1]) * 1e9 / value, rel=1e-12)
    assert all(3.3e9 < rates[f"cpuadam-offload-{size}"] < 4.6e9 for size in seconds)


def test_chosen_rates_come_from_the_rows_they_name():
    measured = {link.id: link for link in presets.load_links()}
    for gpu_id in presets.preset_ids("gpus"):
        rates = presets.load_link_rates(gpu_id)
        assert rates.latency_s == pytest.approx(5e-6)
        assert rates.figures["latency"].confidence == "assumed"
        for key in ("ring", "reduce_scatter", "host_to_device", "matmul"):
            figure = rates.figures.get(key)
            if figure and figure.source.startswith("links.toml"):
                row = measured[figure.source.split()[1]].figure
                assert (figure.value, figure.unit) == (row.value, row.unit)


def test_preferred_rings_of_the_survey():
    ring = {gpu: presets.load_link_rates(gpu).ring_bytes_per_s for gpu in presets.preset_ids("gpus")}
    assert ring["h200-sxm-141"] == 361.4e9
    assert 230e9 <= ring["a100-sxm-80"] <= 235e9
    assert 675e9 <= ring["b200-sxm-180"] <= 685e9
    assert ring["mi325x"] == 312.912e9


@pytest.mark.parametrize("gpu_id", sorted({row.table["reserve"] for row in rows("gpus")}))
def test_reserves_add_their_rows(gpu_id):
    reserve = presets.load_reserve(gpu_id)
    overheads = facts("overheads")
    for figure in reserve.parts.values():
        value, unit, *_ = overheads[figure.source.split()[1]]
        assert (printed(figure.value), figure.unit) == (pytest.approx(value), unit)
    assert float(reserve.fragmentation.exact) == 1.0515
    capacity = 80 * 10**9
    rest = capacity - reserve.fixed_bytes
    assert reserve.bytes_of(capacity) == reserve.fixed_bytes - int(
        -(rest * (1 - 1 / Fraction("1.0515"))) // 1
    )
    assert reserve.bytes_of(0) == reserve.fixed_bytes


def test_default_reserve_is_within_what_was_seen():
    assert presets.load_reserve().id == "nvidia"
    assert 1 * 2**30 <= presets.load_reserve().fixed_bytes <= 2 * 2**30


# ---------------------------------------------------------------- sources


def figures_of(value):
    if isinstance(value, dict):
        if "value" in value:
            yield value
        for each in value.values():
            yield from figures_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from figures_of(each)


@pytest.mark.parametrize("kind", presets.KINDS)
def test_every_figure_has_a_source_and_a_confidence(kind):
    for preset in rows(kind):
        for figure in figures_of(preset.table):
            assert figure["source"].strip(), preset.id
            assert figure["confidence"] in {"high", "medium", "low", "assumed"}, preset.id
        if kind in {"optimizers", "precisions"}:
            assert preset.table["source"].strip()
            assert preset.table["confidence"] in {"high", "medium", "low"}


def test_units_convert_exactly():
    def figure(value, unit):
        return Figure(value, unit, "test", "high")

    assert figure(80, "GB").exact == 80 * 10**9
    assert figure(80, "GiB").exact == 85_899_345_920
    assert figure(81090, "MiB").exact == 85_029_027_840
    assert figure(Decimal("7.68"), "TB").exact == 7_680_000_000_000
    assert figure(Decimal("989.4"), "TFLOP/s").exact == 989_400_000_000_000
    assert figure(400, "Gb/s").exact == 50 * 10**9
    assert figure((35, 45), "GB/s").exact == 35 * 10**9
    assert figure(Decimal("0.47"), "GiB").whole == 504_658_657


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("kind", presets.KINDS)
def test_no_name_collides_silently(kind):
    owners = Counter()
    ambiguous = Counter()
    for preset in rows(kind):
        assert preset.id == presets.normal(preset.id) or kind == "links"
        listed = [name for key in ("aliases", "default_for", "hf_id") for name in preset.listed(key)]
        owners.update({presets.normal(preset.id), *listed})
        ambiguous.update(set(preset.listed("ambiguous")))
        assert len(listed) == len(set(listed)), preset.id
    assert [name for name, count in owners.items() if count > 1] == []
    assert [name for name, count in ambiguous.items() if count < 2] == []
    assert not set(owners) & set(ambiguous)


@pytest.mark.parametrize("kind", presets.KINDS)
def test_every_name_finds_its_row(kind):
    for preset in rows(kind):
        for name in preset.names:
            if name in preset.listed("ambiguous"):
                with pytest.raises(UnknownNameError, match="could be") as caught:
                    presets.find(kind, name)
                assert repr(preset.id) in caught.value.message
            else:
                found = presets.find(kind, name)
                assert (found.id, found.table) == (preset.id, preset.table)
                assert (found.assumption is None) == (name not in preset.listed("default_for"))


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "h100": "h100-sxm-80", "H100": "h100-sxm-80", "h100-sxm5-80": "h100-sxm-80", "NVIDIA H100 80GB HBM3": "h100-sxm-80",
        "a100-80gb": "a100-sxm-80", "A100_80GB": "a100-sxm-80", "NVIDIA A100-SXM4-80GB": "a100-sxm-80",
        "a100-40gb": "a100-sxm-40", "4090": "rtx-4090", "rtx4090": "rtx-4090", "RTX 4090": "rtx-4090",
        "NVIDIA GeForce RTX 4090": "rtx-4090", "v100-32gb": "v100-sxm2-32", "mi300x": "mi300x", "h200": "h200-sxm-141",
        "b200": "b200-sxm-180", "tesla t4": "t4",
    }.items(),
)  # fmt: skip
def test_gpu_names_people_type(name, expected):
    assert presets.load_gpu(name).id == expected


def test_shared_names_say_what_they_stand_for():
    assert presets.load_gpu("h100").assumption == "h100 read as h100-sxm-80 (H100 SXM5 80GB)"
    assert presets.load_gpu("h100-sxm-80").assumption is None
    assert presets.load_model("llama-3.1-8b").assumption == "llama-3.1-8b read as llama-3-8b"
    assert presets.load_gpu("h100").origin == "preset:h100-sxm-80"


def test_ambiguous_names_ask():
    with pytest.raises(
        UnknownNameError, match=r"'a100-sxm-40' \(A100 SXM 40GB\) or 'a100-sxm-80' \(A100 SXM 80GB\)"
    ):
        presets.load_gpu("a100")


def test_misspelt_names_suggest_near_ones():
    with pytest.raises(UnknownNameError, match="did you mean 'h100'") as caught:
        presets.load_gpu("h10")
    assert caught.value.hint == "zerocalc presets list gpus"
    with pytest.raises(UnknownNameError, match="llama-2-70b"):
        presets.load_model("lama-2-70b")
    with pytest.raises(UnknownNameError, match="kind of preset"):
        presets.find("gpu", "h100")


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=30)
    | st.sampled_from(["", " ", '"', "[", "]", "a100", "\x00", "h" * 5000, "../x", "GB", "high"])
)
def test_any_name_is_found_or_unknown(name):
    for kind in ("gpus", "precisions"):
        with suppress(UnknownNameError):
            assert presets.normal(name) in presets.find(kind, name).names


# ---------------------------------------------------------------- optimizers and precisions

K_ADAM = {
    "mixed-bf16": 12, "mixed-fp16": 12, "bf16-fp32-grads": 12, "fp32": 8, "bf16-pure": 4, "bf16-kahan": 6,
    "bf16-master": 10, "bf16-master-states": 6, "deepseek-v3": 8, "zero-infinity": 16, "fp8-te": 12,
}  # fmt: skip
PARAM_AND_GRAD = {
    "mixed-bf16": "22", "mixed-fp16": "22", "bf16-fp32-grads": "24", "fp32": "44", "bf16-pure": "22", "bf16-kahan": "22",
    "bf16-master": "22", "bf16-master-states": "22", "deepseek-v3": "24", "zero-infinity": "22", "fp8-te": "22",
}  # fmt: skip
K_MIXED_PURE_FP32 = {
    "adamw": ("12", "4", "8"), "adam": ("12", "4", "8"), "sgd": ("4", "0", "0"), "sgd-momentum": ("8", "2", "4"),
    "lion": ("8", "2", "4"), "muon": ("8", "2", "4"), "adafactor": ("4", "0", "0"), "adafactor-hf": ("4", "0", "0"),
    "adafactor-hf-beta1": ("8", "4", "4"), "adam8bit": ("6.03125", "2.03125", "2.03125"),
    "adam8bit-block2048": ("6.00390625", "2.00390625", "2.00390625"),
    "adam8bit-torchao": ("6.03125", "2.03125", "2.03125"), "adam4bit": ("5.0625", "1.0625", "1.0625"),
    "adamw-bf16-moments": ("8", "4", "4"),
}  # fmt: skip


def test_adam_under_every_precision():
    assert list(K_ADAM) == presets.preset_ids("precisions")
    adam = presets.load_optimizer("adamw")
    for name, k in K_ADAM.items():
        precision = presets.load_precision(name)
        assert presets.optimizer_bytes_per_param(adam, precision) == k
        width = {"bf16": "2", "fp16": "2", "fp32": "4"}
        assert width[precision.param_dtype] + width[precision.grad_dtype] == PARAM_AND_GRAD[name]


def test_every_optimizer_under_three_precisions():
    assert list(K_MIXED_PURE_FP32) == presets.preset_ids("optimizers")
    for name, expected in K_MIXED_PURE_FP32.items():
        optimizer = presets.load_optimizer(name)
        for precision, k in zip(("mixed-bf16", "bf16-pure", "fp32"), expected, strict=True):
            assert presets.optimizer_bytes_per_param(
                optimizer, presets.load_precision(precision)
            ) == Fraction(k)


def test_which_optimizers_need_shapes():
    flat = {"adamw", "adam", "sgd", "sgd-momentum", "lion", "adamw-bf16-moments"}
    assert {name for name in K_MIXED_PURE_FP32 if not presets.load_optimizer(name).needs_shapes} == flat


def test_small_tensors_fall_back_as_their_library_does():
    bitsandbytes, torchao = (
        presets.load_optimizer("adam8bit").states[0],
        presets.load_optimizer("adam8bit-torchao").states[0],
    )
    assert (bitsandbytes.fallback, bitsandbytes.judged_on, bitsandbytes.whole_blocks) == (
        "fp32",
        "tensor",
        False,
    )
    assert (torchao.fallback, torchao.judged_on, torchao.whole_blocks) == ("param", "shard", True)
    assert {state.min_elements for state in (bitsandbytes, torchao)} == {4096}


def test_recalled_weight_copies_are_marked():
    copies = presets.load_precision("fp8").weight_copies
    assert [copy.confidence for copy in copies] == ["low", "low"]


# ---------------------------------------------------------------- files


def test_shipped_files_split_as_they_parse():
    for path in store.SHIPPED.rglob("*.toml"):
        text = path.read_text(encoding="utf-8")
        whole = tomllib.loads(text)
        parts = [tomllib.loads(row) for _, row in store._split(text)]
        assert [next(iter(part.items())) for part in parts] == list(whole.items()), path


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_a_users_gpu_is_found_first(tmp_path):
    write(tmp_path, "gpus/mine.toml", '[h100]\ntorch_total = { value = 79.5, unit = "GiB" }\n')
    gpu = presets.load_gpu("h100", directory=tmp_path)
    assert gpu.capacity_bytes == int(79.5 * 2**30)
    assert gpu.figures["torch_total"].source == "the user's preset file mine.toml"
    assert (gpu.id, gpu.reserve, gpu.half_dtype) == ("h100", "default", None)
    assert presets.load_gpu("a100-80gb", directory=tmp_path).id == "a100-sxm-80"
    assert presets.preset_ids("gpus", directory=tmp_path)[0] == "h100"
    assert presets.list_presets("gpus", directory=str(tmp_path))[0].id == "h100"


def test_a_user_may_use_single_files_and_own_kinds(tmp_path):
    write(
        tmp_path,
        "nodes.toml",
        '[box]\ngpu = "4090"\ngpus_per_node = { value = 2 }\nhost_memory = { value = 64, unit = "GB" }\n',
    )
    write(tmp_path, "precisions.toml", '[int8-adam]\nparam = "bf16"\ngrad = "bf16"\nmoment = "int8"\n')
    write(
        tmp_path,
        "optimizers.toml",
        '[two]\nstates = [{ name = "a", dtype = "fp32" }, { name = "b", dtype = "param" }]\n',
    )
    write(
        tmp_path,
        "links.toml",
        '[rates-mine]\nkind = "rates"\ngpus = ["rtx-4090"]\nring = { value = 5, unit = "GB/s" }\n',
    )
    node = presets.load_node("box", directory=tmp_path)
    assert (node.gpus_per_node, node.host_memory_bytes, node.nvme_bytes) == (2, 64 * 10**9, None)
    precision = presets.load_precision("int8-adam", directory=tmp_path)
    assert (precision.master_dtype, precision.reduce_dtype) == (None, "bf16")
    optimizer = presets.load_optimizer("two", directory=tmp_path)
    assert presets.optimizer_bytes_per_param(optimizer, precision) == 6
    assert presets.load_link_rates("rtx-4090", directory=tmp_path).ring_bytes_per_s == 5e9
    assert len(presets.load_links(directory=tmp_path)) == len(presets.load_links())


def test_a_users_models_are_rows_counts_or_bare_configs(tmp_path):
    write(tmp_path, "models/mine.toml", "[counted]\nnum_params = { value = 1_000 }\n[both]\n")
    write(tmp_path, "models/both.json", '{"model_type": "llama", "x": null}')
    write(tmp_path, "models/Bare_One.json", '{"model_type": "gpt2"}')
    assert presets.load_model("counted", directory=tmp_path).num_params == 1000
    assert presets.load_model("both", directory=tmp_path).config == {"model_type": "llama", "x": None}
    assert presets.load_model("bare-one", directory=tmp_path).config == {"model_type": "gpt2"}
    assert presets.show("models", "both", directory=tmp_path)["config"]["x"] is None


def test_show_is_plain_data():
    for kind in presets.KINDS:
        name = presets.preset_ids(kind)[0]
        shown = presets.show(kind, name)
        assert json.loads(json.dumps(shown, allow_nan=False)) == shown
        assert shown["id"] == name
    assert presets.show("gpus", "h100")["bf16_dense"]["value"] == 989.4


GOOD = 'torch_total = { value = 80, unit = "GiB" }\n'
BAD_GPUS = {
    "[x": "not valid TOML",
    "x = 1": "x: must be a table",
    "[x]": "one of torch_total",
    "[x]\n" + GOOD + "torch_totl = 1": "torch_totl: is not a known key",
    "[x]\ntorch_total = 80": "torch_total: must be a figure",
    '[x]\ntorch_total = { value = "80", unit = "GiB" }': "torch_total value: must be a number",
    '[x]\ntorch_total = { value = 80, unit = "GG" }': "torch_total unit: must be one of",
    "[x]\ntorch_total = { value = 80 }": "torch_total unit: must be one of",
    '[x]\ntorch_total = { value = 0, unit = "GiB" }': "no memory size",
    '[x]\ntorch_total = { value = -1, unit = "GiB" }': "between 0 and",
    '[x]\ntorch_total = { value = nan, unit = "GiB" }': "between 0 and",
    '[x]\ntorch_total = { value = inf, unit = "GiB" }': "between 0 and",
    '[x]\ntorch_total = { value = 1e999999, unit = "GiB" }': "between 0 and",
    '[x]\ntorch_total = { value = 1e-999999999, unit = "GiB" }': "between 0 and",
    '[x]\ntorch_total = { value = true, unit = "GiB" }': "must be a number",
    '[x]\ntorch_total = { value = [], unit = "GiB" }': "value: is missing",
    '[x]\ntorch_total = { value = [1, "a"], unit = "GiB" }': "must be a number",
    '[x]\ntorch_total = { value = 1979-05-27, unit = "GiB" }': "must be a number",
    '[x]\ntorch_total = { value = 80, unit = "GiB", confidence = "sure" }': "confidence: must be one of",
    '[x]\ntorch_total = { value = 80, unit = "GiB", src = "x" }': "src: is not a known key",
    '[x]\ntorch_total = { value = 9000000000000000000, unit = "TiB" }': "torch_total",
    "[x]\naliases = 5\n" + GOOD: "aliases: must be a list of strings",
    "[x]\naliases = [5]\n" + GOOD: "aliases: must be a list of strings",
    "[x]\ndefault_for = 5\n" + GOOD: "default_for: must be a list of strings",
    "[x]\nname = 5\n" + GOOD: "name: must be a string",
    "[x]\nalternatives = [1]\n" + GOOD: "alternatives: must be a list of tables",
    "[x]\na = " + "9" * 5000: "not valid TOML",
    "[x]\na = " + "[" * 5000: "not valid TOML",
    b"[x]\nname = '\xff'": "not UTF-8",
    "#" * (2**20 + 1): "too large",
}


@pytest.mark.parametrize(("text", "problem"), BAD_GPUS.items(), ids=range(len(BAD_GPUS)))
def test_a_users_mistake_is_one_clear_error(tmp_path, text, problem):
    write(tmp_path, "gpus.toml", text)
    with pytest.raises((FileError, SpecError), match=problem) as caught:
        presets.load_gpu("x", directory=tmp_path)
    assert "gpus.toml" in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 400 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("nodes", "[x]\n", "gpus_per_node: must be at least 1"),
        ("nodes", "[x]\ngpus_per_node = { value = 0 }", "gpus_per_node: must be at least 1"),
        ("nodes", "[x]\ngpus_per_node = { value = 8 }", "gpu: is missing"),
        ("models", "[x]\n", "num_params: is missing"),
        ("optimizers", "[x]\nstates = 5", "states: must be a list of tables"),
        ("optimizers", "[x]\nstates = [{}]", "name: is missing"),
        ("optimizers", '[x]\nstates = [{ name = "a", dtype = "fp33" }]', "dtype: must be one of"),
        (
            "optimizers",
            '[x]\nstates = [{ name = "a", dtype = "int8", rule = "blocks" }]',
            "block: is required",
        ),
        (
            "optimizers",
            '[x]\nstates = [{ name = "a", dtype = "int8", block = -1 }]',
            "block: must be between",
        ),
        (
            "optimizers",
            '[x]\nstates = [{ name = "a", dtype = "int8", whole_blocks = 1 }]',
            "whole_blocks: must be true",
        ),
        ("precisions", '[x]\nparam = "bf16"\ngrad = "bf16"', "moment: is missing"),
        ("precisions", '[x]\nparam = "moment"\ngrad = "bf16"\nmoment = "bf16"', "param: must be one of"),
    ],
)
def test_mistakes_in_other_kinds(tmp_path, kind, text, problem):
    write(tmp_path, f"{kind}.toml", text)
    with pytest.raises(SpecError, match=problem) as caught:
        LOADERS[kind]("x", directory=tmp_path)
    assert f"{kind}.toml: [x]" in caught.value.message


def test_mistakes_in_links_and_reserves(tmp_path):
    write(tmp_path, "links.toml", '[x]\nkind = "nvme"\n')
    write(tmp_path, "overheads.toml", '[x]\nkind = "reserve"\n[y]\nkind = "nccl"\n')
    for call, problem in (
        (lambda: presets.load_link("x", directory=tmp_path), "figure: is missing"),
        (lambda: presets.load_reserve("x", directory=tmp_path), "fragmentation: must be a ratio"),
        (lambda: presets.load_reserve("y", directory=tmp_path), "is not 'reserve'"),
        (lambda: presets.load_overhead("y", directory=tmp_path), "figure: is missing"),
    ):
        with pytest.raises(SpecError, match=problem):
            call()


def test_directories_that_are_none(tmp_path):
    file = tmp_path / "file"
    file.touch()
    for directory, problem in (
        (file, "is a file"),
        (tmp_path / "none", "does not exist"),
        ("x" * 5000, "cannot be read"),
    ):
        with pytest.raises(FileError, match=problem):
            presets.load_gpu("h100", directory=directory)
    write(tmp_path, "gpus", "")
    with pytest.raises(FileError, match="is a file, not a directory"):
        presets.load_gpu("h100", directory=tmp_path)
    (tmp_path / "nodes" / "x.toml").mkdir(parents=True)
    with pytest.raises(FileError, match="cannot be read"):
        presets.load_node("dgx-2", directory=tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000, '{"a": ' + "9" * 5000 + "}"])
def test_configs_that_are_none(tmp_path, text):
    write(tmp_path, "models/x.json", text)
    with pytest.raises(FileError, match=r"x\.json"):
        presets.load_model("x", directory=tmp_path)


tables = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["value", "unit", "source", "states", "name", "dtype", "block", "parts", "torch_total", "param", "aliases", "figure", "kind"]
    ), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float):
        return str(value)
    return '""' if value is None else json.dumps(value)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "torch_total",
                "params",
                "params_per_s",
                "nic_total",
                "peak_per_direction",
                "states",
                "param",
                "grad",
                "moment",
                "figure",
                "parts",
                "kind",
                "aliases",
                "default_for",
                "num_params",
                "name",
            ]
        ),
        tables,
    )
)
def test_any_table_is_read_or_refused(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("user")
    text = "[x]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in table.items())
    for kind in presets.KINDS:
        write(folder, f"{kind}.toml", text)
    for load in (*LOADERS.values(), presets.load_link, presets.load_overhead, presets.load_reserve):
        with suppress(ZerocalcError):
            load("x", directory=folder)


# ---------------------------------------------------------------- speed


def test_importing_and_loading_brings_no_heavy_module():
    code = (
        "import sys; from zerocalc import presets; presets.load_gpu('h100'); presets.load_model('gpt2');"
        "print([m for m in ('pydantic', 'click', 'rich', 'numpy') if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=FACTS.parents[2]
    )
    assert run.stdout == "[]\n"


def test_importing_reads_no_preset():
    code = (
        "import sys; opened = []; sys.addaudithook(lambda event, args: event == 'open' and opened.append(str(args[0])));"
        "from zerocalc import presets; print([path for path in opened if path.endswith(('.toml', '.json'))])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=FACTS.parents[2]
    )
    assert run.stdout == "[]\n"


def test_loading_parses_one_row_only(monkeypatch):
    parsed = []
    original = store._parse
    monkeypatch.setattr(store, "_parse", lambda path, text: parsed.append(len(text)) or original(path, text))
    for load, name in (
        (presets.load_gpu, "h100"),
        (presets.load_model, "llama-2-70b"),
        (presets.load_precision, "bf16"),
    ):
        parsed.clear()
        store._shipped.cache_clear()
        presets._load_shipped.cache_clear()
        load(name)
        assert len(parsed) == 1
        assert parsed[0] < 6000
        load(name)
        assert len(parsed) == 1


def test_loading_a_job_is_quick():
    def seconds():
        start = time.perf_counter()
        presets.load_gpu("a100-80gb"), presets.load_model("llama-2-70b")
        presets.load_precision("bf16"), presets.load_optimizer("adamw")
        return time.perf_counter() - start

    assert min(seconds() for _ in range(5)) < 0.008


def test_a_pipe_and_a_link_that_leads_nowhere_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "gpus.toml")
    (tmp_path / "nodes.toml").symlink_to("nodes.toml")
    for kind in ("gpus", "nodes"):
        with pytest.raises(FileError, match=f"{kind}.toml"):
            presets.list_presets(kind, directory=tmp_path)
