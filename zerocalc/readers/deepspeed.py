"""DeepSpeed's configuration file, read as DeepSpeed reads it: Hjson, old names, values from the launcher as `auto`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocalc.errors import SpecError, shown
from zerocalc.readers.batch import batch_triangle
from zerocalc.readers.convert import AUTO
from zerocalc.readers.deepspeed_keys import KEYS
from zerocalc.readers.keys import Found, check_kind, scan
from zerocalc.readers.names import PRECISION_OF, set_optimizer
from zerocalc.readers.reading import Given, Reading
from zerocalc.readers.text import read_mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_Z = "zero_optimization"
_BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
STRATEGIES = ("ddp", "zero1", "zero2", "zero3")
_AUTO_BY_HIDDEN_SIZE: dict[str, tuple[str, Callable[[int], int]]] = {
    "reduce_bucket_size": ("h * h", lambda h: h * h),
    "stage3_prefetch_bucket_size": ("0.9 * h * h", lambda h: 9 * h * h // 10),
    "stage3_param_persistence_threshold": ("10 * h", lambda h: 10 * h),
}
"""What the Hugging Face Trainer and Accelerate put for `auto`, from the model's hidden size h."""
_SWITCHES = {True: 1, False: 0, "true": 1, "false": 0, "True": 1, "False": 0}


def read_deepspeed(path: str | Path, *, dp: int | None = None, gpus: int | None = None) -> Reading:
    """Read a DeepSpeed configuration; `dp` or `gpus`, where known, completes and checks the batch sizes.

    Raises FileError when the file cannot be read, SpecError for values that DeepSpeed's own keys cannot have.
    """
    data = read_mapping(path, default="hjson", only="hjson")
    check_kind(data, str(path), "DeepSpeed configuration", KEYS)
    return deepspeed_reading(data, str(path), dp=dp, gpus=gpus)


def deepspeed_reading(
    data: Mapping[str, Any], label: str, *, dp: int | None = None, gpus: int | None = None
) -> Reading:
    """The reading of a configuration that is already a mapping; `label` names where it stands."""
    reading = Reading()
    found = scan(_modern(data), KEYS, label, reading)
    reading.values["framework"] = Given("deepspeed", f"file:{label}")
    group = reading.settings.get("sub_group_size")
    if group is not None and group.value == 0:
        reading.settings["sub_group_size"] = Given(
            1, f"{group.origin} (0: every tensor is a group of its own)"
        )
    for step in (_strategy, _precision, _dtypes, _optimizer, _offload, _adam, _parallel, _activations):
        step(found, label, reading)
    around = reading.value("tp", 1) * reading.value("pp", 1) * reading.value("cp", 1)
    _batches(found, label, reading, dp or (gpus // around if gpus and gpus % around == 0 else None))
    if gpus is not None:
        reading.values.pop("dp", None)
    return reading


def _modern(data: Mapping[str, Any]) -> dict[str, Any]:
    """The form of 2020, `zero_optimization: true` or a bare stage, in today's form."""
    result = {key.strip() if isinstance(key, str) else key: value for key, value in data.items()}
    zero = result.get(_Z)
    if isinstance(zero, (bool, str, int)):
        result[_Z] = {"stage": _SWITCHES.get(zero, zero) if isinstance(zero, (bool, str)) else zero}
        if isinstance(zero, bool) and zero and "allgather_size" in result:
            result[_Z]["allgather_bucket_size"] = result["allgather_size"]
    elif isinstance(zero, dict) and isinstance(stage := zero.get("stage"), (bool, str)):
        result[_Z] = {**zero, "stage": _SWITCHES.get(stage, stage)}
    return result


def _strategy(found: Found, label: str, reading: Reading) -> None:
    stage = found.get(f"{_Z}.stage")
    if found.undecided(f"{_Z}.stage"):
        reading.assumptions.append(f"{label}: the ZeRO stage is not one number; say it with --strategy")
        return
    if stage is None:
        stage = Given(0, f"default:deepspeed {_Z}.stage (not in {label})")
    if not 0 <= stage.value < len(STRATEGIES):
        raise SpecError(
            f"{label}: {_Z}.stage: must be 0, 1, 2 or 3 (got {shown(stage.value)})",
            hint="give --strategy instead",
        )
    name = STRATEGIES[stage.value]
    reading.values["strategy"] = Given(name, stage.origin)
    if name != "zero3":
        _without_effect(found, label, reading)
        return
    mics, hpz = found.get(f"{_Z}.mics_shard_size"), found.get(f"{_Z}.zero_hpz_partition_size")
    quantized = [found.get(f"{_Z}.zero_quantized_{what}") for what in ("weights", "gradients")]
    if mics is not None and mics.value != AUTO and mics.value > 0:
        reading.values |= {"strategy": Given("mics", mics.origin), "shard_size": mics}
        reading.assumptions.append(
            f"{label}: mics_shard_size takes effect when the model is built under MiCS_Init"
        )
    else:
        zeropp = [hpz] if hpz is not None and hpz.value != AUTO and hpz.value > 1 else []
        zeropp += [given for given in quantized if given is not None and given.value is True]
        if zeropp:
            reading.values["strategy"] = Given("zeropp", zeropp[0].origin)


def _without_effect(found: Found, label: str, reading: Reading) -> None:
    """Report the stage-3 settings of a lower stage, and leave them out."""
    names = [path.removeprefix(f"{_Z}.") for path in found if path.startswith(_Z) and "stage3_" in path]
    names = [name for name in names if name != "stage3_gather_16bit_weights_on_model_save"]
    for name in names:
        reading.settings.pop(name, None)
    if names:
        reading.warnings.append(f"{label}: without effect below stage 3: {', '.join(names)}")


def _precision(found: Found, label: str, reading: Reading) -> None:
    fp16, bf16 = found.get("fp16.enabled"), found.get("bf16.enabled")
    enabled = {
        name: given for name, given in (("fp16", fp16), ("bf16", bf16)) if given and given.value is True
    }
    if len(enabled) == 2:
        reading.warnings.append(
            f"{label}: fp16 and bf16 are both enabled, which DeepSpeed refuses; fp16 is taken"
        )
    undecided = [name for name in ("fp16", "bf16") if found.undecided(f"{name}.enabled")]
    if enabled:
        name, given = next(iter(enabled.items()))
        reading.values["precision"] = _masters(found, name, given)
    elif undecided:
        reading.assumptions.append(
            f"{label}: {' and '.join(f'{name}.enabled' for name in undecided)} left to the launcher; "
            "say which with --precision"
        )
    else:
        origin = next(
            (given.origin for given in (bf16, fp16) if given),
            f"default:deepspeed (no fp16, no bf16 in {label})",
        )
        reading.values["precision"] = Given(PRECISION_OF["fp32"], origin)


def _dtypes(found: Found, _label: str, reading: Reading) -> None:
    """Element types of accumulated and of sent gradients, where they are said."""
    for key, to in (
        ("data_types.grad_accum_dtype", "grad_dtype"),
        ("communication_data_type", "reduce_dtype"),
    ):
        dtype = found.get(key)
        if dtype is not None and dtype.value not in (AUTO, "none"):
            reading.values[to] = dtype
        elif dtype is not None:
            reading.settings.pop(key.rpartition(".")[2], None)
    legacy = found.get("fp32_allreduce")
    if legacy is not None and legacy.value is True:
        reading.values.setdefault("reduce_dtype", Given("fp32", legacy.origin))
        reading.settings.setdefault("communication_data_type", Given("fp32", legacy.origin))


def _masters(found: Found, name: str, given: Given) -> Given:
    """The precision that is enabled, or its variant with master weights and gradients, and then states, in 16 bits."""
    masters = found.get(f"{name}.{name}_master_weights_and_grads")
    states = found.get(f"{name}.{name}_optimizer_states")
    if masters is None or masters.value is not True or f"{name}-master" not in PRECISION_OF:
        return Given(PRECISION_OF[name], given.origin)
    if states is not None and states.value is True:
        return Given(PRECISION_OF[f"{name}-master-states"], states.origin)
    return Given(PRECISION_OF[f"{name}-master"], masters.origin)


def _optimizer(found: Found, label: str, reading: Reading) -> None:
    kind, momentum = found.get("optimizer.type"), found.get("optimizer.params.momentum")
    if kind is None or kind.value.lower() == AUTO:
        return
    heavy = momentum is not None and bool(momentum.value)
    set_optimizer(kind, "optimizer.type", label, reading, momentum=heavy)


def _adam(found: Found, label: str, reading: Reading) -> None:  # noqa: ARG001
    """The class DeepSpeed makes of Adam by name: its fused one, or its CPU one under offload; torch's when asked."""
    kind, by_torch = found.get("optimizer.type"), found.get("optimizer.params.torch_adam")
    if kind is None or kind.value.lower() not in ("adam", "adamw") or (by_torch and by_torch.value is True):
        return
    on_host = reading.value("offload_optimizer", "none") != "none"
    reading.settings.setdefault(
        "optimizer_class", Given("deepspeedcpuadam" if on_host else "fusedadam", kind.origin)
    )


def _offload(found: Found, label: str, reading: Reading) -> None:
    stage = STRATEGIES.index("zero3") if reading.value("strategy") in ("mics", "zeropp") else None
    if stage is None:
        stage = STRATEGIES.index(reading.value("strategy", "zero3"))
    for section, old, to, lowest in (
        ("offload_optimizer", "cpu_offload", "offload_optimizer", 1),
        ("offload_param", "cpu_offload_param", "offload_params", 3),
    ):
        given = found.get(f"{_Z}.{section}.device")
        legacy = found.get(f"{_Z}.{old}")
        if given is None and legacy is not None and legacy.value is True:
            given = Given("cpu", legacy.origin)
            if pin := found.get(f"{_Z}.cpu_offload_use_pin_memory"):
                reading.settings.setdefault(f"{section}.pin_memory", pin)
        if given is None:
            continue
        if given.value == AUTO:
            reading.warnings.append(
                f"{label}: {section}.device is auto, which nothing resolves; treated as none"
            )
            given = Given("none", given.origin)
        if given.value != "none" and stage < lowest:
            reading.warnings.append(
                f"{label}: {section} has no effect below stage {lowest} (the stage is {stage})"
            )
            given = Given("none", given.origin)
        if given.value == "none":
            for name in [name for name in reading.settings if name.startswith(f"{section}.")]:
                del reading.settings[name]
        reading.values[to] = given


def _parallel(found: Found, label: str, reading: Reading) -> None:
    for to, paths in (
        (
            "tp",
            (
                "tensor_parallel.autotp_size",
                "tensor_parallel.tp_size",
                "tensor_parallel.tensor_parallel.tp_size",
            ),
        ),
        ("pp", ("pipeline.stages",)),
    ):
        given = next((found[path] for path in paths if path in found), None)
        if given is not None and given.value != AUTO and given.value > 0:
            reading.values[to] = given
    if reading.value("pp", 1) > 1:
        reading.assumptions.append(f"{label}: pipeline stages are those the PipelineModule is built with")
    if reading.value("cp", 1) > 1:
        reading.assumptions.append(f"{label}: sequence_parallel_size is counted as context parallelism")


def _activations(found: Found, label: str, reading: Reading) -> None:
    interval = found.get("pipeline.activation_checkpoint_interval")
    if interval is not None and interval.value != AUTO:
        reading.values["checkpointing"] = Given("full" if interval.value else "none", interval.origin)
    if any(path.startswith("activation_checkpointing.") for path in found):
        reading.assumptions.append(
            f"{label}: activation_checkpointing only sets options; whether the model checkpoints is --checkpointing"
        )


def _batches(found: Found, label: str, reading: Reading, dp: int | None) -> None:
    total = reading.totals.get("global_batch")
    if total is not None and total.value == AUTO:
        del reading.totals["global_batch"]
        total = None
    train = None if total is None else total.value
    known = (train, reading.value("micro_batch"), reading.value("grad_accum"), dp)
    if train is None and known[1] is None:
        return
    if any(map(found.undecided, _BATCH_KEYS)) and sum(value is not None for value in known) < len(known) - 1:
        return
    try:
        completed = batch_triangle(*known)
    except SpecError as error:
        reading.warnings.append(f"{label}: {error.message}: DeepSpeed refuses this")
        return
    origin = f"file:{label}:train_batch_size = micro × accumulation × data-parallel size"
    for name, value in zip(("micro_batch", "grad_accum", "dp"), completed[1:], strict=True):
        if value is not None:
            reading.values.setdefault(name, Given(value, origin))
    if completed[0] is not None:
        reading.totals.setdefault("global_batch", Given(completed[0], origin))


def resolve_auto(
    settings: Mapping[str, Given], hidden_size: int | None
) -> tuple[dict[str, Given], list[str]]:
    """Replace `auto` by what the Hugging Face Trainer sets it to, and say what had to be supposed.

    Without a hidden size, and for settings that have no such rule, DeepSpeed's own default stands.
    """
    resolved: dict[str, Given] = {}
    assumptions: list[str] = []
    for name, given in settings.items():
        if given.value != AUTO:
            resolved[name] = given
        elif name in _AUTO_BY_HIDDEN_SIZE and hidden_size:
            text, rule = _AUTO_BY_HIDDEN_SIZE[name]
            resolved[name] = Given(rule(hidden_size), f"{given.origin} (auto: {text}, h = {hidden_size})")
        else:
            row = KEYS.find(f"{_Z}.{name}")
            default = row.default if row is not None else None
            why = "the hidden size is not known" if name in _AUTO_BY_HIDDEN_SIZE else "nothing sets it"
            assumptions.append(f"{name} is auto and {why}: DeepSpeed's default {default} is taken")
            if default is not None:
                resolved[name] = Given(default, f"{given.origin} (auto: default)")
    return resolved, assumptions
