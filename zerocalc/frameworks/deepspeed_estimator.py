"""What DeepSpeed's own estimators print: estimate_zero2_model_states_mem_needs and its ZeRO-3 sibling.

They count model states only, in units of 2**30 that they call GB. Users quote them, so they are reproduced to the
digit, by version; what DeepSpeed really holds is framework `deepspeed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.formulas.deepspeed import (
    estimator_host_bytes,
    estimator_params_bytes,
    estimator_stage2_gpu_bytes,
    estimator_stage3_gpu_bytes,
)
from zerocalc.formulas.registry import Applied, apply
from zerocalc.frameworks.settings import Setting, resolve_settings
from zerocalc.frameworks.terms import ALWAYS, Plan, Term
from zerocalc.units import parse_ratio

if TYPE_CHECKING:
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

WHOLE_AND_SHARDED = {"before-2024-06": (4, 16), "since-2024-06": (2, 18)}
"""Bytes per parameter whole on every GPU, and divided by the GPUs, of the ZeRO-2 estimator."""


def plan(view: RankView) -> Plan:
    """One term per memory tier, as the estimator prints them."""
    settings, warnings = resolve_settings(
        "deepspeed-estimator", SETTINGS, view.job.settings, view.strategy.name
    )
    answer = Plan(warnings=warnings)
    stage3 = view.strategy.name == "zero3"
    gpu = _stage3_gpu(view, settings) if stage3 else _stage2_gpu(view, settings)
    answer.terms.append(_term("model_states", "gpu", gpu))
    answer.terms.append(_term("host_states", "cpu", _host(view, settings)))
    _say(view, settings, answer)
    return answer


def _term(name: str, tier: Any, amount: Applied) -> Term:
    return Term(name=name, state="params", part="dense", tier=tier, phases=ALWAYS, amount=amount, falls=True)


def _offloads(view: RankView) -> tuple[bool, bool]:
    """Whether the optimizer, and with it the parameters, are offloaded; the estimator knows no NVMe."""
    optimizer = view.job.offload.optimizer != "none"
    return optimizer, optimizer and view.job.offload.params != "none"


def _stage2_gpu(view: RankView, settings: dict[str, Any]) -> Applied:
    total, gpus = view.job.model.num_params, view.job.parallelism.world_size
    if _offloads(view)[0]:
        return apply(estimator_params_bytes, num_params=total, bytes_per_param=2)
    whole, sharded = WHOLE_AND_SHARDED[settings["version"]]
    return apply(
        estimator_stage2_gpu_bytes, num_params=total, whole_bytes=whole, sharded_bytes=sharded, gpus=gpus
    )


def _largest(view: RankView, settings: dict[str, Any]) -> int:
    given = settings["largest_layer_params"]
    if given is not None:
        return int(given)
    layout = view.job.model.layout
    return 0 if layout.anonymous else layout.largest_module[1]


def _stage3_gpu(view: RankView, settings: dict[str, Any]) -> Applied:
    optimizer, params = _offloads(view)
    sharded = 0 if params else 2 if optimizer else 18
    return apply(
        estimator_stage3_gpu_bytes,
        largest_layer_params=_largest(view, settings),
        num_params=view.job.model.num_params,
        sharded_bytes=sharded,
        gpus=view.job.parallelism.world_size,
    )


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
