"""Activations of a Megatron rank, and which moment of the turn holds most.

Three moments of a turn can be its peak. At each one every layer's activations are held:
- loss: the logits in fp32 beside their 16-bit gradient (or one 16-bit copy, overwritten in place);
- output layer backward: the logits' gradient, the layer's input and the gradient of that input, whole on every rank;
- last layer backward: the gradient of the MLP's inside; with recomputation also everything the layer keeps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocalc.formulas.activations import split_tensor_bytes, token_tensor_bytes
from zerocalc.formulas.loss import logits_bytes
from zerocalc.formulas.megatron import weight_gradient_bytes
from zerocalc.formulas.registry import apply
from zerocalc.frameworks.activations import activation_terms_of, estimate_activations
from zerocalc.frameworks.megatron.placement import in_flight, model_chunks
from zerocalc.frameworks.megatron.settings import sequence_parallel
from zerocalc.frameworks.terms import FORWARD_BACKWARD, Plan, Term
from zerocalc.units import ceil_div, dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from fractions import Fraction

    from zerocalc.activations.estimate import ActivationEstimate
    from zerocalc.rank import RankView

MOMENTS = {
    "loss": "while the loss is computed",
    "output_layer": "in the output layer's backward",
    "last_layer": "in the last layer's backward",
}


def activation_plan(view: RankView, settings: Mapping[str, Any], answer: Plan) -> list[Term]:
    """The terms of the heaviest moment of the turn; none when batch or shape are not known."""
    own = {
        "autocast": False, "activations": "megatron", "loss": "vocab-parallel", "loss_chunk_tokens": None,
        "activation_device": "cuda", "cpu_checkpointing": False,
        "partition_activations": settings["distribute_saved_activations"],
    }  # fmt: skip
    chunks = model_chunks(view, settings)
    moe = sum(u.count for u in view.layout.units if u.is_layer and any(t.kind == "router" for t in u.tensors))
    estimate = estimate_activations(
        view,
        own,
        sequence_parallel=sequence_parallel(view.job, settings),
        checkpointing=settings["recompute_granularity"] or view.job.workload.checkpointing,
        num_layers=view.layout.num_layers // chunks,
        num_moe_layers=moe // chunks,
        in_flight=in_flight(view, chunks),
    )
    if estimate is None:
        return []
    moments = _moments(view, settings, own, estimate)
    heaviest = max(moments, key=lambda name: sum(term.bytes for term in moments[name]))
    answer.assumptions.append(f"the turn's peak is {MOMENTS[heaviest]}")
    answer.assumptions.append(
        f"activations of TransformerEngine's fused layers, {view.job.workload.attention} attention, "
        f"{estimate.in_flight} {'model chunk' if chunks > 1 else 'micro-batch'}(es) in flight"
    )
    return moments[heaviest]


def _moments(
    view: RankView, settings: Mapping[str, Any], own: Mapping[str, Any], estimate: ActivationEstimate
) -> dict[str, list[Term]]:
    """The terms that are live at each moment this stage goes through."""
    layers = replace(estimate, loss=())
    again = activation_terms_of(layers, own, {"recompute": FORWARD_BACKWARD})
    moments = {"last_layer": [*again, *_last_layer(view, settings)]}
    if view.is_last_stage:
        held = list(activation_terms_of(layers, own, {"held": FORWARD_BACKWARD}))
        moments["loss"] = [*held, *_loss(view, settings)]
        moments["output_layer"] = [*held, *_output_layer(view, settings)]
    return moments


def _sizes(view: RankView, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers that the moments' own tensors depend on."""
    work, parallelism, model = view.job.workload, view.job.parallelism, view.job.model.architecture
    assert work.micro_batch is not None
    assert work.seq_len is not None
    assert model is not None
    return {
        "dims": model.dimensions,
        "tokens": work.micro_batch * ceil_div(work.seq_len, parallelism.cp),
        "element": dtype_bytes(view.job.precision.param_dtype),
        "tp": parallelism.tp,
        "sp": parallelism.tp if sequence_parallel(view.job, settings) else 1,
    }


def _logits(name: str, sizes: Mapping[str, Any], bytes_per_element: int | Fraction) -> Term:
    amount = apply(
        logits_bytes,
        tokens=sizes["tokens"],
        vocab_size=sizes["dims"].vocab_size,
        bytes_per_element=bytes_per_element,
        tensor_parallel=sizes["tp"],
    )
    return Term(name=name, amount=amount, phases=(FORWARD_BACKWARD,))


def _hidden(name: str, sizes: Mapping[str, Any], sequence_parts: int) -> Term:
    amount = apply(
        token_tensor_bytes,
        tokens=sizes["tokens"],
        width=sizes["dims"].hidden_size,
        bytes_per_element=sizes["element"],
        sequence_parallel=sequence_parts,
    )
    return Term(name=name, amount=amount, phases=(FORWARD_BACKWARD,))


def _loss(view: RankView, settings: Mapping[str, Any]) -> Iterator[Term]:
    """Logits: the 16-bit copy, or its gradient, beside the fp32 softmax that a fused TransformerEngine loss avoids."""
    sizes = _sizes(view, settings)
    yield _logits("logits", sizes, sizes["element"])
    in_place = settings["cross_entropy_loss_fusion"] and settings["cross_entropy_fusion_impl"] == "te"
    if not in_place and sizes["element"] < dtype_bytes("fp32"):
        yield _logits("logits_softmax", sizes, dtype_bytes("fp32"))


def _output_layer(view: RankView, settings: Mapping[str, Any]) -> Iterator[Term]:
    """The logits' gradient, the input gathered again where the sequence was split, its gradient, and the weight's."""
    sizes = _sizes(view, settings)
    yield _logits("logits_gradient", sizes, sizes["element"])
    if sizes["sp"] > 1:
        yield _hidden("gathered_output_layer_input", sizes, 1)
    yield _hidden("output_layer_input_gradient", sizes, 1)
    if not settings["gradient_accumulation_fusion"]:
        amount = apply(
            weight_gradient_bytes,
            rows=ceil_div(sizes["dims"].vocab_size, sizes["tp"]),
            columns=sizes["dims"].hidden_size,
            element_bytes=sizes["element"],
        )
        yield Term(name="output_layer_weight_gradient", amount=amount, phases=(FORWARD_BACKWARD,))


def _last_layer(view: RankView, settings: Mapping[str, Any]) -> Iterator[Term]:
    """The gradient of what the MLP's first matrix gave, in place of the product that its second one has consumed."""
    sizes = _sizes(view, settings)
    dims = sizes["dims"]
    moe = any(t.kind == "router" for unit in view.layout.units for t in unit.tensors)
    width = max(
        dims.ffn_size * (not moe or dims.num_moe_layers < dims.num_layers),
        dims.experts_per_token * dims.moe_ffn_size,
    )
    amount = apply(
        split_tensor_bytes,
        tokens=sizes["tokens"],
        width=width * (2 if dims.gated_mlp else 1),
        bytes_per_element=sizes["element"],
        tensor_parallel=sizes["tp"],
    )
    yield Term(name="mlp_gradient", amount=amount, phases=(FORWARD_BACKWARD,))
    yield _hidden("layer_output_gradient", sizes, sizes["sp"])
