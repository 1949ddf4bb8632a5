"""One rank of DeepSpeed's engine: built from its own file, stepped three times, the third one recorded."""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING, Any

import deepspeed
import torch
from deepspeed.utils import groups

from tests.live.cases import deepspeed_config
from tests.live.models import build, loss_of
from tests.live.recorder import Recorder
from tests.live.torch_runs import STEPS, settle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.live.cases import Case

logging.disable(logging.WARNING)


def run(case: Case, rank: int) -> dict[str, Any]:
    """What this rank holds between steady steps, and what it sent in one."""
    deepspeed.init_distributed(dist_backend="gloo", dist_init_required=False, verbose=False)
    recorder = Recorder()
    with recorder:
        model, engine = _engine(case)
        for step in range(STEPS):
            if step == STEPS - 1:
                recorder.start_step(watch=case.watch)
            _step(case, engine, recorder)
    settle()
    facts = {"held": recorder.held(_owners(model, engine)), "sent": recorder.sent, "peaks": recorder.peaks}
    engine.destroy()
    groups._ZERO_PARAM_INTRA_PARALLEL_GROUP = (
        None  # hpZ's group outlives its engine and would serve the next case
    )
    del engine, model
    gc.collect()
    return facts


def _engine(case: Case) -> tuple[torch.nn.Module, Any]:
    """The engine around torch's AdamW, which needs no compiled kernel."""
    model = build(case.model)
    if case.words.get("checkpointing") == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    config = {
        **deepspeed_config(case),
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**9,
    }
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=optimizer, config=config, dist_init_required=False
    )
    return model, engine


def _step(case: Case, engine: Any, recorder: Recorder) -> None:
    for micro in range(case.grad_accum):
        recorder.phase = "forward"
        loss = loss_of(engine, case.model, seed=micro)
        recorder.phase = "backward"
        engine.backward(loss)
        del loss
        recorder.phase = "optimizer_step"
        engine.step()


def _owners(model: torch.nn.Module, engine: Any) -> dict[str, Iterable[torch.Tensor]]:
    """Tensors by zerocalc's name of the state; parameters, gradients and buckets are left to the total."""
    wrapper = engine.optimizer
    inner = getattr(wrapper, "optimizer", wrapper)
    states = {
        name: list(_tensors([state.get(name) for state in inner.state.values()]))
        for name in ("exp_avg", "exp_avg_sq", "step")
    }
    parameters = [parameter.data for parameter in model.parameters()]
    shares = [p.ds_tensor for p in model.parameters() if getattr(p, "ds_tensor", None) is not None]
    master = [parameter.data for group in inner.param_groups for parameter in group["params"]]
    return {
        "module_params": [*parameters, *shares],
        "module_buffers": list(model.buffers()),
        "exp_avg": states["exp_avg"],
        "exp_avg_sq": states["exp_avg_sq"],
        "step_counters": states["step"],
        "gradient_norm": list(_tensors(getattr(wrapper, "_global_grad_norm", None))),
        "master_weights": [*master, *_tensors(getattr(wrapper, "fp32_partitioned_groups_flat", None))],
    }


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
