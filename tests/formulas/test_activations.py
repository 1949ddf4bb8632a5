"""Activations against PyTorch's own (measured), the papers' equations, and the worked examples."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zerocalc.activations.tables import IMPLEMENTATIONS, RECIPES, recipe_of
from zerocalc.activations.terms import activation_terms
from zerocalc.errors import SpecError
from zerocalc.formulas import activations
from zerocalc.layout import Dimensions

DATA = Path(__file__).parents[1] / "data"
RUNS = json.loads((DATA / "measured" / "activations.json").read_text())["runs"]
FAMILIES = json.loads((DATA / "measured" / "activation_families.json").read_text())["runs"]
PARTLY_ROTARY = {"gpt_neox", "phi"}  # the share of a head that turns is not among the dimensions
WORKED = {case["id"]: case for case in json.loads((DATA / "worked.json").read_text())["cases"]}
LLAMA_8B = Dimensions("llama", 4096, 32, 32, 8, 128, 14336, 128256, gated_mlp=True)
MIXTRAL = replace(
    LLAMA_8B,
    recipe="mixtral",
    num_experts=8,
    experts_per_token=2,
    num_moe_layers=32,
    moe_ffn_size=14336,
)


def dimensions(model: dict[str, Any]) -> Dimensions:
    if model["kind"] == "gpt2":
        hidden, heads = model["n_embd"], model["n_head"]
        return Dimensions(
            "gpt2", hidden, model["n_layer"], heads, heads, hidden // heads, 4 * hidden, model["vocab_size"],
            dropout=model["attn_pdrop"], has_position_table=True,
        )  # fmt: skip
    hidden, heads = model["hidden_size"], model["num_attention_heads"]
    return Dimensions(
        "llama", hidden, model["num_hidden_layers"], heads, model["num_key_value_heads"], hidden // heads,
        model["intermediate_size"], model["vocab_size"], gated_mlp=True,
    )  # fmt: skip


def estimate(run: dict[str, Any]) -> Any:
    return activation_terms(
        dimensions(run["model"]),
        micro_batch=run["micro_batch"],
        seq_len=run["seq_len"],
        dtype=run["dtype"],
        attention=run["attention"],
        checkpointing="full" if run["checkpointed"] else "none",
    )


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["name"])
def test_measured_runs_are_met_to_the_byte(run: dict[str, Any]) -> None:
    result = estimate(run)
    assert result.held_bytes == run["held_bytes"]
    assert result.forward_peak_bytes == run["forward_peak_bytes"]
    if run["grads_at_backward_peak_bytes"] == 0:
        assert result.loss_backward_peak_bytes == run["backward_peak_bytes"]
    else:  # the run peaked later, with gradients already there
        assert result.loss_backward_peak_bytes < run["backward_peak_bytes"]


def of_family(run: dict[str, Any]) -> Any:
    return activation_terms(
        Dimensions(**run["dimensions"]),
        micro_batch=run["micro_batch"],
        seq_len=run["seq_len"],
        dtype=run["dtype"],
        attention=run["attention"],
        checkpointing="full" if run["checkpointed"] else "none",
    )


@pytest.mark.parametrize(
    "run", FAMILIES, ids=lambda run: f"{run['family']}-{run['dtype']}-{run['attention']}"
)
def test_families_are_met_to_the_byte(run: dict[str, Any]) -> None:
    result = of_family(run)
    assert result.layers[0].bytes == run["layer_bytes"]
    if run["family"] not in PARTLY_ROTARY:
        assert result.outside_bytes == run["outside_bytes"]
        # The loss is the peak of the forward pass unless the vocabulary is tiny.
        assert result.forward_peak_bytes <= run["forward_peak_bytes"]


def test_the_forward_pass_of_families_peaks_in_the_loss() -> None:
    runs = [run for run in FAMILIES if run["family"] not in PARTLY_ROTARY]
    exact = sum(of_family(run).forward_peak_bytes == run["forward_peak_bytes"] for run in runs)
    assert exact >= 0.95 * len(runs)


def test_most_measured_runs_peak_in_the_loss() -> None:
    assert sum(run["grads_at_backward_peak_bytes"] == 0 for run in RUNS) == 54
    assert len(RUNS) == 72


# REPORT section 7, bytes per token and layer: h hidden, i inner, k keys, a heads, s sequence.
REPORT = {
    ("llama", "bf16", "flash"): lambda h, i, k, a, s: 20 * h + 4 * k + 8 * i + 4 * a + 8,
    ("llama", "bf16", "math"): lambda h, i, k, a, s: 30 * h + 8 * i + 8 + 4 * a * s,
    ("llama", "bf16", "eager"): lambda h, i, k, a, s: 24 * h + 8 * i + 8 + 6 * a * s,
    ("llama", "fp32", "flash"): lambda h, i, k, a, s: 32 * h + 8 * k + 16 * i + 4 * a + 8,
    ("llama", "fp32", "math"): lambda h, i, k, a, s: 40 * h + 16 * i + 8 + 4 * a * s,
    ("llama", "fp32", "eager"): lambda h, i, k, a, s: 40 * h + 16 * i + 8 + 4 * a * s,
    ("gpt2", "bf16", "flash"): lambda h, i, k, a, s: 56 * h + 8 + 4 * a,
    ("gpt2", "bf16", "eager"): lambda h, i, k, a, s: 56 * h + 8 + 2 * a * s,
    ("gpt2", "bf16", "math"): lambda h, i, k, a, s: 62 * h + 8 + 4 * a * s,
    ("gpt2", "fp32", "flash"): lambda h, i, k, a, s: 112 * h + 16 + 4 * a,
    ("gpt2", "fp32", "math"): lambda h, i, k, a, s: 112 * h + 16 + 4 * a * s,
    ("gpt2", "fp32", "eager"): lambda h, i, k, a, s: 112 * h + 16 + 4 * a * s,
}


@pytest.mark.parametrize("case", REPORT, ids="-".join)
@pytest.mark.parametrize(
    ("hidden", "heads", "kv_heads", "inner", "seq_len"), [(1152, 12, 4, 3072, 640), (512, 8, 8, 1360, 96)]
)
def test_closed_forms_per_layer(
    case: tuple[str, str, str], hidden: int, heads: int, kv_heads: int, inner: int, seq_len: int
) -> None:
    recipe, dtype, attention = case
    if recipe == "gpt2":
        kv_heads, inner = heads, 4 * hidden
    dims = Dimensions(
        recipe, hidden, 1, heads, kv_heads, hidden // heads, inner, 1000, gated_mlp=recipe == "llama"
    )
    result = activation_terms(dims, micro_batch=3, seq_len=seq_len, dtype=dtype, attention=attention)
    expected = REPORT[case](hidden, inner, kv_heads * hidden // heads, heads, seq_len)
    assert result.layers[0].bytes == 3 * seq_len * expected


@pytest.mark.parametrize("dtype", ["bf16", "autocast"])
def test_the_loss_peaks_at_ten_and_twelve_bytes_per_logit(dtype: Any) -> None:
    result = activation_terms(LLAMA_8B, micro_batch=1, seq_len=2048, dtype=dtype)
    logits = 2048 * 128256
    by_phase = {
        phase: sum(line.bytes for line in result.loss if phase in line.phases)
        for phase in ("forward_end", "held", "loss_backward")
    }
    assert by_phase == {"forward_end": 10 * logits, "held": 4 * logits, "loss_backward": 12 * logits}


@pytest.mark.parametrize("name", ["act_modern_llama3_8b", "act_modern_llama3_70b"])
def test_fused_layers_of_the_worked_examples(name: str) -> None:
    inputs, expect = WORKED[name]["inputs"], WORKED[name]["expect"]
    dims = Dimensions(
        "llama", inputs["h"], inputs["L"], inputs["a"], inputs["kv"], inputs["d"], inputs["f"], 128256, gated_mlp=True
    )  # fmt: skip

    def terms(**options: Any) -> Any:
        return activation_terms(
            dims, micro_batch=1, seq_len=inputs["tokens"], **{"implementation": "fused", **options}
        )

    fused = terms()
    assert fused.layers[0].bytes == inputs["tokens"] * expect["per_token_layer"]
    assert fused.saved_bytes == expect["all_layers"]
    assert (
        terms(implementation="fused-mlp").layers[0].bytes
        == inputs["tokens"] * expect["fused_swiglu_per_token_layer"]
    )
    full = terms(checkpointing="full")
    assert full.checkpoint_bytes == expect["full_ckpt"]
    assert full.checkpoint_bytes + full.recompute_working_set_bytes == expect["full_ckpt_peak"]
    assert full.backward_peak_bytes == expect["full_ckpt_peak"] + full.outside_bytes_in("recompute")


@pytest.mark.parametrize("name", ["act_korthikanti_gpt3", "act_korthikanti_mtnlg"])
def test_korthikanti_table_2(name: str) -> None:
    inputs, expect = WORKED[name]["inputs"], WORKED[name]["expect"]
    dims = Dimensions(
        "gpt2",
        inputs["h"],
        inputs["L"],
        inputs["a"],
        inputs["a"],
        inputs["h"] // inputs["a"],
        4 * inputs["h"],
        51200,
        dropout=0.1,
    )
    layouts: dict[str, dict[str, Any]] = {
        "none": {},
        "tp": {"tp": inputs["t"]},
        "tpsp": {"tp": inputs["t"], "sequence_parallel": True},
        "tp_sel": {"tp": inputs["t"], "checkpointing": "selective"},
        "sel": {"tp": inputs["t"], "sequence_parallel": True, "checkpointing": "selective"},
        "full": {"tp": inputs["t"], "checkpointing": "full"},
    }
    for layout, options in layouts.items():
        result = activation_terms(
            dims,
            micro_batch=inputs["b"],
            seq_len=inputs["s"],
            attention="eager",
            implementation="korthikanti",
            loss="vocab-parallel",
            **options,
        )
        assert result.layers[0].bytes == expect[layout], layout
    ratio = activations.attention_memory_ratio(
        num_heads=inputs["a"], seq_len=inputs["s"], hidden_size=inputs["h"]
    )
    assert ratio == expect["5as/h"]


@pytest.mark.parametrize(
    ("heads", "hidden", "ratio"),
    [(64, 6144, 106.66666666666667), (96, 12288, 80), (128, 20480, 64), (160, 25600, 64)],
)
def test_printed_attention_terms(heads: int, hidden: int, ratio: float) -> None:
    assert activations.attention_memory_ratio(
        num_heads=heads, seq_len=2048, hidden_size=hidden
    ) == pytest.approx(ratio, rel=1e-12)


def test_korthikanti_output_layer() -> None:
    case = WORKED["act_logits_megatron"]
    inputs = case["inputs"]
    dims = Dimensions("gpt2", inputs["h"], 0, 96, 96, 128, 4 * inputs["h"], inputs["v"], dropout=0.1)
    result = activation_terms(
        dims,
        micro_batch=inputs["b"],
        seq_len=inputs["s"],
        tp=inputs["t"],
        sequence_parallel=True,
        implementation="korthikanti",
        loss="vocab-parallel",
        has_embedding=False,
    )
    assert result.held_bytes == case["expect"]


def test_korthikanti_output_tensors_of_a_pipeline() -> None:
    # Appendix B: the outputs that 35 micro-batches in flight would keep on the 530B model's stage, 2.73 GiB.
    output = activations.token_tensor_bytes(
        tokens=2048, width=20480, bytes_per_element=2, sequence_parallel=1
    )
    in_flight = activations.micro_batches_in_flight(num_micro_batches=280, pipeline_parallel=35)
    assert round(output * in_flight / 2**30, 2) == 2.73


def test_korthikanti_first_stage_holds_embedding_masks_of_every_micro_batch() -> None:
    # Section 4.3: s·b·h·p/t bytes.
    dims = Dimensions("gpt2", 20480, 105, 128, 128, 160, 81920, 51200, dropout=0.1)
    first = activation_terms(
        dims, micro_batch=1, seq_len=2048, tp=8, sequence_parallel=True, implementation="korthikanti",
        num_layers=3, in_flight=35, has_head=False,
    )  # fmt: skip
    assert first.outside_bytes == 2048 * 20480 * 35 // 8


def test_partitioned_checkpoints() -> None:
    case = WORKED["zeror_pa"]
    inputs, expect = case["inputs"], case["expect"]
    dims = Dimensions("gpt2", inputs["h"], inputs["L"], 64, 64, 128, 4 * inputs["h"], 50257)

    def checkpoints(**options: Any) -> int:
        result = activation_terms(
            dims,
            micro_batch=inputs["b"],
            seq_len=inputs["s"],
            checkpointing="full",
            tp=inputs["mp"],
            **options,
        )
        return int(result.checkpoint_bytes)

    assert checkpoints() == expect["ckpt_fp16_bytes"] == 2 * expect["ckpt_elements"]
    assert checkpoints(partition_checkpoints=True) == expect["with_pa"]
    tokens = inputs["s"] * inputs["b"]
    moved = activations.partitioned_checkpoint_elements(tokens=tokens, hidden_size=inputs["h"])
    block = activations.tensor_parallel_block_elements(tokens=tokens, hidden_size=inputs["h"])
    assert moved / block == expect["comm_ratio"]
    assert (
        activations.checkpoint_offload_traffic_bytes(checkpoint_bytes=expect["with_pa"])
        == 2 * expect["with_pa"]
    )


def test_pipeline_stages() -> None:
    in_flight = activations.micro_batches_in_flight
    assert [in_flight(num_micro_batches=m, pipeline_parallel=4) for m in (1, 4, 9)] == [1, 4, 4]
    # 1F1B: p micro-batches of L/p layers are L layers' worth; interleaving adds (p-1)/(pm).
    assert activations.interleaved_layers_held(num_layers=96, pipeline_parallel=8, model_chunks=1) == 96 + 84
    assert activations.interleaved_layers_held(num_layers=96, pipeline_parallel=8, model_chunks=3) == 96 + 28
    first = activation_terms(LLAMA_8B, micro_batch=1, seq_len=512, num_layers=8, in_flight=4, has_head=False)
    whole = activation_terms(LLAMA_8B, micro_batch=1, seq_len=512)
    assert first.saved_bytes == whole.saved_bytes
    assert not first.loss


def test_published_hidden_copies() -> None:
    # stas00: about 28 hidden-sized tensors per layer of Llama-3.1-8B at 32,768 tokens, 7 GiB.
    copies = activations.token_tensor_bytes(
        tokens=32768, width=28 * 4096, bytes_per_element=2, sequence_parallel=1
    )
    assert copies == 7 * 2**30
    layer = activation_terms(LLAMA_8B, micro_batch=1, seq_len=32768).layers[0].bytes
    assert 24 <= layer / (32768 * 4096 * 2) <= 28


@pytest.mark.parametrize("options", [{"tp": 8}, {"tp": 8, "sequence_parallel": True}, {"cp": 8}])
def test_parallelism_never_adds_and_shards_cover_the_whole(options: dict[str, Any]) -> None:
    whole = activation_terms(LLAMA_8B, micro_batch=1, seq_len=4096)
    part = activation_terms(LLAMA_8B, micro_batch=1, seq_len=4096, **options)
    assert part.layers[0].bytes < whole.layers[0].bytes <= 8 * part.layers[0].bytes
    if options != {"tp": 8}:
        assert 8 * part.layers[0].bytes == whole.layers[0].bytes


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_and_implementation_answers(recipe: str, implementation: str) -> None:
    dims = replace(MIXTRAL, recipe=recipe, num_moe_layers=16, shared_ffn_size=1024, dropout=0.1)
    saved = []
    for checkpointing in ("none", "selective", "full"):
        result = activation_terms(
            dims,
            micro_batch=2,
            seq_len=256,
            attention="eager",
            checkpointing=checkpointing,  # type: ignore[arg-type]
            implementation=implementation,
        )
        assert result.num_layers == 32
        assert isinstance(result.held_bytes, int)
        assert all(
            line.bytes == line.applied.value and line.applied.expression
            for layer in result.layers
            for line in layer.lines
        )
        saved.append(result.saved_bytes)
    assert saved == sorted(saved, reverse=True)


def test_recomputation_brings_back_what_was_dropped() -> None:
    for attention in ("flash", "math", "eager"):
        none = activation_terms(LLAMA_8B, micro_batch=1, seq_len=512, attention=attention)  # type: ignore[arg-type]
        full = activation_terms(
            LLAMA_8B, micro_batch=1, seq_len=512, attention=attention, checkpointing="full"
        )  # type: ignore[arg-type]
        assert full.recompute_working_set_bytes == none.layers[0].bytes
        assert (none.recompute_linear, none.recompute_attention) == (0, 0)
        assert (full.recompute_linear, full.recompute_attention) == (1, 1)


def test_gpu_masks_take_one_byte() -> None:
    dims = Dimensions("gpt2", 768, 12, 12, 12, 64, 3072, 50257, dropout=0.1, has_position_table=True)
    cpu = activation_terms(dims, micro_batch=1, seq_len=1024, attention="eager")
    gpu = activation_terms(dims, micro_batch=1, seq_len=1024, attention="eager", device="cuda")
    masks = 12 * 1024 + 2 * 768
    statistics = 4 * 4 - 4 * 2
    assert cpu.layers[0].bytes - gpu.layers[0].bytes == 1024 * (masks - statistics)


def test_arrays_give_the_same_integers() -> None:
    batches, lengths = np.array([1, 2, 3, 8]), np.array([128, 256, 512, 1024])
    together = activation_terms(
        MIXTRAL, micro_batch=batches, seq_len=lengths, checkpointing="full", attention="math"
    )
    for index, (batch, length) in enumerate(zip(batches.tolist(), lengths.tolist(), strict=True)):
        alone = activation_terms(
            MIXTRAL, micro_batch=batch, seq_len=length, checkpointing="full", attention="math"
        )
        assert together.held_bytes[index] == alone.held_bytes
        assert together.forward_peak_bytes[index] == alone.forward_peak_bytes
        assert together.backward_peak_bytes[index] == alone.backward_peak_bytes


def test_a_family_finds_its_recipe() -> None:
    assert recipe_of("gemma3_text", "llama") == "gemma3"
    assert recipe_of("mistral", "llama") == "llama"


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(SpecError, match="recipe"):
        activation_terms(replace(LLAMA_8B, recipe="rwkv"), micro_batch=1, seq_len=1)
    with pytest.raises(SpecError, match="loss"):
        activation_terms(LLAMA_8B, micro_batch=1, seq_len=1, loss="hinge")
