"""Names, shapes and order of every parameter against models that transformers 5.24 built."""

import json
from pathlib import Path

import pytest

from zerocalc.architectures import FAMILIES, architecture
from zerocalc.architectures.counts import count_params

DATA = Path(__file__).parents[1] / "data" / "params"
BUILT = json.loads((DATA / "registration.json").read_text())["models"]
MEASURED = json.loads((DATA / "measured_shapes.json").read_text())["models"]


def _named(row):
    return f"{row['config']['model_type']}-{len(row['params'])}"


@pytest.mark.parametrize("row", [*BUILT, *MEASURED], ids=_named)
def test_parameters_in_registration_order(row):
    layout = architecture(row["config"]).layout
    assert [[name, list(tensor.shape)] for name, tensor in layout.named_tensors()] == row["params"]


@pytest.mark.parametrize("row", BUILT, ids=_named)
def test_ties_and_buffers(row):
    layout = architecture(row["config"]).layout
    assert sorted([tie.name, tie.target] for tie in layout.ties) == sorted(row["ties"])
    experts = [i for i, name in enumerate(_layer_names(layout)) if name]
    buffers = [
        [buffer.name.replace("*", str(index)), list(buffer.shape), buffer.persistent]
        for buffer in layout.buffers
        for index in (experts if "*" in buffer.name else [0])
    ]
    assert sorted(buffers) == sorted(row["buffers"])


def _layer_names(layout):
    """For each layer, whether it has experts."""
    return [any(t.kind == "expert" for t in unit.tensors) for _, unit in layout.blocks() if unit.is_layer]


@pytest.mark.parametrize("row", BUILT, ids=_named)
def test_largest_layer(row):
    counts = count_params(architecture(row["config"]))
    assert [counts.largest_layer, counts.largest_layer_params] == row["largest"]


def test_every_family_is_held_against_a_real_model():
    built = {row["config"]["model_type"] for row in BUILT}
    assert set(FAMILIES) - built == {"kimi_k2"}  # the same class as deepseek_v3


LLAMA = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
SPLITS = {
    "model.embed_tokens.weight": 0,
    "model.layers.0.self_attn.q_proj.weight": 0,
    "model.layers.0.self_attn.q_proj.bias": 0,
    "model.layers.0.self_attn.v_proj.weight": 0,
    "model.layers.0.self_attn.o_proj.weight": 1,
    "model.layers.0.self_attn.o_proj.bias": None,
    "model.layers.0.mlp.gate_proj.weight": 0,
    "model.layers.0.mlp.down_proj.weight": 1,
    "model.layers.0.input_layernorm.weight": None,
    "lm_head.weight": 0,
}


def test_tensor_parallel_axes_follow_megatron():
    tensors = dict(architecture({**LLAMA, "attention_bias": True}).layout.named_tensors())
    assert {name: tensors[name].tp_axis for name in SPLITS} == SPLITS


def test_transposed_layers_split_along_the_other_axis():
    tensors = dict(architecture({"model_type": "gpt2"}).layout.named_tensors())
    fused, projection = (
        tensors["transformer.h.0.attn.c_attn.weight"],
        tensors["transformer.h.0.attn.c_proj.weight"],
    )
    assert (fused.shape, fused.tp_axis, fused.transposed) == ((768, 2304), 1, True)
    assert (projection.tp_axis, projection.transposed) == (0, True)
    assert tensors["transformer.wpe.weight"].tp_axis is None


@pytest.mark.parametrize("family", FAMILIES)
def test_split_axes_exist_and_experts_split_their_ffn(family):
    layout = architecture({"model_type": family}).layout
    for tensor, _ in layout.grouped():
        assert tensor.tp_axis is None or tensor.tp_axis < len(tensor.shape)
        if tensor.kind in {"norm", "router", "position"}:
            assert tensor.tp_axis is None
        if tensor.kind == "expert":
            assert tensor.tp_axis != 0


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_layers_are_one_unit(family):
    units = architecture({"model_type": family}).layout.units
    assert sum(unit.count for unit in units if unit.is_layer) > sum(unit.is_layer for unit in units)
