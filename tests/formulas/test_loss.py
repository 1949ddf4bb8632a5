"""Logits and cross-entropy against worked examples and published single-operator peaks."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from zerocalc.formulas import loss
from zerocalc.formulas.loss import LOSSES, loss_lines

WORKED = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[1] / "data" / "worked.json").read_text())["cases"]
}
MIB = 2**20
WORKSPACE = 17 * MIB  # the published fits state 16.25 to 16.3 MiB of workspace; nothing here models it


def live(
    phase: str, *, name: str = "eager", dtype: str = "bf16", tokens: int, vocab_size: int, **options: Any
) -> int:
    lines = loss_lines(
        loss=name,
        dtype=dtype,
        tokens=tokens,
        chunk_tokens=options.get("chunk_tokens", tokens),
        hidden_size=options.get("hidden_size", 4096),
        vocab_size=vocab_size,
        tensor_parallel=options.get("tensor_parallel", 1),
    )
    return sum(line.bytes for line in lines if phase in line.phases)


def test_worked_logits() -> None:
    case = WORKED["logits_ce"]
    tokens, vocab_size = case["inputs"]["T"], case["inputs"]["V"]
    for size, name in ((2, "bf16"), (4, "fp32")):
        made = loss.logits_bytes(
            tokens=tokens, vocab_size=vocab_size, bytes_per_element=size, tensor_parallel=1
        )
        assert made == case["expect"][name]
    peak = live("loss_backward", name="naive", tokens=tokens, vocab_size=vocab_size)
    assert peak == case["expect"]["naive_peak"]


def test_measured_multiples_of_the_logits() -> None:
    multiples = {
        (dtype, phase): live(phase, dtype=dtype, tokens=1, vocab_size=1)
        for dtype in ("bf16", "fp32")
        for phase in ("forward_end", "held", "loss_backward")
    }
    assert multiples == {
        ("bf16", "forward_end"): 10, ("bf16", "held"): 4, ("bf16", "loss_backward"): 12,
        ("fp32", "forward_end"): 8, ("fp32", "held"): 4, ("fp32", "loss_backward"): 12,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tokens", "eager", "fused"),
    [(4096, 6092.2822265625, 4245.5478515625), (16384, 15302.3759765625, 4910.4384765625)],
)
def test_published_head_and_loss(tokens: int, eager: float, fused: float) -> None:
    sizes = {"tokens": tokens, "hidden_size": 4096, "vocab_size": 128256}
    modelled = loss.linear_cross_entropy_bytes(**sizes, bytes_per_element=2)
    assert eager * MIB - modelled == pytest.approx(16.28 * MIB, abs=0.1 * MIB)
    chunk = loss.liger_chunk_tokens(**sizes)
    assert chunk == tokens // 32
    modelled = loss.fused_linear_cross_entropy_bytes(**sizes, chunk_tokens=chunk, bytes_per_element=2)
    assert 0 <= fused * MIB - modelled <= WORKSPACE


def test_published_cross_entropy_alone() -> None:
    # liger-ce-32768: 20 bytes per logit, eager: the loss's own 16 and the gradient of its input.
    tokens, vocab_size = 16384, 32768
    copies = live("loss_backward", name="naive", dtype="fp32", tokens=tokens, vocab_size=vocab_size)
    gradients = 2 * loss.logits_bytes(
        tokens=tokens, vocab_size=vocab_size, bytes_per_element=4, tensor_parallel=1
    )
    assert copies + gradients == 10240 * MIB
    fused = live("loss_backward", name="vocab-parallel", dtype="fp32", tokens=tokens, vocab_size=vocab_size)
    assert fused == 2048 * MIB


@pytest.mark.parametrize(("tokens", "forward", "full"), [(8192, 1090.25, 1992.25), (32768, 3538.25, 6372.25)])
def test_published_gated_mlp(tokens: int, forward: float, full: float) -> None:
    sizes = {"tokens": tokens, "hidden_size": 4096, "ffn_size": 11008, "bytes_per_element": 2}
    assert loss.gated_mlp_forward_bytes(**sizes) == (forward - 16.25) * MIB
    assert loss.gated_mlp_backward_bytes(**sizes) == (full - 16.25) * MIB


def test_published_logits_of_a_long_sequence() -> None:
    # iss-stas-logits: 15.7 GiB in fp32, 6 bytes per element with the bf16 copy.
    sizes = {"tokens": 32768, "vocab_size": 128256, "tensor_parallel": 1}
    fp32 = loss.logits_bytes(**sizes, bytes_per_element=4)
    assert round(fp32 / 2**30, 1) == 15.7
    transient = live("forward_end", tokens=32768, vocab_size=128256) - live(
        "held", tokens=32768, vocab_size=128256
    )
    assert transient == 6 * 32768 * 128256


def test_chunks_bound_the_loss() -> None:
    peaks = [
        live("loss_backward", name="chunked", tokens=8192, vocab_size=128256, chunk_tokens=chunk)
        for chunk in (8192, 4096, 1024, 128)
    ]
    assert peaks[0] == live("loss_backward", tokens=8192, vocab_size=128256)
    assert all(later < earlier for earlier, later in pairwise(peaks))
    assert live("held", name="fused", tokens=8192, vocab_size=128256, chunk_tokens=256) == 2 * 8192 * 4096


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", ["bf16", "fp32", "autocast"])
def test_a_vocabulary_split_over_ranks_covers_the_whole(name: str, dtype: str) -> None:
    for phase in ("forward_end", "held", "loss_backward"):
        whole = live(phase, name=name, dtype=dtype, tokens=512, vocab_size=50257, hidden_size=0)
        part = live(
            phase, name=name, dtype=dtype, tokens=512, vocab_size=50257, hidden_size=0, tensor_parallel=8
        )
        assert part <= whole <= 8 * part
