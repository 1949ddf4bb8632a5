"""Every option once, as a row of its section. A command takes whole sections; a value's name is the job's word for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from zerocalc.cli.complete import (
    Complete,
    frameworks_completion,
    model_completion,
    paths_of,
    presets_of,
    strategies_completion,
    words_of,
)
from zerocalc.cli.group import ExampleCommand, SectionOption

F = TypeVar("F", bound=Callable[..., Any])


class Row(NamedTuple):
    """One option: how it is spelled, what its value is called, what it means."""

    flags: str
    metavar: str
    help: str
    complete: Complete | None = None
    multiple: bool = False
    is_flag: bool = False


_DTYPES = words_of("bf16", "fp16", "fp32", "fp8")
_PLACES = words_of("none", "cpu", "nvme")

SECTIONS: dict[str, tuple[Row, ...]] = {
    "Ranks": (
        Row("-n --gpus", "N", "all GPUs together: dp·tp·pp·cp"),
        Row("--dp", "N", "data-parallel degree, in place of --gpus"),
        Row("--tp", "N", "tensor-parallel degree"),
        Row("--pp", "N", "pipeline-parallel degree"),
        Row("--cp", "N", "context-parallel degree"),
        Row("--ep", "N", "expert-parallel degree"),
        Row("--etp", "N", "tensor-parallel degree inside an expert"),
        Row("--gpus-per-node", "N", "GPUs of one node"),
        Row("--shard-size", "N", "ranks of one sharding group (hsdp, mics)"),
    ),
    "Machine": (
        Row(
            "--gpu",
            "NAME|SIZE",
            "a preset (h100, a100-80gb) or a size with its unit (80GB, 80GiB)",
            presets_of("gpus"),
        ),
        Row("--node", "NAME", "a preset (dgx-h100): its GPU, GPUs per node, RAM, NVMe", presets_of("nodes")),
        Row("--host-memory", "SIZE", "RAM of one node"),
        Row("--nvme-memory", "SIZE", "NVMe of one node"),
        Row(
            "--reserve",
            "SIZE|PERCENT",
            "GPU memory to keep free (default: the GPU preset's once activations are counted)",
        ),
        Row("--require-fit", "", "exit with 1 when nothing fits (compare, estimate)", is_flag=True),
    ),
    "What": (
        Row(
            "--strategy",
            "S[,S...]",
            "ddp, zero1, zero2, zero3, hsdp, mics, zeropp, or FSDP's names (default: the first four, or zero3 where "
            "one is answered)",
            strategies_completion,
            multiple=True,
        ),
        Row(
            "--framework",
            "F[,F...]",
            "whose implementation: paper (default), deepspeed, pytorch, megatron or deepspeed-estimator",
            frameworks_completion,
            multiple=True,
        ),
        Row(
            "--set",
            "KEY=VALUE",
            "a framework's setting by its own name (zerocalc presets list settings); repeatable",
            multiple=True,
        ),
    ),
    "Bytes": (
        Row("--precision", "NAME", "element types by name (default: mixed-bf16)", presets_of("precisions")),
        Row("--optimizer", "NAME", "optimizer by name (default: adamw)", presets_of("optimizers")),
        Row("--k", "NUMBER", "bytes of optimizer states per parameter, master weights included"),
        Row("--param-dtype", "TYPE", "parameters", _DTYPES),
        Row("--grad-dtype", "TYPE", "gradients as held", _DTYPES),
        Row("--reduce-dtype", "TYPE", "gradients on the wire", _DTYPES),
        Row("--trainable", "COUNT|PERCENT", "parameters that are trained (default: all)"),
        Row("--frozen-dtype", "TYPE", "parameters that are not trained", _DTYPES),
        Row("--lora-rank", "N", "train LoRA adapters of this rank, the model itself frozen"),
        Row("--lora-targets", "NAME[,NAME...]", "linear layers with an adapter, like q_proj, or all-linear"),
        Row("--expert-params", "COUNT", "routed experts' parameters, for a bare count"),
        Row("--also", "ROLE:MODEL", "a further model on the same GPUs; repeatable", multiple=True),
    ),
    "Offload": (
        Row(
            "--offload-optimizer",
            "none|cpu|nvme",
            "where optimizer states rest (default: none, the GPU)",
            _PLACES,
        ),
        Row("--offload-params", "none|cpu|nvme", "where parameters rest (default: none, the GPU)", _PLACES),
    ),
    "Work": (
        Row("--micro-batch", "N", "sequences per GPU and micro-step; counts activations"),
        Row("--seq-len", "N", "tokens per sequence"),
        Row("--grad-accum", "N", "micro-steps per optimizer step (default: 1)"),
        Row(
            "--checkpointing",
            "none|selective|full",
            "which activations are computed again in backward (default: none)",
            words_of("none", "selective", "full"),
        ),
        Row(
            "--attention",
            "flash|math|eager",
            "attention kernel (default: flash)",
            words_of("flash", "math", "eager"),
        ),
        Row("--sequence-parallel", "", "tensor-parallel ranks split the sequence too", is_flag=True),
    ),
    "Speed": (
        Row(
            "--mfu", "X", "share of the GPU's peak that compute reaches, for the upper bound (default: 0.35)"
        ),
        Row("--tokens", "COUNT", "tokens of the whole run, for its days and GPU-hours"),
        Row("--peak-flops", "RATE", "FLOP/s of one GPU, like 989T"),
        Row("--busbw", "RATE", "ring bandwidth inside a node as nccl-tests prints it, like 360GB/s"),
        Row("--network", "RATE", "network bandwidth of one node, like 400GB/s"),
        Row("--host-bandwidth", "RATE", "PCIe bandwidth of one GPU and direction, like 50GB/s"),
        Row("--nvme-bandwidth", "RATE", "NVMe bandwidth of one node, like 25GB/s"),
        Row("--cpu-adam", "RATE", "parameters per second that the CPU's optimizer updates"),
        Row("--dram-bandwidth", "RATE", "a node's host memory: no update on the CPU is quicker than it"),
    ),
    "Files": (
        Row("--job", "FILE|-", "a job file: these options as JSON, TOML or YAML", paths_of("file")),
        Row("--deepspeed", "FILE", "a DeepSpeed configuration", paths_of("file")),
        Row("--accelerate", "FILE", "an Accelerate configuration", paths_of("file")),
        Row("--torchtitan", "FILE", "a torchtitan job file", paths_of("file")),
        Row("--hub", "ID", "a Hugging Face model: fetches its config.json and tensor shapes, never weights"),
        Row(
            "--project",
            "FILE",
            "the project file whose job fills in what is not given (default: the nearest)",
            paths_of("file"),
        ),
        Row("--no-project", "", "leave the project file out", is_flag=True),
        Row("--presets", "DIR", "your own presets, searched first [env: ZEROCALC_PRESETS]", paths_of("dir")),
    ),
}

ANSWER_FORMATS = ("table", "json", "jsonl", "csv", "markdown", "html")
DRAWN_FORMATS = (*ANSWER_FORMATS, "svg")
REPORT_FORMATS = ("table", "json", "jsonl", "csv", "markdown", "html", "junit", "github")
_OUTPUT = (
    Row(
        "-o --output",
        "FILE",
        "write there; the suffix (.json .csv .md .html .svg …) chooses the format when -f is absent",
        paths_of("file"),
    ),
    Row(
        "--units",
        "GB|GiB",
        "10^9 or 2^30 bytes in tables (default: GB) [env: ZEROCALC_UNITS]",
        words_of("GB", "GiB"),
    ),
    Row("--color", "auto|always|never", "colour (default: auto)", words_of("auto", "always", "never")),
    Row("-q --quiet", "", "only the table", is_flag=True),
    Row("--debug", "", "a traceback when zerocalc itself is at fault", is_flag=True),
)
OUTPUT_WORDS = ("format", "output", "units", "color", "quiet", "debug", "emit", "chart")
JOB_SECTIONS = tuple(SECTIONS)
EMITTED = words_of("deepspeed", "accelerate", "fsdp2", "torchtitan")


def _option(row: Row, section: str) -> Callable[[F], F]:
    flags = row.flags.split()
    name = flags[-1].removeprefix("--").replace("-", "_")
    extra: dict[str, Any] = {"is_flag": True} if row.is_flag else {"type": str, "multiple": row.multiple}
    if row.complete is not None:
        extra["shell_complete"] = row.complete
    if not row.is_flag:
        extra["metavar"] = row.metavar
    return click.option(*flags, name, cls=SectionOption, section=section, help=row.help, **extra)


def output_options(function: F, formats: tuple[str, ...] = ANSWER_FORMATS) -> F:
    """The options that say how and where an answer is written."""
    names = f"{', '.join(formats[:-1])} or {formats[-1]} [env: ZEROCALC_FORMAT]"
    for row in reversed((Row("-f --format", "NAME", names, words_of(*formats)), *_OUTPUT)):
        function = _option(row, "Output")(function)
    return function


def report_options(function: F) -> F:
    """The same for a report of budgets."""
    return output_options(function, REPORT_FORMATS)


def hub_option(function: F) -> F:
    """A model by its id on the Hub."""
    row = next(row for row in SECTIONS["Files"] if row.flags == "--hub")
    return _option(row, "Files")(function)


def presets_option(function: F) -> F:
    """Where the user's own presets are."""
    return _option(SECTIONS["Files"][-1], "Files")(function)


def emit_option(function: F) -> F:
    """The tool whose own file the answer is written as."""
    row = Row("--emit", "TOOL", "the answer as deepspeed, accelerate, fsdp2 or torchtitan writes it", EMITTED)
    return _option(row, "Output")(function)


def against_option(function: F) -> F:
    """The framework that an answer is held against."""
    row = Row(
        "--against",
        "FRAMEWORK",
        "line up this framework's terms with those of --framework",
        frameworks_completion,
    )
    return _option(row, "What")(function)


def drawn_job_options(function: F) -> F:
    """The options of a job whose answer can be drawn."""
    chart = Row("--chart", "", "bars and memory over N_d beside the tables", is_flag=True)
    return job_options(_option(chart, "Output")(function), DRAWN_FORMATS)


def job_options(function: F, formats: tuple[str, ...] = ANSWER_FORMATS) -> F:
    """The options that describe a job, in their sections, then those of the output."""
    function = output_options(function, formats)
    for section in reversed(JOB_SECTIONS):
        for row in reversed(SECTIONS[section]):
            function = _option(row, section)(function)
    return function


def model_argument(function: F) -> F:
    """MODEL, which a file may name instead."""
    return click.argument("model", required=False, metavar="[MODEL]", shell_complete=model_completion)(
        function
    )


def command(name: str, *, examples: Sequence[str]) -> Callable[[Callable[..., Any]], click.Command]:
    """A command whose help opens with these examples."""
    return click.command(
        name,
        cls=ExampleCommand,
        examples=examples,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
