"""Element types and K, the bytes of optimizer states per parameter, from named rows and single overrides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocalc.specs.job import OptimizerSpec, Precision
from zerocalc.specs.types import MAX_BYTES_PER_PARAM
from zerocalc.units import dtype_bytes, parse_dtype, parse_ratio

if TYPE_CHECKING:
    from zerocalc.jobs.givens import Givens
    from zerocalc.presets import Gpu


def resolve_precision(g: Givens, gpu: Gpu | None) -> tuple[Precision, OptimizerSpec]:
    """Element types and K, from named rows; single types and K override them. Without bf16 the usual type is fp16."""
    from zerocalc.presets import load_optimizer, load_precision, optimizer_bytes_per_param

    without_bf16 = gpu.id if gpu is not None and gpu.half_dtype == "fp16" else None
    usual = "mixed-fp16" if without_bf16 else "mixed-bf16"
    why = f"default: {without_bf16} has no bf16" if without_bf16 else "default"
    row = load_precision(g.text("precision", usual) or "", directory=g.presets_dir)
    optimizer_row = load_optimizer(g.text("optimizer", "adamw") or "", directory=g.presets_dir)
    g.note("precision", "precision", default=why)
    g.note("optimizer", "optimizer")
    own = f"preset:{row.id}"
    dtypes = {"param_dtype": row.param_dtype, "grad_dtype": row.grad_dtype, "reduce_dtype": row.reduce_dtype}
    if "grad_dtype" in g and "reduce_dtype" not in g:
        dtypes["reduce_dtype"] = g.raw("grad_dtype")
    dtypes["frozen_dtype"] = dtypes["param_dtype"] if "param_dtype" not in g else g.raw("param_dtype")
    for word, usual_dtype in list(dtypes.items()):
        g.note(word, word, default=own)
        dtypes[word] = parse_dtype(g.text(word, usual_dtype) or "", name=g.where(word))
    if without_bf16 and dtypes["param_dtype"] == "bf16":
        g.warnings.append(f"{without_bf16} has no bf16; fp16 takes the same bytes (--precision mixed-fp16)")
    for preset in (row, optimizer_row):
        if preset.assumption:
            g.assumptions.append(preset.assumption)
    precision = Precision(
        name=row.id,
        master_dtype=row.master_dtype,
        moment_dtype=row.moment_dtype,
        extra_param_bytes=sum(dtype_bytes(copy.dtype) for copy in row.weight_copies),
        **dtypes,
    )
    if "k" in g:
        g.note("optimizer_bytes_per_param", "k")
        k = parse_ratio(str(g.raw("k")), name=g.where("k"), maximum=MAX_BYTES_PER_PARAM)
        return precision, OptimizerSpec(name=optimizer_row.id, bytes_per_param=k)
    g.origins["optimizer_bytes_per_param"] = f"preset:{optimizer_row.id} under preset:{row.id}"
    k = optimizer_bytes_per_param(optimizer_row, row)
    return precision, OptimizerSpec(
        name=optimizer_row.id, bytes_per_param=k, row=optimizer_row, precision_row=row
    )
