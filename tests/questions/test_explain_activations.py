"""Activations from the command line's own path: a config.json in, the measured bytes of PyTorch out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import zerocalc
from zerocalc.errors import UsageError

DATA = Path(__file__).parents[1] / "data" / "measured"
RUNS = json.loads((DATA / "activations.json").read_text())["runs"]
PRECISIONS = {"bf16": "bf16-pure", "fp32": "fp32", "autocast": "fp32"}
KEPT = {"activations", "activation_checkpoints", "outside_layers", "logits", "recomputed_layer"}


def measured_job(run, directory, **words):
    """A measured run as a user would type it; the measurements were made on a CPU."""
    path = directory / "config.json"
    path.write_text(json.dumps(run["model"] | {"model_type": run["model"]["kind"]}))
    return zerocalc.job(
        str(path), gpus=1, strategy="ddp", precision=PRECISIONS[run["dtype"]], micro_batch=run["micro_batch"],
        seq_len=run["seq_len"], attention=run["attention"], checkpointing="full" if run["checkpointed"] else "none",
        settings={"activation_device": "cpu", "autocast": run["dtype"] == "autocast"}, **words,
    )  # fmt: skip


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["name"])
def test_what_is_explained_was_measured(run, tmp_path):
    totals = zerocalc.explain(measured_job(run, tmp_path), "activations").totals
    assert totals["end_of_forward"] == run["held_bytes"]
    assert totals["loss"] == run["forward_peak_bytes"]
    if run["grads_at_backward_peak_bytes"] == 0:  # otherwise the run peaked later, with gradients there
        assert totals["loss_backward"] == run["backward_peak_bytes"]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["name"])
def test_what_pytorch_is_estimated_to_hold_was_measured(run, tmp_path):
    job = measured_job(run, tmp_path, framework="pytorch")
    gpu = zerocalc.estimate(job).results[0].memory.gpu

    def live(phase):
        return sum(term.bytes for term in gpu.terms if term.name in KEPT and phase in term.phases)

    assert live("forward_end") == run["forward_peak_bytes"]
    if run["grads_at_backward_peak_bytes"] == 0:
        assert live("loss_backward") == run["backward_peak_bytes"]


def test_each_tensor_of_a_layer_is_a_line_and_they_sum():
    job = zerocalc.job("mixtral-8x7b", gpus=8, micro_batch=1, seq_len=512)
    answer = zerocalc.explain(job, "activations")
    layer = [line for line in answer.lines if line.part == "one moe layer of 32"]
    assert sum(line.value for line in layer) == answer.totals["one_moe_layer"]
    assert answer.totals["all_layers"] == 32 * answer.totals["one_moe_layer"]
    origins = {item.name: item.origin for line in layer for item in line.inputs}
    assert origins["tokens"] == "micro_batch from argument, seq_len from argument"


def test_it_needs_a_batch_and_a_shape():
    for job in (zerocalc.job("llama-3-8b", gpus=8), zerocalc.job("7b", gpus=8, micro_batch=1, seq_len=8)):
        with pytest.raises(UsageError, match="batch and the model's shape"):
            zerocalc.explain(job, "activations")


def test_megatron_explains_its_own_term():
    job = zerocalc.job(
        "llama-3-8b", gpus=8, framework="megatron", strategy="zero1", micro_batch=1, seq_len=128
    )
    answer = zerocalc.explain(job, "activations", strategies=["zero1"])
    assert {line.name for line in answer.lines} == {"activations"}


RATES = {
    "attn_pdrop": "dropout mask of scores",
    "resid_pdrop": "dropout mask after MLP",
    "embd_pdrop": "embedding dropout mask",
}


@pytest.mark.parametrize("dropped", RATES)
def test_each_of_gpt_2_s_rates_drops_its_own_tensors(dropped, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gpt2"} | {key: 0.1 * (key == dropped) for key in RATES}))
    job = zerocalc.job(str(path), gpus=1, strategy="ddp", micro_batch=1, seq_len=64, attention="eager")
    names = {line.name for line in zerocalc.explain(job, "activations").lines}
    assert {mask for mask in RATES.values() if mask in names} == {RATES[dropped]}


def test_opt_drops_hidden_states_and_no_scores():
    """Published OPT files: dropout 0.1, attention_dropout 0.0."""
    job = zerocalc.job("opt-6.7b", gpus=1, strategy="ddp", micro_batch=1, seq_len=64, attention="eager")
    names = {line.name for line in zerocalc.explain(job, "activations").lines}
    assert "dropout mask after MLP" in names
    assert "dropout mask of scores" not in names
