"""Measured models as layouts, and measured runs as jobs."""

from __future__ import annotations

import re
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from zerocalc.layout import Architecture, Buffer, Dimensions, Kind, Layout, Tensor, Tie, Unit
from zerocalc.presets import load_optimizer, load_precision, optimizer_bytes_per_param
from zerocalc.specs.job import Job, ModelSpec, OptimizerSpec, Parallelism, Precision, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

_LAYER = re.compile(r"^(?P<stack>.*?)\.?(?P<index>\d+)\.(?P<name>.*)$")
_KINDS: tuple[tuple[str, Kind], ...] = (
    ("embed_tokens", "embedding"), ("wte", "embedding"), ("wpe", "position"), ("lm_head", "head"),
    ("experts", "expert"), ("norm", "norm"), ("ln_", "norm"), ("bias", "bias"),
)  # fmt: skip


def layout_from_param_shapes(
    shapes: Sequence[Sequence[Any]], *, tied: bool = False, buffers: tuple[Buffer, ...] = ()
) -> Layout:
    """The layout of named shapes in registration order: numbered blocks become layers, equal neighbours one unit."""
    blocks: list[tuple[str, int | None, list[Tensor]]] = []
    for name, shape, _ in shapes:
        found = _LAYER.match(name)
        key = (found["stack"], int(found["index"])) if found else ("", None)
        tensor = Tensor(found["name"] if found else name, tuple(shape), _kind(name))
        if blocks and (blocks[-1][0], blocks[-1][1]) == key:
            blocks[-1][2].append(tensor)
        else:
            blocks.append((*key, [tensor]))
    units = []
    for (stack, is_layer, tensors), run in groupby(
        blocks, key=lambda b: (b[0], b[1] is not None, tuple(b[2]))
    ):
        same = list(run)
        units.append(
            Unit(stack or tensors[0].name, tensors, count=len(same), first=same[0][1] or 0, is_layer=is_layer)
        )
    ties = (Tie("lm_head.weight", shapes[0][0]),) if tied else ()
    return Layout(tuple(units), ties, buffers)


def _kind(name: str) -> Kind:
    return next((kind for part, kind in _KINDS if part in name), "matrix")


def rotary_buffers(config: Mapping[str, Any]) -> tuple[Buffer, ...]:
    """The two tables of inverse frequencies that Llama and Mixtral hold."""
    if "num_attention_heads" not in config:
        return ()
    half = config["hidden_size"] // config["num_attention_heads"] // 2
    return (Buffer("inv_freq", (half,)), Buffer("original_inv_freq", (half,)))


@cache
def precision_and_optimizer(name: str) -> tuple[Precision, OptimizerSpec]:
    """The element types of a named precision, with AdamW."""
    row, adamw = load_precision(name), load_optimizer("adamw")
    precision = Precision(
        name=row.id, param_dtype=row.param_dtype, grad_dtype=row.grad_dtype, reduce_dtype=row.reduce_dtype,
        frozen_dtype=row.param_dtype, master_dtype=row.master_dtype, moment_dtype=row.moment_dtype,
    )  # fmt: skip
    k: Fraction = optimizer_bytes_per_param(adamw, row)
    return precision, OptimizerSpec(name="adamw", bytes_per_param=k, row=adamw, precision_row=row)


def job_of(
    layout: Layout,
    *,
    world: int,
    strategy: str,
    framework: str,
    settings: Mapping[str, Any],
    precision: str = "fp32",
    grad_accum: int = 1,
    group_size: int | None = None,
    dimensions: Dimensions | None = None,
    workload: Mapping[str, Any] | None = None,
) -> Job:
    """A job on a measured layout."""
    types, optimizer = precision_and_optimizer(precision)
    return Job(
        model=ModelSpec(
            num_params=layout.num_params, architecture=Architecture("measured", layout, dimensions)
        ),
        precision=types,
        optimizer=optimizer,
        parallelism=Parallelism(world_size=world, sharding_group_size=group_size),
        strategy=strategy,
        framework=framework,
        settings=dict(settings),
        workload=Workload(grad_accum=grad_accum, **(workload or {})),
    )
