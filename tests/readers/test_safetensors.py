"""Layouts from safetensors headers that are crafted by hand: no weights, no library."""

import json
import os
import struct
import time

import pytest

import zerocalc
from zerocalc.architectures import architecture
from zerocalc.architectures.counts import count_params
from zerocalc.errors import FileError, ZerocalcError
from zerocalc.readers.safetensors import DTYPE_BITS, read_layout

LLAMA = {
    "model_type": "llama", "vocab_size": 50, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 12,
    "num_attention_heads": 2,
}  # fmt: skip


def write(path, header, *, data=None, length=None):
    """Write a file: header length, header, and as many zero bytes as the offsets ask for (sparse)."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    ends = (
        []
        if isinstance(header, bytes)
        else [item["data_offsets"][1] for item in header.values() if _sized(item)]
    )
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(raw) if length is None else length))
        stream.write(raw)
        stream.truncate(8 + len(raw) + (max(ends, default=0) if data is None else data))
    return path


def _sized(item):
    return (
        isinstance(item, dict)
        and isinstance(item.get("data_offsets"), list)
        and len(item["data_offsets"]) == 2
    )


def header(*tensors, start=0):
    """Lay tensors (name, shape, dtype) one after the other."""
    found, offset = {"__metadata__": {"format": "pt"}}, start
    for name, shape, *dtype in tensors:
        kind, numel = (dtype or ["BF16"])[0], 1
        for size in shape:
            numel *= size
        end = offset + -(-numel * DTYPE_BITS[kind] // 8)
        found[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    return found


def named(config):
    return [(name, tensor.shape) for name, tensor in architecture(config).layout.named_tensors()]


FAMILIES = [
    LLAMA,
    {"model_type": "deepseek_v3", "num_hidden_layers": 5},
    {"model_type": "mixtral", "num_hidden_layers": 3},
    {"model_type": "gpt2"},
    {"model_type": "opt"},
    {"model_type": "qwen3_moe", "num_hidden_layers": 4, "decoder_sparse_step": 2},
    {"model_type": "gemma3", "vision_config": {"vision_use_head": False}},
]


@pytest.mark.parametrize("config", FAMILIES, ids=lambda config: config["model_type"])
def test_finds_what_the_config_describes(tmp_path, config):
    described = architecture(config)
    read = read_layout(write(tmp_path / "model.safetensors", header(*named(config))))
    assert sorted((n, t.shape) for n, t in read.layout.named_tensors()) == sorted(named(config))
    ours, theirs = count_params(read), count_params(described)
    for field in (
        "num_params", "num_layers", "num_tensors", "num_input_embedding_params", "num_expert_params",
        "num_shared_expert_params", "num_router_params", "largest_layer_params", "largest_layer",
    ):  # fmt: skip
        assert getattr(ours, field) == getattr(theirs, field), field
    runs = {(run.name, run.first, run.count, run.params) for run in theirs.layers}
    assert {(run.name, run.first, run.count, run.params) for run in ours.layers} == runs
    assert read.dimensions is None


def test_layers_are_ordered_by_number_and_the_head_comes_last(tmp_path):
    layout = read_layout(write(tmp_path / "m.safetensors", header(*sorted(named(LLAMA))))).layout
    names = [name for name, _ in layout.named_tensors()]
    assert names.index("model.layers.2.mlp.up_proj.weight") < names.index(
        "model.layers.10.mlp.up_proj.weight"
    )
    assert names[-1] == "lm_head.weight"


def test_shards_with_an_index(tmp_path):
    tensors = named(LLAMA)
    files = {"a.safetensors": tensors[:30], "b.safetensors": tensors[30:]}
    for name, part in files.items():
        write(tmp_path / name, header(*part))
    index = {"weight_map": {tensor: name for name, part in files.items() for tensor, _ in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    total = architecture(LLAMA).layout.num_params
    assert read_layout(tmp_path).layout.num_params == total
    assert read_layout(tmp_path / "model.safetensors.index.json").layout.num_params == total
    assert read_layout(tmp_path).layout.num_layers == 12


def test_same_bytes_are_tied(tmp_path):
    tensors = header(("model.embed_tokens.weight", (50, 8)), ("model.norm.weight", (8,)))
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    layout = read_layout(write(tmp_path / "model.safetensors", tensors)).layout
    assert [(tie.name, tie.target) for tie in layout.ties] == [
        ("lm_head.weight", "model.embed_tokens.weight")
    ]
    assert layout.num_params == 50 * 8 + 8


def test_ties_of_the_config_beside_it(tmp_path):
    tied = {**LLAMA, "tie_word_embeddings": True}
    write(tmp_path / "model.safetensors", header(*named(LLAMA)))
    (tmp_path / "config.json").write_text(json.dumps(tied))
    assert read_layout(tmp_path).layout.num_params == architecture(tied).layout.num_params
    (tmp_path / "config.json").write_text("{broken")
    assert read_layout(tmp_path).layout.num_params == architecture(LLAMA).layout.num_params


def test_every_range_inside_a_longer_one_is_named(tmp_path):
    whole = {"dtype": "F32", "shape": [10], "data_offsets": [0, 40]}
    parts = {
        f"b{at}": {"dtype": "F32", "shape": [1], "data_offsets": [8 * at, 8 * at + 4]} for at in range(1, 4)
    }
    read = read_layout(write(tmp_path / "x.safetensors", {"a": whole, **parts}))
    said = [note for note in read.assumptions if "share part of their bytes" in note]
    assert [note.split()[2] for note in said] == ["b1", "b2", "b3"]


def test_what_is_no_file_is_called_what_it_is(tmp_path):
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "loop.safetensors").symlink_to("loop.safetensors")
    (tmp_path / "dead.safetensors").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "model.safetensors")
    for name, says in {
        "pipe.safetensors": "not a regular file",
        "loop.safetensors": "a link that leads nowhere",
        "dead.safetensors": "a link that leads nowhere",
        "folder": "not a regular file",
        "none.safetensors": "no such file or folder",
    }.items():
        with pytest.raises(FileError, match=says):
            read_layout(tmp_path / name)
        with pytest.raises(FileError, match=says):
            zerocalc.job(str(tmp_path / name), gpus=8)


def test_ranges_that_overlap_in_part_are_named(tmp_path):
    tensors = header(("a.weight", (4, 4)), ("b.weight", (4, 4), "BF16"))
    tensors["b.weight"]["data_offsets"] = [16, 48]
    read = read_layout(write(tmp_path / "m.safetensors", tensors))
    assert any("a.weight and b.weight share part of their bytes" in note for note in read.assumptions)


def test_buffers_are_no_parameters(tmp_path):
    tensors = header(
        ("model.layers.0.self_attn.rotary_emb.inv_freq", (4,), "F32"),
        ("model.layers.1.self_attn.rotary_emb.inv_freq", (4,), "F32"),
        ("model.layers.0.mlp.gate.e_score_correction_bias", (6,), "F32"),
        ("embeddings.position_ids", (1, 16), "I64"),
        ("h.0.attn.bias", (1, 1, 16, 16), "U8"),
        ("h.0.attn.c_proj.weight", (4, 4)),
        ("h.0.attn.q.weight", (4, 4), "F8_E4M3"),
        ("h.0.attn.q.weight_scale_inv", (1, 1), "F32"),
    )
    layout = read_layout(write(tmp_path / "m.safetensors", tensors)).layout
    assert layout.num_params == 32
    buffers = {buffer.name: (buffer.shape, buffer.dtype, buffer.count) for buffer in layout.buffers}
    assert buffers["model.layers.*.self_attn.rotary_emb.inv_freq"] == ((4,), "fp32", 2)
    assert buffers["embeddings.position_ids"] == ((1, 16), "i64", 1)
    assert set(buffers) == {
        "model.layers.*.self_attn.rotary_emb.inv_freq", "model.layers.0.mlp.gate.e_score_correction_bias",
        "embeddings.position_ids", "h.0.attn.bias", "h.0.attn.q.weight_scale_inv",
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "F4", "F6_E2M3", "BF16", "F64"])
def test_sub_byte_types_fit_their_bits(tmp_path, dtype):
    layout = read_layout(write(tmp_path / "m.safetensors", header(("w.weight", (4, 8), dtype)))).layout
    assert layout.num_params == 32


def test_packed_whole_numbers_are_said(tmp_path):
    tensors = header(("l.qweight", (4, 8), "I32"), ("l.weight", (2, 2)))
    read = read_layout(write(tmp_path / "m.safetensors", tensors))
    assert read.layout.num_params == 4
    assert any("1 tensors of whole numbers" in note for note in read.assumptions)


GOOD = {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}
LIES = [
    ({"w": {**GOOD, "data_offsets": [0, 6]}}, "do not fit BF16 of shape"),
    ({"w": {**GOOD, "data_offsets": [8, 0]}}, "outside"),
    ({"w": {**GOOD, "data_offsets": [-8, 0]}}, "whole numbers from 0"),
    ({"w": {**GOOD, "data_offsets": [0]}}, "two data_offsets"),
    ({"w": {**GOOD, "data_offsets": [0, 8.0]}}, "whole numbers"),
    ({"w": {**GOOD, "shape": [2, -2]}}, "whole numbers from 0"),
    ({"w": {**GOOD, "shape": "2x2"}}, "whole numbers from 0"),
    ({"w": {**GOOD, "shape": [True, 4]}}, "whole numbers from 0"),
    ({"w": {**GOOD, "dtype": "BF17"}}, "unknown dtype 'BF17'"),
    ({"w": {**GOOD, "dtype": None}}, "unknown dtype"),
    ({"w": [1, 2]}, "is no object"),
    ({}, "holds no tensors"),
    ({"__metadata__": {}}, "holds no tensors"),
    (b"[1]", "no JSON object"),
    (b'{"a": 1, "a": 2}', "twice"),
    (b'{"a": NaN}', "NaN"),
    (b"\xff\xff", "no UTF-8"),
    (b"{" * 100_000, "JSON"),
]


@pytest.mark.parametrize(("tensors", "message"), LIES, ids=range(len(LIES)))
def test_headers_that_lie(tmp_path, tensors, message):
    file = write(tmp_path / "m.safetensors", tensors, data=8)
    with pytest.raises(FileError) as error:
        read_layout(file)
    assert message in error.value.message
    assert str(file) in error.value.message
    assert "\n" not in error.value.message


@pytest.mark.parametrize("length", [0, 1, 10**6, 10**8 + 1, 2**63, 2**64 - 1])
def test_lengths_that_lie(tmp_path, length):
    file = write(tmp_path / "m.safetensors", {"w": GOOD}, length=length)
    start = time.perf_counter()
    with pytest.raises(FileError):
        read_layout(file)
    assert time.perf_counter() - start < 0.5


@pytest.mark.parametrize("data", [b"", b"\x01", b"1234567"])
def test_too_short(tmp_path, data):
    (tmp_path / "m.safetensors").write_bytes(data)
    with pytest.raises(FileError, match="too short"):
        read_layout(tmp_path)


def test_data_that_is_cut_off(tmp_path):
    file = write(tmp_path / "m.safetensors", {"w": GOOD}, data=4)
    with pytest.raises(FileError, match="outside the 4 bytes of data"):
        read_layout(file)


def test_absurd_sizes_are_refused_quickly(tmp_path):
    shape = [2**62] * 1000
    file = write(tmp_path / "m.safetensors", {"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 8]}})
    with pytest.raises(FileError) as error:
        read_layout(file)
    assert len(error.value.message) < 300 + len(str(file))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {"w": "../secret.safetensors"}}, "outside its folder"),
        ({"weight_map": {"w": "/etc/passwd"}}, "outside its folder"),
        ({"weight_map": {"w": "..\\secret"}}, "outside its folder"),
        ({"weight_map": {"w": ".."}}, "outside its folder"),
        ({"weight_map": {"w": 3}}, "no weight_map"),
        ({"weight_map": {}}, "no weight_map"),
        ({}, "no weight_map"),
        ([], "no weight_map"),
        (
            {"weight_map": {"w": "a.safetensors", "v": "b.safetensors"}},
            "1 of 2 shards are missing, the first is b",
        ),
    ],
)
def test_bad_index(tmp_path, index, message):
    write(tmp_path / "a.safetensors", {"w": GOOD})
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(FileError) as error:
        read_layout(tmp_path)
    assert message in error.value.message


def test_shards_that_repeat_a_name(tmp_path):
    for name in ("a.safetensors", "b.safetensors"):
        write(tmp_path / name, {"w": GOOD})
    index = {"weight_map": {"w": "a.safetensors", "v": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(FileError, match="two shards hold the tensor 'w'"):
        read_layout(tmp_path)


def test_folders(tmp_path):
    with pytest.raises(FileError, match=r"has no \.safetensors file"):
        read_layout(tmp_path)
    write(tmp_path / "x.safetensors", {"w": GOOD})
    assert read_layout(tmp_path).layout.num_params == 4
    write(tmp_path / "y.safetensors", {"w": GOOD})
    with pytest.raises(FileError, match=r"2 \.safetensors files and no model\.safetensors\.index\.json"):
        read_layout(tmp_path)
    write(tmp_path / "model.safetensors", {"w": {**GOOD, "shape": [4]}})
    assert read_layout(tmp_path).layout.num_params == 4
    with pytest.raises(ZerocalcError, match="no such file"):
        read_layout(tmp_path / "none")


def test_weights_are_never_read(tmp_path):
    """A model of 20 TB, as a sparse file where the file system allows one, is read in no time."""
    tensors = header(*[(f"model.layers.{i}.w.weight", (10**6, 10**5)) for i in range(4)])
    try:
        file = write(tmp_path / "m.safetensors", tensors)
    except OSError:
        pytest.skip("the file system has no such large files")
    start = time.perf_counter()
    assert read_layout(file).layout.num_params == 4 * 10**11
    assert time.perf_counter() - start < 0.5
