"""What is kept: activations, logits, optimizer states, checkpoint files."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import zerocalc
from tests.worked.asking import config, estimate, moved, states, terms, with_layout
from zerocalc.formulas import activations, loss
from zerocalc.layout import Layout, Tensor, Unit

if TYPE_CHECKING:
    from zerocalc.results import StrategyResult


GPT = {"model_type": "gpt2", "vocab_size": 51200, "n_positions": 8192, "tie_word_embeddings": True}


def gpt(i: Mapping[str, Any], **keys: Any) -> str:
    return config(**GPT, n_embd=i["h"], n_head=i.get("a", i.get("heads", 64)), n_layer=i["L"], **keys)


def korthikanti(i: Mapping[str, Any]) -> Any:
    layouts: dict[str, dict[str, Any]] = {
        "none": {"gpus": 1},
        "tp": {},
        "tpsp": {"sequence_parallel": True},
        "tp_sel": {"checkpointing": "selective"},
        "sel": {"sequence_parallel": True, "checkpointing": "selective"},
        "full": {"checkpointing": "full"},
    }

    def per_layer(words: Mapping[str, Any]) -> int:
        words = {"gpus": i["t"], "tp": 1 if "gpus" in words else i["t"]} | dict(words)
        result = estimate(
            gpt(i), strategy="ddp", micro_batch=i["b"], seq_len=i["s"], attention="eager", precision="fp16",
            settings={"activations": "korthikanti", "loss": "vocab-parallel"}, **words,
        )  # fmt: skip
        kept = terms(result, name="activations") or terms(result, name="activation_checkpoints")
        assert kept % i["L"] == 0
        return kept // i["L"]

    ratio = activations.attention_memory_ratio(num_heads=i["a"], seq_len=i["s"], hidden_size=i["h"])
    return {"5as/h": ratio} | {name: per_layer(words) for name, words in layouts.items()}


def llama(i: Mapping[str, Any], **words: Any) -> StrategyResult:
    path = config(
        model_type="llama", hidden_size=i["h"], num_hidden_layers=i["L"], num_attention_heads=i["a"],
        num_key_value_heads=i["kv"], head_dim=i["d"], intermediate_size=i["f"], vocab_size=128256,
        tie_word_embeddings=False,
    )  # fmt: skip
    words = {"settings": {"activations": "fused"}} | words
    return estimate(path, gpus=1, strategy="ddp", micro_batch=1, seq_len=i["tokens"], **words)


def modern_layers(i: Mapping[str, Any]) -> Any:
    fused_mlp = llama(i, settings={"activations": "fused-mlp"})
    kept, fused = terms(llama(i), name="activations"), terms(fused_mlp, name="activations")
    full = llama(
        i, checkpointing="full", settings={"activations": "fused", "loss": "fused", "loss_chunk_tokens": 1}
    )
    checkpoints = terms(full, name="activation_checkpoints")
    return {
        "per_token_layer": Fraction(kept, i["tokens"] * i["L"]),
        "fused_swiglu_per_token_layer": Fraction(fused, i["tokens"] * i["L"]),
        "all_layers": kept,
        "full_ckpt": checkpoints,
        "full_ckpt_peak": checkpoints + terms(full, name="recomputed_layer"),
    }


def output_layer(i: Mapping[str, Any]) -> int:
    from zerocalc.activations.terms import activation_terms
    from zerocalc.layout import Dimensions

    dims = Dimensions("gpt2", i["h"], 0, 96, 96, 128, 4 * i["h"], i["v"], dropout=0.1)
    return activation_terms(
        dims, micro_batch=i["b"], seq_len=i["s"], tp=i["t"], sequence_parallel=True, implementation="korthikanti",
        loss="vocab-parallel", has_embedding=False,
    ).held_bytes  # fmt: skip


def logits(i: Mapping[str, Any]) -> Any:
    def copy(width: int) -> int:
        return loss.logits_bytes(tokens=i["T"], vocab_size=i["V"], bytes_per_element=width, tensor_parallel=1)

    path = config(
        model_type="llama", hidden_size=64, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
        intermediate_size=64, vocab_size=i["V"], tie_word_embeddings=False,
    )  # fmt: skip
    result = estimate(path, gpus=1, strategy="ddp", micro_batch=1, seq_len=i["T"], settings={"loss": "naive"})
    return {"bf16": copy(2), "fp32": copy(4), "naive_peak": terms(result, name="logits")}


def partitioned_checkpoints(i: Mapping[str, Any]) -> Any:
    def checkpoints(**settings: bool) -> StrategyResult:
        return estimate(
            gpt(i, activation_function="gelu"), gpus=i["mp"], tp=i["mp"], strategy="ddp", micro_batch=i["b"],
            seq_len=i["s"], checkpointing="full", settings=settings,
        )  # fmt: skip

    partitioned = checkpoints(partition_activations=True)
    tokens = i["s"] * i["b"]
    block = activations.tensor_parallel_block_elements(tokens=tokens, hidden_size=i["h"])
    restored = moved(partitioned, "full_bytes", tensor="activations")
    return {
        "ckpt_elements": restored // 2,
        "ckpt_fp16_bytes": terms(checkpoints(), name="activation_checkpoints"),
        "with_pa": terms(partitioned, name="activation_checkpoints"),
        "comm_ratio": restored / 2 / (i["L"] * block),
    }


OPTIMIZERS = {
    "adam_mixed_master": ("adamw", "mixed-bf16"),
    "adam_fp32_no_master": ("adamw", "fp32"),
    "adam_pure_bf16": ("adamw", "bf16-pure"),
    "adam_pure_bf16_kahan": ("adamw", "bf16-kahan"),
    "adam_dsv3_fp32master_bf16mv": ("adamw", "deepseek-v3"),
    "adam8bit_b256": ("adam8bit", "bf16-pure"),
    "adam4bit_b128": ("adam4bit", "bf16-pure"),
    "sgd": ("sgd", "fp32"),
    "sgd_momentum_fp32": ("sgd-momentum", "fp32"),
    "lion_fp32": ("lion", "fp32"),
    "lion_bf16": ("lion", "bf16-pure"),
}


def optimizer_bytes(num_params: int, optimizer: str, precision: str) -> int:
    result = estimate(num_params, gpus=1, strategy="ddp", optimizer=optimizer, precision=precision)
    return terms(result, state="optimizer_states")


def optimizer_table(i: Mapping[str, Any]) -> Any:
    return {name: optimizer_bytes(i["params"], *words) for name, words in OPTIMIZERS.items()}


def low_bit_savings(i: Mapping[str, Any]) -> Any:
    whole = states(i["params"], gpus=1, strategy="ddp", precision="bf16-pure")

    def saved(optimizer: str) -> int:
        return whole - states(i["params"], gpus=1, strategy="ddp", precision="bf16-pure", optimizer=optimizer)

    return {"delta_8bit": saved("adam8bit"), "delta_4bit": saved("adam4bit")}


def adafactor(i: Mapping[str, Any]) -> Any:
    layout = Layout((Unit("w", (Tensor("w.weight", (i["R"], i["C"])),)),))

    def held(optimizer: str) -> int:
        result = with_layout(layout, gpus=1, strategy="ddp", precision="fp32", optimizer=optimizer)
        return terms(result, state="optimizer_states")

    return {"factored": held("adafactor"), "adam": held("adamw")}


def checkpoint_files(i: Mapping[str, Any]) -> Any:
    result = estimate(i["params"], gpus=1, strategy="ddp")
    optim, model = terms(result, state="optimizer_states"), terms(result, state="params")
    return {"optim": optim, "model": model, "total": optim + model}


def one_state(i: Mapping[str, Any], **words: Any) -> int:
    """One fp32 optimizer state: K = 4."""
    return terms(estimate(i["params"], k="4", **words), state="optimizer_states")


def llm_c(i: Mapping[str, Any]) -> Any:
    return {
        "param": terms(estimate(i["params"], gpus=1, strategy="ddp"), state="params"),
        "m": one_state(i, gpus=1, strategy="ddp"),
    }


def fewest_gpus(i: Mapping[str, Any]) -> Any:
    """The example's sum keeps two gathered blocks and one's gradients, 6 bytes a parameter, beside everything else."""
    reserve = 6 * i["block"] + i["overhead"]
    job = zerocalc.job(i["params"], gpus=1, gpu=f"{i['cap']}B", reserve=f"{reserve}B")
    return zerocalc.solve(job, "gpus", strategies=["zero3"]).answers[0].value
