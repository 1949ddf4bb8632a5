"""What each rank holds, what crosses the wire, and which ZeRO configuration fits.

    >>> import zerocalc
    >>> job = zerocalc.job("70b", dp=64, gpu="80GB")
    >>> [(r.strategy, r.memory.gpu.model_states_bytes, r.fits) for r in zerocalc.compare(job).results][-1]
    ('zero3', 17500000000, True)

Names load on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from zerocalc._version import __version__

if TYPE_CHECKING:
    from zerocalc.api import job as job
    from zerocalc.errors import FileError as FileError
    from zerocalc.errors import SpecError as SpecError
    from zerocalc.errors import UnknownNameError as UnknownNameError
    from zerocalc.errors import UsageError as UsageError
    from zerocalc.errors import ZerocalcError as ZerocalcError
    from zerocalc.evaluate import estimate as estimate
    from zerocalc.questions.against import contrast as contrast
    from zerocalc.questions.compare import compare as compare
    from zerocalc.questions.explain import explain as explain
    from zerocalc.questions.plan import plan as plan
    from zerocalc.questions.solve import solve as solve
    from zerocalc.questions.sweep import sweep as sweep
    from zerocalc.results import Estimates as Estimates
    from zerocalc.results import Solution as Solution
    from zerocalc.results import StrategyResult as StrategyResult
    from zerocalc.results import plain as plain
    from zerocalc.results.explanation import Explanation as Explanation
    from zerocalc.specs.job import Job as Job
    from zerocalc.specs.job import Machine as Machine
    from zerocalc.specs.job import ModelSpec as ModelSpec
    from zerocalc.specs.job import Offload as Offload
    from zerocalc.specs.job import OptimizerSpec as OptimizerSpec
    from zerocalc.specs.job import Parallelism as Parallelism
    from zerocalc.specs.job import Precision as Precision
    from zerocalc.specs.job import Workload as Workload

_HOMES = {
    "zerocalc.api": ("job",),
    "zerocalc.questions.against": ("contrast",),
    "zerocalc.questions.compare": ("compare",),
    "zerocalc.errors": ("FileError", "SpecError", "UnknownNameError", "UsageError", "ZerocalcError"),
    "zerocalc.evaluate": ("estimate",),
    "zerocalc.questions.explain": ("explain",),
    "zerocalc.results": ("Estimates", "Solution", "StrategyResult", "plain"),
    "zerocalc.results.explanation": ("Explanation",),
    "zerocalc.questions.solve": ("solve",),
    "zerocalc.questions.plan": ("plan",),
    "zerocalc.questions.sweep": ("sweep",),
    "zerocalc.specs.job": (
        "Job", "Machine", "ModelSpec", "Offload", "OptimizerSpec", "Parallelism", "Precision", "Workload",
    ),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'zerocalc' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
