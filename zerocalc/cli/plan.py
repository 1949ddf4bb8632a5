"""`zerocalc plan`: the configuration to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from zerocalc.cli.group import SectionOption
from zerocalc.cli.options import command as _command
from zerocalc.cli.options import emit_option, job_options, model_argument

EXAMPLES = (
    "zerocalc plan llama-3-8b --node dgx-h100 -n 64 --seq-len 8192",
    "zerocalc plan llama-3-70b --node dgx-h100 -n 64 --framework megatron --global-batch 1024",
    "zerocalc plan llama-3-8b --gpu h100 -n 8 --strategy zero2,zero3 --emit deepspeed -q",
)
F = TypeVar("F", bound=Callable[..., Any])
PLAN_WORDS = ("over", "global_batch", "top", "emit")


def _plan_option(*flags: str, **settings: Any) -> Callable[[F], F]:
    return click.option(*flags, cls=SectionOption, section="Search", **settings)


@_command("plan", examples=EXAMPLES)
@model_argument
@_plan_option(
    "--global-batch", metavar="N|TOKENS", help="sequences of a step, or 4Mtokens (default: about 4M tokens)"
)
@_plan_option(
    "--over", multiple=True, metavar="WORD=VALUES",
    help="what else to try: strategy, checkpointing, offload-optimizer, offload-params, tp, pp, ep or set.NAME",
)  # fmt: skip
@_plan_option(
    "--top", metavar="K", type=click.IntRange(1, 1000), default=5, help="how many to list (default: 5)"
)
@emit_option
@job_options
def command(**typed: Any) -> int:
    """Search for the configuration to run: the least time for a step among all that fit.

    Strategy, recomputation, offload and micro-batch are searched, and with Megatron the parallel degrees; what you give
    yourself stays as given. Exits with 1 when nothing fits, and says what would.
    """
    from zerocalc.cli.failures import NO, OK
    from zerocalc.cli.output import emit
    from zerocalc.cli.question import question
    from zerocalc.questions.plan import job_of, plan

    job_words = {name: value for name, value in typed.items() if name not in PLAN_WORDS}
    assumed = {
        name: value for name, value in (("micro_batch", "1"), ("seq_len", "4096")) if not job_words[name]
    }
    asked = question({**job_words, **assumed})
    over = _tried(typed["over"]) | ({"strategy": list(asked.strategies)} if len(asked.strategies) > 1 else {})
    fixed = _fixed(asked.job.origins, set(assumed))
    result = plan(asked.job, global_batch=typed["global_batch"], over=over, top=typed["top"], fixed=fixed)
    if "seq_len" in assumed:
        result.assumptions.append("sequences of 4096 tokens (--seq-len changes it)")
    said = {**job_words, "seq_len": job_words["seq_len"] or assumed.get("seq_len")}
    if not result.plans:
        emit(result, said)
        return NO
    if typed["emit"]:
        from zerocalc.cli.emitted import emit_fragment

        emit_fragment(job_of(asked.job, result.plans[0]), typed, result.warnings)
        return OK
    emit(result, said)
    return OK


def _fixed(origins: Mapping[str, str], assumed: set[str]) -> list[str]:
    """What was given by the user and is therefore not searched."""
    from zerocalc.questions.free import FREE

    given = [word for word in (*FREE, "micro_batch") if origins.get(word, "default") != "default"]
    return [word for word in given if word not in assumed]


def _tried(texts: tuple[str, ...]) -> dict[str, list[Any]]:
    """`--over` as values. Raises UsageError for a word that a plan does not search."""
    from zerocalc.errors import UsageError
    from zerocalc.questions.free import FREE, MODEL_PARALLEL
    from zerocalc.strategies import strategy_named
    from zerocalc.sweeps.axes import parse_axes

    tried: dict[str, list[Any]] = {}
    for axis in parse_axes(texts) if texts else ():
        if axis.word not in FREE and axis.setting is None:
            raise UsageError(
                f"--over {axis.word}: a plan searches {', '.join(FREE)} and set.NAME",
                hint="`zerocalc sweep` varies anything",
            )
        values = [axis.text(at) for at in range(min(len(axis), 1000))]
        read = {"strategy": lambda text: strategy_named(text).name, **dict.fromkeys(MODEL_PARALLEL, int)}
        tried[axis.word] = [read.get(axis.word, str)(value) for value in values]  # type: ignore[operator]
    return tried
