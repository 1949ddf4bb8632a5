"""A job as a fragment of another tool's own file. What a tool cannot express is refused, and the tool that can is named.

A file holds part of a job: the rest (the model, often the batch or the GPUs) is the training script's. That rest is
listed with every fragment, in this tool's own flags: the file read back beside them is the same job.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, cast

from zerocalc.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocalc.specs.job import Job
    from zerocalc.writers.common import Fragment

__all__ = ["TOOLS", "emit", "fragment"]


class Tool(NamedTuple):
    """Whose file, who writes it, and whose answers it can realise."""

    module: str
    label: str
    frameworks: tuple[str, ...]


TOOLS: dict[str, Tool] = {
    "deepspeed": Tool(
        "zerocalc.writers.deepspeed", "DeepSpeed's JSON", ("paper", "deepspeed", "deepspeed-estimator")
    ),
    "accelerate": Tool(
        "zerocalc.writers.accelerate", "Accelerate's YAML", ("paper", "pytorch", "deepspeed", "deepspeed-estimator")
    ),
    "fsdp2": Tool("zerocalc.writers.fsdp2", "Python that calls fully_shard", ("paper", "pytorch")),
    "torchtitan": Tool("zerocalc.writers.torchtitan", "torchtitan's TOML", ("paper", "pytorch")),
}  # fmt: skip


def emit(job: Job, tool: str) -> str:
    """The text of a fragment that realises the job in a tool. Raises UsageError for what the tool cannot express."""
    return fragment(job, tool).text


def fragment(job: Job, tool: str) -> Fragment:
    """The fragment, and what of the job it leaves to others.

    Raises UnknownNameError for another tool, UsageError for a job that the tool cannot express.
    """
    from zerocalc.evaluate import inapplicable

    row = TOOLS.get(tool.strip().lower())
    if row is None:
        raise unknown_name("tool", tool, list(TOOLS), hint=f"--emit takes {', '.join(TOOLS)}")
    if job.framework not in row.frameworks:
        raise UsageError(
            f"the answer is framework {job.framework}'s, which {row.label} does not realise",
            hint=_other_ways(job.framework, row),
        )
    if reason := inapplicable(job):
        raise UsageError(reason, hint="change --strategy, or the offload")
    write = cast("Callable[[Job], Fragment]", import_module(row.module).write)
    return write(job)


def _other_ways(framework: str, row: Tool) -> str:
    tools = [name for name, other in TOOLS.items() if framework in other.frameworks]
    return f"use --framework {row.frameworks[1]}" + (f", or --emit {' or '.join(tools)}" if tools else "")
