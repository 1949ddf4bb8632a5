"""What DeepSpeed's own estimators print: estimate_zero2_model_states_mem_needs and its ZeRO-3 sibling.

They count model states only, in units of 2**30 that they call GB. Users quote them, so they are reproduced to the
digit, by version; what DeepSpeed really holds is framework `deepspeed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.formulas.deepspeed import (
    estimator_host_bytes,
    estimator_layer_bytes,
    estimator_share_bytes,
    estimator_whole_bytes,
)
from zerocalc.formulas.registry import Applied, apply
from zerocalc.frameworks.settings import Setting, resolve_settings
from zerocalc.frameworks.terms import ALWAYS, Plan, Term
from zerocalc.strategies import State
from zerocalc.units import parse_ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocalc.rank import RankView

STRATEGIES = frozenset({"zero2", "zero3"})
_STAGE_3 = frozenset({"zero3"})

SETTINGS = (
    Setting(
        name="version", kind="str", default="since-2024-06", choices=("before-2024-06", "since-2024-06"),
        strategies=frozenset({"zero2"}),
        doc="2Ψ + 18Ψ/N at stage 2 since 0.14.3, 4Ψ + 16Ψ/N before; the documentation still prints the older figures",
        changed="0.14.3 (June 2024)",
    ),
    Setting(
        name="zero_init", kind="bool", default=True, strategies=_STAGE_3,
        doc="whether the model is built under zero.Init, so that no process loads it whole",
    ),
    Setting(
        name="additional_buffer_factor", kind="str", default="1.5", doc="what the host's figure is multiplied with",
    ),
    Setting(
        name="largest_layer_params", kind="int", default=None, strategies=_STAGE_3,
        doc="parameters of the module that owns most (default: read from the model)",
    ),
)  # fmt: skip

States = tuple[tuple[State, int], ...]

WHOLE: dict[str, States] = {
    "before-2024-06": (("params", 2), ("grads", 2)),
    "since-2024-06": (("params", 2),),
}
"""Bytes per parameter that the ZeRO-2 estimator counts whole on every GPU."""
SHARED: dict[str, States] = {
    "before-2024-06": (("optimizer_states", 16),),
    "since-2024-06": (("grads", 6), ("optimizer_states", 12)),
}
"""Bytes per parameter that it divides by the GPUs: gradients in 16 and in 32 bits, master weights, moments."""
SHARED_BY_STAGE_3: dict[tuple[bool, bool], States] = {
    (False, False): (("params", 2), ("grads", 4), ("optimizer_states", 12)),
    (True, False): (("params", 2),),
    (True, True): (),
}
"""The same for ZeRO-3, by whether the optimizer and the parameters are offloaded."""
LARGEST_LAYER = 4
"""Bytes per parameter of the largest module: its parameters and gradients in 16 bits."""


def plan(view: RankView) -> Plan:
    """What the estimator prints for a GPU, split into the states that its source names, and for the host."""
    settings, warnings = resolve_settings(
        "deepspeed-estimator", SETTINGS, view.job.settings, view.strategy.name
    )
    answer = Plan(warnings=warnings)
    answer.terms += _stage3(view, settings) if view.strategy.name == "zero3" else _stage2(view, settings)
    answer.terms.append(
        Term(name="host_states", state="params", tier="cpu", phases=ALWAYS, amount=_host(view, settings))
    )
    _say(view, settings, answer)
    return answer


def _whole(view: RankView, states: States) -> Iterator[Term]:
    for state, width in states:
        amount = apply(estimator_whole_bytes, num_params=view.job.model.num_params, bytes_per_param=width)
        yield Term(name=state, state=state, phases=ALWAYS, amount=amount)


def _shared(view: RankView, states: States) -> Iterator[Term]:
    """States divided by all GPUs; what DeepSpeed rounds once is rounded in steps that add up to it."""
    counted, gpus = 0, view.job.parallelism.world_size
    for state, width in states:
        amount = apply(
            estimator_share_bytes,
            num_params=view.job.model.num_params, counted_bytes=counted, bytes_per_param=width, gpus=gpus,
        )  # fmt: skip
        counted += width
        yield Term(name=state, state=state, phases=ALWAYS, amount=amount, sharded_over=gpus, falls=True)


def _stage2(view: RankView, settings: dict[str, Any]) -> Iterator[Term]:
    if _offloads(view)[0]:
        yield from _whole(view, (("params", 2),))
        return
    yield from _whole(view, WHOLE[settings["version"]])
    yield from _shared(view, SHARED[settings["version"]])


def _stage3(view: RankView, settings: dict[str, Any]) -> Iterator[Term]:
    amount = apply(
        estimator_layer_bytes, largest_layer_params=_largest(view, settings), bytes_per_param=LARGEST_LAYER
    )
    yield Term(name="largest_layer", state="params", phases=ALWAYS, amount=amount)
    yield from _shared(view, SHARED_BY_STAGE_3[_offloads(view)])


def _offloads(view: RankView) -> tuple[bool, bool]:
    """Whether the optimizer, and with it the parameters, are offloaded; the estimator knows no NVMe."""
    optimizer = view.job.offload.optimizer != "none"
    return optimizer, optimizer and view.job.offload.params != "none"


def _largest(view: RankView, settings: dict[str, Any]) -> int:
    given = settings["largest_layer_params"]
    if given is not None:
        return int(given)
    layout = view.job.model.layout
    return 0 if layout.anonymous else layout.largest_module[1]


def _host(view: RankView, settings: dict[str, Any]) -> Applied:
    """Loading the model in fp32 in every process, or the offloaded states, whichever is more."""
    parallelism, total = view.job.parallelism, view.job.model.num_params
    per_node = min(parallelism.gpus_per_node or parallelism.world_size, parallelism.world_size)
    nodes = parallelism.world_size // per_node
    optimizer, params = _offloads(view)
    loaded, processes, steady = total, per_node, 0
    if view.strategy.name == "zero2":
        # The ZeRO-2 estimator does not divide by nodes, and loads in every process of the job under offload.
        processes, steady, nodes = (parallelism.world_size, 16, 1) if optimizer else (per_node, 0, 1)
    else:
        steady = (18 if params else 16) if optimizer else 0
        if settings["zero_init"]:
            loaded = 0 if optimizer else _largest(view, settings)
    return apply(
        estimator_host_bytes,
        loaded_params=loaded,
        processes=processes,
        num_params=total,
        steady_bytes=steady,
        nodes=nodes,
        buffer_factor=parse_ratio(
            settings["additional_buffer_factor"], name="--set additional_buffer_factor"
        ),
        ranks_on_node=per_node,
    )


def _say(view: RankView, settings: dict[str, Any], answer: Plan) -> None:
    parallelism = view.job.parallelism
    answer.assumptions.append(
        "DeepSpeed's estimator prints GiB and calls them GB; it counts no activations and no buckets"
    )
    if parallelism.gpus_per_node is None:
        answer.assumptions.append(f"all {parallelism.world_size} GPUs are taken to share one node")
    if view.strategy.name == "zero3" and not _largest(view, settings):
        answer.excluded.append(
            "the largest layer, gathered (needs tensor shapes, or --set largest_layer_params=N)"
        )
