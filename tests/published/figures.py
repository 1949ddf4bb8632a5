"""Which figure of an estimate a row's quantity, phase and scope mean."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import zerocalc
from tests.published.jobs import NotExpressibleError, job_of
from zerocalc.evaluate import evaluate
from zerocalc.formulas.loss import logits_bytes
from zerocalc.presets import load_reserve

if TYPE_CHECKING:
    from zerocalc.results import StrategyResult, TierMemory

MANY = 10**12
"""Parameters of the large model whose bytes per parameter are asked for."""

PHASES = {
    None: None,
    "steady": None,
    "between steps": "at_rest",
    "after step": "at_rest",
    "load": "initialization",
    "init": "initialization",
    "load + steady": None,
    "optimizer state init": "initialization",
    "optimizer init": "initialization",
    "first optimizer step": "optimizer_step",
    "optimizer step": "optimizer_step",
    "gradient accumulation": None,
    "backward": None,
}
"""A row's moment as a phase; none means the peak, or what is asked whatever the phase."""


def terms_where(result: StrategyResult, **wanted: Any) -> int:
    """Bytes of the GPU terms that match."""
    return sum(
        term.bytes
        for term in result.memory.gpu.terms
        if all(
            getattr(term, key) in (value if isinstance(value, tuple) else (value,))
            for key, value in wanted.items()
        )
    )


def _moment(result: StrategyResult, row: dict[str, Any]) -> int:
    """One of Adam's two fp32 moments, or the master weights: a third of K = 12."""
    return terms_where(result, state="optimizer_states") * 4 // int(row.get("k", 12))


SCOPES: dict[str | None, Callable[[StrategyResult, dict[str, Any]], int]] = {
    "states": lambda result, _: result.memory.gpu.model_states_bytes,
    "states of the whole model": lambda result, _: result.memory.gpu.model_states_bytes,
    "weights": lambda result, _: terms_where(result, state="params"),
    "frozen weights": lambda result, _: terms_where(result, state="params"),
    "gradients": lambda result, _: (
        terms_where(result, name="unsharded_grads") or terms_where(result, state="grads")
    ),
    "first moment": _moment,
    "second moment": _moment,
    "master weights": _moment,
    "activations": lambda result, _: activations(result),
}


def activations(result: StrategyResult) -> int:
    """What the layers and the loss keep, without states."""
    names = ("activations", "activation_checkpoints", "recomputed_layer", "outside_layers", "logits")
    return terms_where(result, name=names)


def at_rest(row: dict[str, Any]) -> int:
    """Bytes held between steps, or a part of them."""
    scope = row["scope"]
    if scope is not None and scope.startswith("per_parameter"):
        model = row["job"]["model"] | {"num_params": MANY}
        result = _result(job_of(row, model=model))
        return result.memory.gpu.model_states_bytes // MANY
    result = _result(job_of(row))
    if scope is None:
        return result.memory.gpu.phases["at_rest"]
    if scope not in SCOPES:
        raise NotExpressibleError(f"scope {scope}")
    return SCOPES[scope](result, row)


def _peak_of(row: dict[str, Any], result: StrategyResult) -> int:
    """The peak: what is allocated, or where the source measured that, what the allocator has reserved.

    It reserves more than is live by its fragmentation, as the presets' reserves count it. And gradients that are freed
    between steps leave small free blocks among the states that were made beside them, of no use to an activation.
    """
    gpu = result.memory.gpu
    if row["level"] != "reserved":
        return gpu.peak_bytes
    left = sum(
        term.bytes for term in gpu.terms if term.state == "grads" and gpu.peak_phase not in term.phases
    )
    return math.ceil((gpu.peak_bytes + left) * load_reserve().fragmentation.exact)


def peak(row: dict[str, Any]) -> int:
    """Bytes at the peak, or in the phase that the row names."""
    result = _result(job_of(row))
    if row["scope"] in SCOPES:
        return SCOPES[row["scope"]](result, row)
    phase = PHASES.get(row["phase"], "?")
    if phase is None:
        return _peak_of(row, result)
    if phase not in result.memory.gpu.phases:
        raise NotExpressibleError(f"phase {row['phase']}")
    return result.memory.gpu.phases[phase]


def delta(row: dict[str, Any]) -> int:
    """What the job holds more than the same job with `minus` applied."""
    if row["minus"] is None:
        return SCOPES[row["scope"]](_result(job_of(row)), row) if row["scope"] in SCOPES else peak(row)
    return _peak_of(row, _result(job_of(row))) - _peak_of(row, _result(job_of(row, **row["minus"])))


def _on_node(row: dict[str, Any], memory: TierMemory) -> int:
    """Bytes of a tier on one node, all of the job's GPUs being on it where the row does not say how many are."""
    if memory.bytes_per_node is not None:
        return memory.bytes_per_node
    return memory.bytes_per_rank * (row["job"]["gpus_per_node"] or row["job"]["gpus"] or 1)


def host_bytes(row: dict[str, Any]) -> int:
    """Bytes of host memory per node."""
    return _on_node(row, _result(job_of(row)).memory.cpu)


VERDICTS: dict[str, Callable[[dict[str, Any], StrategyResult], bool | None]] = {
    "gpu": lambda _, result: result.fits,
    "host": lambda row, result: _within(_on_node(row, result.memory.cpu), row["job"].get("host_ram_bytes")),
    "nvme": lambda row, result: _within(_on_node(row, result.memory.nvme), row["job"].get("nvme_bytes")),
}
"""Whether one memory suffices; none where its capacity is not known."""


def _within(used: int, capacity: int | None) -> bool | None:
    return None if capacity is None else used <= capacity


def fits(row: dict[str, Any]) -> bool:
    """Whether the job fits the memories that the scope names."""
    result = _result(job_of(row))
    memories = (row["scope"] or "gpu").split(" + ")
    found = [VERDICTS.get(memory, VERDICTS["gpu"])(row, result) for memory in memories]
    known = [verdict for verdict in found if verdict is not None]
    if not known:
        raise NotExpressibleError("no capacity")
    return all(known)


def _buffer_of_all_params(row: dict[str, Any]) -> int:
    job = row["job"]
    settings = {"constant_buffer": job["settings"]["buffer_elements"]}
    made = zerocalc.job(job["model"]["num_params"], dp=1, settings=settings)
    return terms_where(_result(made), name="constant_buffer")


def _largest_operator(row: dict[str, Any]) -> int:
    job = job_of(row, strategy="zero3", gpus=2, dp=2)
    job = job.model_copy(update={"settings": {"working_memory": "operator"}})
    return terms_where(_result(job), name="gathered_operator")


def _logits(row: dict[str, Any], width: int) -> int:
    job = row["job"]
    tokens = (job["micro_batch"] or 1) * job["seq_len"]
    vocab = job["model"]["config"]["vocab_size"]
    return logits_bytes(tokens=tokens, vocab_size=vocab, bytes_per_element=width, tensor_parallel=1)


def _named(*names: str, **changes: Any) -> Callable[[dict[str, Any]], int]:
    return lambda row: terms_where(_result(job_of(row, **changes)), name=names)


def _stated(state: str, **changes: Any) -> Callable[[dict[str, Any]], int]:
    return lambda row: terms_where(_result(job_of(row, **changes)), state=state)


_WHOLE = {"strategy": "ddp", "offload_optimizer": "none", "offload_params": "none"}
BUFFERS: tuple[tuple[str, Callable[[dict[str, Any]], int]], ...] = (
    ("fused fp32 buffer", _buffer_of_all_params),
    ("largest linear layer", _largest_operator),
    ("fp32 logits", lambda row: _logits(row, 4)),
    ("(bf16|fp16|16-bit) logits", lambda row: _logits(row, 2)),
    ("fp32 partition|fp32 master", _named("master_weights")),
    ("(flattened|whole|full).*gradients|gradients.*whole", _stated("grads", **_WHOLE)),
    ("gradient", _stated("grads")),
    ("first moment|second moment", _named("exp_avg")),
    ("bucket", _named("reduce_bucket", "ipg_buckets", "gradient_buckets", "buckets")),
    ("reduce-scatter|reduce scatter", _named("reduce_scatter_input")),
    ("unsharded|gathered", _named("unsharded_params", "gathered_params", "gathered_unit")),
    ("weights|parameters", _stated("params")),
)
"""What a scope's words mean, the first that matches."""


def single_buffer(row: dict[str, Any]) -> int:
    """Bytes of one tensor."""
    for words, figure in BUFFERS:
        if re.search(words, row["scope"] or ""):
            return figure(row)
    raise NotExpressibleError(f"scope {row['scope']}")


def collective_bytes(row: dict[str, Any]) -> int:
    """Bytes of one tensor on the wire."""
    config, settings = row["job"]["model"]["config"], row["job"]["settings"]
    if settings.get("tensor") != "word embedding":
        raise NotExpressibleError(f"tensor {settings.get('tensor')}")
    shape = {"model_type": "gpt2", "num_hidden_layers": 1, "num_attention_heads": 16}
    made = job_of(
        row,
        model={"name": None, "num_params": None, "config": shape | config},
        framework="paper",
        settings={},
    )
    embedding = next(t for t, _ in made.model.layout.grouped() if t.kind == "embedding")
    return embedding.numel * settings["dtype_bytes"]


def max_micro_batch(row: dict[str, Any]) -> int:
    """The largest micro-batch that fits."""
    job = job_of(row, micro_batch=row["job"]["micro_batch"] or 1)
    (answer,) = zerocalc.solve(job, "micro-batch", strategies=[job.strategy]).answers
    if answer.value is None:
        return 0
    return int(answer.value)


FIGURES: dict[str, Callable[[dict[str, Any]], int | bool]] = {
    "at_rest": at_rest,
    "peak": peak,
    "delta": delta,
    "host_bytes": host_bytes,
    "fits": fits,
    "single_buffer": single_buffer,
    "collective_bytes": collective_bytes,
    "max_micro_batch": max_micro_batch,
}


def predicted(row: dict[str, Any]) -> int | bool:
    """Our answer to a row. Raises NotExpressibleError, or what zerocalc raises."""
    return FIGURES[row["quantity"]](row)


def _result(job: zerocalc.Job) -> StrategyResult:
    return evaluate(job)[0]
