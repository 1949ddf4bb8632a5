"""What Accelerate and the trainers share: the DeepSpeed file they name, mixed precision, accumulation."""

from __future__ import annotations

from pathlib import Path

from zerocalc.errors import shown
from zerocalc.readers.deepspeed import read_deepspeed
from zerocalc.readers.names import PRECISION_OF
from zerocalc.readers.reading import MISSING, Given, Reading

_MAX_PARENTS = 6


def read_beside(
    named: str, label: str, reading: Reading, *, dp: int | None, gpus: int | None = None
) -> Reading | None:
    """The DeepSpeed file that another file names, looked for beside it, in the folders above, and here."""
    base = Path(label).parent
    folders = [base, *list(base.absolute().parents)[:_MAX_PARENTS], Path()]
    candidates = [Path(named)] if Path(named).is_absolute() else [folder / named for folder in folders]
    path = next((path for path in candidates if _is_file(path)), None)
    if path is None:
        reading.warnings.append(
            f"{label}: the DeepSpeed file {shown(named)} {MISSING}: stage, dtypes and buckets are not known; give it with "
            "--deepspeed"
        )
        return None
    return read_deepspeed(path, dp=dp, gpus=gpus)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def set_precision(given: Given | None, kind: str, label: str, reading: Reading) -> None:
    """What `mixed_precision` means under each plug-in: a policy under FSDP, DeepSpeed's own, autocast otherwise."""
    word = "no" if given is None else str(given.value).strip().lower()
    word = {"false": "no", "none": "no", "": "no"}.get(word, word)
    if word not in PRECISION_OF:
        reading.warnings.append(
            f"{label}: mixed_precision {shown(word)} is not known; say it with --precision"
        )
        return
    origin = given.origin if given is not None else f"default:accelerate mixed_precision (not in {label})"
    if "precision" in reading.values:
        if (
            kind == "DEEPSPEED"
            and given is not None
            and word != "no"
            and reading.value("precision") != PRECISION_OF[word]
        ):
            reading.warnings.append(
                f"{label}: mixed_precision {word} has no effect: DeepSpeed's own file decides"
            )
        return
    if kind == "DEEPSPEED" and given is None:
        reading.assumptions.append(f"{label}: no mixed_precision; say it with --precision")
        return
    if word in ("bf16", "fp16") and kind not in ("FSDP", "DEEPSPEED", "MEGATRON_LM"):
        reading.values["precision"] = Given(PRECISION_OF["autocast"], origin)
        reading.settings["autocast"] = Given(True, origin)
        reading.assumptions.append(f"{label}: autocast keeps weights, gradients and states in fp32")
        return
    reading.values["precision"] = Given(PRECISION_OF[word], origin)
    if kind == "FSDP" and word in ("bf16", "fp16"):
        policy = Given(word, f"{origin} (Accelerate's policy reduces in the compute dtype)")
        reading.values["reduce_dtype"] = reading.settings["reduce_dtype"] = policy
    if word == "no":
        reading.assumptions.append(f"{label}: no mixed precision: weights are taken to be loaded in fp32")


def set_accumulation(kind: str, reading: Reading) -> None:
    """Accelerate and the Trainer synchronise gradients in the last micro-step only, except under DeepSpeed."""
    accum = reading.values.get("grad_accum")
    if accum is None or accum.value == 1 or kind in ("DEEPSPEED", "MEGATRON_LM"):
        return
    fully_shard = kind == "FSDP" and reading.settings["fsdp_version"].value != 1
    name, value = ("requires_gradient_sync", False) if fully_shard else ("no_sync", True)
    reading.settings[name] = Given(
        value, f"{accum.origin} (gradients are synchronised in the last micro-step only)"
    )
