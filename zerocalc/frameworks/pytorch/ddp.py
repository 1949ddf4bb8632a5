"""DistributedDataParallel: whole states on every rank, and the reducer's buckets, a second copy of the gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.formulas.fsdp import tensor_bytes
from zerocalc.formulas.registry import apply_grouped
from zerocalc.frameworks.pytorch.messages import Call, Wire, collectives
from zerocalc.frameworks.pytorch.model import (
    Setup,
    groups_of,
    own_parts,
    setup_of,
    shapes_known,
    trained_members,
    used_order,
)
from zerocalc.frameworks.pytorch.moments import (
    FORWARD_END,
    LAST_LAYER_BACKWARD,
    LOSS_BACKWARD,
    Held,
    spread,
    terms_of,
)
from zerocalc.frameworks.pytorch.states import (
    Cut,
    Holding,
    buffer_dtype,
    buffers_terms,
    grads_phases,
    grads_term,
    optimizer_terms,
    params_term,
    say_offload,
    whole,
)
from zerocalc.frameworks.pytorch.turn import held, say_activations, turn_of
from zerocalc.frameworks.pytorch.unused import marks_messages, marks_terms
from zerocalc.frameworks.terms import ALWAYS, BACKWARD_END, FORWARD_BACKWARD, Collective, Plan, Term
from zerocalc.layout import anonymous_layout
from zerocalc.units import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.frameworks.pytorch.model import Settings
    from zerocalc.layout import Tensor
    from zerocalc.rank import Part, RankView

MIB = 2**20
FIRST_BUCKET_MIB = 1
BUCKET_MIB = 25
HOOK_DTYPES = {"bf16_compress": "bf16", "fp16_compress": "fp16"}


def plan(view: RankView, settings: Settings) -> Plan:
    """Whole states, and one all-reduce per bucket in every synchronised backward."""
    setup = setup_of(view, settings, casts=False)
    answer = Plan()
    for part in view.parts:
        local = part.layout if part.shapes_known else anonymous_layout(part.num_params)
        add_states(setup, answer, Holding(part, whole(part), whole(part), local, num_tensors(part)))
    finish(setup, answer)
    return answer


def add_states(setup: Setup, answer: Plan, holding: Holding) -> None:
    """Parameters, and for trained parts gradients, buckets and optimizer states."""
    answer.terms.append(params_term(holding, setup.types))
    if holding.part.trainable:
        answer.terms += gradient_terms(setup, holding)
        answer.terms += optimizer_terms(setup, holding)


def finish(setup: Setup, answer: Plan) -> None:
    """Buffers, activations, messages and what was assumed."""
    answer.terms += buffers_terms(setup)
    if is_wrapped(setup):
        answer.terms += marks_terms(setup)
    answer.terms = spread(answer.terms, turn_terms(setup))
    answer.collectives += gradient_messages(setup)
    say(setup, answer)


def num_tensors(part: Part) -> int:
    """Tensors of a part."""
    return sum(count for _, count in part.layout.grouped())


def is_wrapped(setup: Setup) -> bool:
    """Whether the model is wrapped in DistributedDataParallel: asked for, or by default where there are ranks."""
    asked = setup.settings["ddp_wrapper"]
    return bool(setup.view.job.parallelism.shard_size > 1 if asked is None else asked)


def gradient_terms(setup: Setup, holding: Holding) -> Iterator[Term]:
    """Gradients and the reducer's buckets: one and the same with `gradient_as_bucket_view`, else two copies.

    A model on one rank is not wrapped, so it has no buckets. Inside `no_sync` gradients that were freed come back beside
    the buckets, and become views of them again in the backward that synchronises.
    """
    if not is_wrapped(setup):
        yield grads_term(holding, setup.types, grads_phases(setup, reduced_in_turn=True))
        return
    if setup.settings["gradient_as_bucket_view"]:
        yield grads_term(holding, setup.types, ALWAYS)
        if setup.settings["no_sync"] and setup.settings["set_to_none"] and setup.accum > 1:
            yield _bucket_sized("unsynchronised_grads", setup, holding, (FORWARD_BACKWARD,))
        return
    yield grads_term(holding, setup.types, grads_phases(setup, reduced_in_turn=True))
    yield _bucket_sized("gradient_buckets", setup, holding, ALWAYS)


def _bucket_sized(name: str, setup: Setup, holding: Holding, phases: tuple[str, ...]) -> Term:
    amount = holding.params.bytes_of(setup.types.resting_bytes(holding.part))
    return Term(name=name, part=holding.part.name, phases=phases, amount=amount)


def turn_terms(setup: Setup) -> list[Term]:
    """Activations and gradients at the moments of forward and backward."""
    turn = turn_of(setup)
    if turn is None:
        return []
    moments = {
        FORWARD_END: held("activations", turn.at_loss(FORWARD_END)),
        LOSS_BACKWARD: held("activations", turn.at_loss(LOSS_BACKWARD)),
        FORWARD_BACKWARD: [
            *held("activations", turn.saved(without=1) + turn.early()),
            *held("layer_backward", turn.checkpoint() + turn.at_mlp_norm()),
            *grads_so_far(setup, layers=1),
        ],
        LAST_LAYER_BACKWARD: [
            *held("activations", turn.early()),
            *held("layer_backward", turn.checkpoint() + turn.at_first_norm()),
            *grads_so_far(setup, layers=setup.view.layout.num_layers),
        ],
        BACKWARD_END: [*tied_gradients(setup), *compressed_bucket(setup)],
    }
    return terms_of(moments)


def grads_so_far(setup: Setup, *, layers: int) -> list[Held]:
    """Gradients of everything after the embedding, and of the last `layers` layers, where they are not kept anyway."""
    settings = setup.settings
    in_buckets = settings["gradient_as_bucket_view"] and is_wrapped(setup)
    if in_buckets or not settings["set_to_none"] or setup.accum > 1:
        return []
    groups = [
        (min(count, layers) if is_layer else 1, _whole(setup, tensor))
        for tensor, count, is_layer in _trained(setup)
        if is_layer or tensor.name in _ties(setup) or tensor.kind not in {"embedding", "position"}
    ]
    return [Held("grads_so_far", apply_grouped(tensor_bytes, groups))] if groups else []


def tied_gradients(setup: Setup) -> list[Held]:
    """A tied matrix has two gradients before they are added; one more arrives where gradients live in buckets."""
    in_buckets = int(setup.settings["gradient_as_bucket_view"] and is_wrapped(setup))
    groups = [
        (2 * (tensor.name in _ties(setup)) + in_buckets, _whole(setup, tensor))
        for tensor, _, _ in _trained(setup)
        if tensor.kind == "embedding"
    ]
    return [Held("embedding_gradients", apply_grouped(tensor_bytes, groups))] if groups else []


def _ties(setup: Setup) -> frozenset[str]:
    return frozenset(tie.target for tie in setup.view.layout.ties)


def _whole(setup: Setup, tensor: Tensor) -> dict[str, Any]:
    return {"num_params": tensor.numel, "element_bytes": dtype_bytes(setup.types.storage)}


def _trained(setup: Setup) -> Iterator[tuple[Tensor, int, bool]]:
    """Every distinct trained tensor, how often it occurs, and whether in a layer."""
    for group in groups_of(setup.view, "layers"):
        for block in group.blocks:
            for member in block.trained:
                yield member.tensor, block.count, block.role == "layer"


def compressed_bucket(setup: Setup) -> list[Held]:
    """A compressing hook sends a copy of the bucket."""
    dtype = HOOK_DTYPES.get(setup.settings["ddp_comm_hook"])
    sizes = bucket_sizes(setup)
    if dtype is None or not sizes:
        return []
    inputs = {"num_params": max(sizes), "element_bytes": dtype_bytes(dtype)}
    return [Held("compressed_bucket", apply_grouped(tensor_bytes, [(1, inputs)]))]


def gradient_messages(setup: Setup) -> Iterator[Collective]:
    """Buffers before every synchronised forward, buckets in its backward."""
    view, settings, storage = setup.view, setup.settings, setup.types.storage
    passes = 1 if settings["no_sync"] else setup.accum
    part = own_parts(view)[0]
    ranks = int(part.shard_ranks * part.replicas)
    reduced = HOOK_DTYPES.get(settings["ddp_comm_hook"], storage)
    buffers = buffer_calls(setup) if settings["broadcast_buffers"] else {}
    sent = {Wire("broadcast", "buffers", dtype, "forward", ranks): calls for dtype, calls in buffers.items()}
    sent[Wire("all_reduce", "grads", reduced, "backward", ranks)] = bucket_calls(setup)
    yield from collectives(view, ((wire, calls, passes) for wire, calls in sent.items()))
    if is_wrapped(setup):
        yield from marks_messages(setup, ranks=ranks, passes=passes)


def buffer_calls(setup: Setup) -> dict[str, list[Call]]:
    """All buffers of one element type coalesced into one broadcast."""
    groups: dict[str, list[tuple[int, dict[str, int]]]] = {}
    for buffer in setup.view.layout.buffers:
        alike = groups.setdefault(buffer_dtype(buffer, setup.types), [])
        alike.append((buffer.count, {"num_params": buffer.numel}))
    return {dtype: [Call(1, Cut(tensor_bytes, tuple(alike)))] for dtype, alike in groups.items()}


def bucket_calls(setup: Setup) -> list[Call]:
    """One call per bucket of gradients."""
    return [Call(1, Cut(tensor_bytes, ((1, {"num_params": size}),))) for size in bucket_sizes(setup)]


def bucket_sizes(setup: Setup) -> list[int]:
    """Elements of each bucket: tensors fill it as their gradients arrive, until it has reached its capacity."""
    cap, element = setup.settings["bucket_cap_mb"], dtype_bytes(setup.types.storage)
    limits = [cap * MIB] if cap else [FIRST_BUCKET_MIB * MIB, BUCKET_MIB * MIB]
    sizes: list[int] = []
    filling = 0
    for numel in arrivals(setup.view, in_order_of_use=not setup.settings["find_unused_parameters"]):
        filling += numel
        if filling * element >= limits[min(len(sizes), len(limits) - 1)]:
            sizes.append(filling)
            filling = 0
    return [*sizes, filling] if filling else sizes


def arrivals(view: RankView, *, in_order_of_use: bool) -> Iterator[int]:
    """Elements of every gradient, last used first."""
    adapted = any(part.name == "adapter" for part in own_parts(view))
    if adapted or not in_order_of_use or not shapes_known(view):
        yield from (member.tensor.numel for member in reversed(list(trained_members(view))))
        return
    trained = {t.part for part in own_parts(view) if part.trainable for t, _ in part.layout.grouped()}
    for unit in reversed(view.layout.units):
        used = used_order(unit.tensors) if unit.is_layer else unit.tensors
        sizes = [tensor.numel for tensor in reversed(used) if tensor.part in trained]
        for _ in range(unit.count):
            yield from sizes


def say(setup: Setup, answer: Plan) -> None:
    """What was assumed."""
    types = setup.types
    say_activations(setup, answer)
    say_offload(setup.view, answer, possible=False)
    if types.param_dtype not in {"none", types.storage}:
        answer.assumptions.append(
            f"DDP: parameters, gradients and optimizer states rest in {types.storage}; "
            f"{types.param_dtype} only inside autocast"
        )
    if not shapes_known(setup.view):
        answer.excluded.append("the number of gradient buckets (needs tensor shapes, not just a count)")
