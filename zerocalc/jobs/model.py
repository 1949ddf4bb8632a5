"""MODEL -> a layout: a count, a preset, a config.json, a safetensors file or folder, or the papers' LxH[xA] shorthand."""

from __future__ import annotations

import re
from functools import lru_cache
from os.path import expanduser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerocalc.errors import (
    FileError,
    SpecError,
    UnknownNameError,
    UsageError,
    ZerocalcError,
    shown,
)
from zerocalc.readers.reading import HubId
from zerocalc.specs.job import ModelSpec
from zerocalc.units import MAX_PARAMS, ceil, parse_count, parse_ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocalc.jobs.givens import Givens
    from zerocalc.layout import Architecture, Layout

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
ROLES = ("frozen", "reference", "reward", "teacher")
_COUNT = re.compile(r"[0-9.][0-9_,.]*(?:[eE][+-]?[0-9]+)?\s*[kKmMbBgGtTqQ]?")
_SHAPE = re.compile(
    r"(?P<layers>[1-9][0-9]{0,5})x(?P<hidden>[1-9][0-9]{0,7})(?:x(?P<heads>[1-9][0-9]{0,5}))?"
)


def resolve_models(g: Givens) -> tuple[ModelSpec, tuple[ModelSpec, ...]]:
    """The trained model and those held beside it."""
    raw = g.raw("model")
    text = raw if isinstance(raw, HubId) else g.text("model")
    if text is None:
        raise UsageError(
            "which model?", hint="give a count (70b), a preset (llama-3-8b) or a path (./config.json)"
        )
    model = _trained(g, text)
    return model, tuple(_held(g, item) for item in _also(g))


def _also(g: Givens) -> list[str]:
    """The further models as they were given: a list, or one alone."""
    raw = g.raw("also") or []
    return [str(item) for item in raw] if isinstance(raw, (list, tuple)) else [str(raw)]


def _trained(g: Givens, text: str) -> ModelSpec:
    g.note("model", "model")
    try:
        architecture, origin = architecture_named(g, text)
    except (FileError, UnknownNameError) as error:
        raise _located(g, error) from None
    g.origins["num_params"] = origin or g.origin("model")
    if architecture is None:
        num_params = _count(g, text)
        experts = g.count("expert_params", 0, minimum=0)
        if experts > num_params:
            raise SpecError(
                f"{g.where('expert_params')}: {experts:,} is more than the model's {num_params:,}"
            )
    elif "expert_params" in g:
        raise UsageError(
            f"{g.where('expert_params')} goes with a bare count; {text} already says which are experts"
        )
    else:
        num_params, experts = architecture.layout.num_params, 0
    adapter = _adapter(g, architecture)
    trainable = 0 if adapter is not None or "lora_rank" in g else _trainable(g, num_params)
    if architecture is not None:
        g.assumptions += architecture.assumptions
    _check_size(num_params, text)
    return ModelSpec(
        name=text,
        num_params=num_params,
        num_expert_params=experts if architecture is None else architecture.layout.num_part_params("expert"),
        num_trainable_params=trainable,
        architecture=architecture,
        adapter=adapter,
    )


def _located(g: Givens, error: ZerocalcError) -> ZerocalcError:
    """The error of a model that a file names, with the file and the key."""
    if not g.origin("model").startswith("file:"):
        return error
    hint = f"name the MODEL to size on the command line: {error.hint}" if error.hint else None
    return type(error)(f"{g.where('model')}: {error.message}", hint=hint)


def _check_size(num_params: int, text: str) -> None:
    if not 1 <= num_params <= MAX_PARAMS:
        raise SpecError(f"{text}: {num_params:,} parameters; between 1 and {MAX_PARAMS:,} are supported")


def _count(g: Givens, text: str) -> int:
    return parse_count(
        text, name="MODEL" if g.origin("model", default="flag") == "flag" else g.where("model")
    )


def is_path(text: str) -> bool:
    """Whether a MODEL can only be meant as a path."""
    return text[:1] in {".", "/", "~"} or text.endswith((".json", ".safetensors"))


def architecture_named(g: Givens, text: str) -> tuple[Architecture | None, str | None]:
    """The tensors behind a MODEL, and their origin; (None, None) for a bare count."""
    if isinstance(text, HubId):
        from zerocalc.readers.hub import read_hub

        return read_hub(text), f"hub:{text}"
    if text.startswith("-"):
        parse_count(text, name="MODEL")
    if is_path(text):
        # Path's own method raises where `~name` is nobody's home.
        return _from_path(Path(expanduser(text))), f"file:{text}"
    if _COUNT.fullmatch(text):
        return None, None
    if shape := _SHAPE.fullmatch(text):
        from zerocalc.architectures.paper_transformer import paper_transformer

        heads = int(shape["heads"]) if shape["heads"] else None
        built = paper_transformer(int(shape["layers"]), int(shape["hidden"]), heads)
        return built, "12·layers·hidden² as the papers count"
    return _from_preset(g, text)


def _from_preset(g: Givens, text: str) -> tuple[Architecture | None, str]:
    from zerocalc.presets import load_model

    try:
        preset = load_model(text, directory=g.presets_dir)
    except UnknownNameError as error:
        if Path(text).exists():
            return _from_path(Path(text)), f"file:{text}"
        hint = "a count (70b), a preset (zerocalc presets list models) or a path (./config.json)"
        if _HUB_ID.fullmatch(text):
            hint += f", or --hub {text} to ask the network"
        raise UnknownNameError(error.message, hint=hint) from None
    if preset.assumption:
        g.assumptions.append(preset.assumption)
    if preset.config is None:
        return None, preset.origin
    return _described(preset.config, preset.id), preset.origin


def _from_path(path: Path) -> Architecture:
    from zerocalc.readers.huggingface import read_config
    from zerocalc.readers.paths import what_is_wrong_with
    from zerocalc.readers.safetensors import read_layout

    if not path.exists():
        raise FileError(
            f"{path}: {what_is_wrong_with(path)}",
            hint="a config.json, a .safetensors file, or a folder with either",
        )
    if path.suffix == ".safetensors" or (path.is_dir() and not (path / "config.json").exists()):
        return read_layout(path)
    return _described(read_config(path), str(path))


def _described(config: Mapping[str, Any], origin: str) -> Architecture:
    """The tensors of a config; the same content is described once, however many jobs train it."""
    import json

    return _described_text(json.dumps(config), origin)


@lru_cache(maxsize=64)
def _described_text(config: str, origin: str) -> Architecture:
    import json

    from zerocalc.architectures import architecture

    return architecture(json.loads(config), origin=origin)


def _trainable(g: Givens, num_params: int) -> int | None:
    """How many parameters are trained: a count, or a percentage of Ψ; None for all."""
    g.note("num_trainable_params", "trainable")
    text = g.text("trainable")
    if text is None:
        return None
    if not text.endswith("%"):
        return parse_count(text, name=g.where("trainable"), minimum=0, maximum=num_params)
    percent = parse_ratio(text[:-1], name=g.where("trainable"))
    if percent > 100:
        raise SpecError(f"{g.where('trainable')}: must be at most 100% (got {text})")
    return int(ceil(percent * num_params / 100))


def _adapter(g: Givens, architecture: Architecture | None) -> Layout | None:
    """LoRA's adapter tensors, when a rank is given; None also where a file asks for some that cannot be counted."""
    rank = g.count("lora_rank", maximum=10**6)
    if rank is None:
        if "lora_targets" in g and not _by_file(g, "lora_targets"):
            raise UsageError(f"{g.where('lora_targets')} needs --lora-rank")
        return None
    if architecture is None and _by_file(g, "lora_rank"):
        g.warnings.append(
            f"{g.where('lora_rank')} {rank}: adapters are not counted without the model's shape: name a preset or give a "
            "config.json"
        )
        return None
    if architecture is None:
        raise UsageError(
            f"{g.where('lora_rank')} needs the model's shape", hint="name a preset or give a config.json"
        )
    if "trainable" in g:
        raise UsageError(
            f"{g.where('lora_rank')} and {g.where('trainable')} both say what is trained",
            hint="give one of them",
        )
    from zerocalc.architectures.lora import lora_layout

    return lora_layout(architecture.layout, rank=rank, targets=_targets(g, architecture.layout))


def _by_file(g: Givens, word: str) -> bool:
    return g.origin(word).startswith("file:")


def _targets(g: Givens, layout: Layout) -> list[str]:
    """The layers that get an adapter. Of those that a trainer's file names, PEFT passes over what the model lacks."""
    from zerocalc.architectures.lora import ALL_LINEAR, linear_names

    raw = g.raw("lora_targets") or ALL_LINEAR
    named = [item.strip() for item in raw.split(",")] if isinstance(raw, str) else [str(item) for item in raw]
    if not _by_file(g, "lora_targets") or g.origin("lora_targets").endswith(":lora_targets"):
        return named
    available = {*linear_names(layout), ALL_LINEAR}
    missing = [name for name in named if name not in available]
    if not missing:
        return named
    kept = [name for name in named if name in available]
    read = "" if kept else f"; read as {ALL_LINEAR}"
    g.warnings.append(
        f"{g.where('lora_targets')}: no linear layers of this model: {', '.join(missing)[:200]}{read}"
    )
    return kept or [ALL_LINEAR]


def _held(g: Givens, text: str) -> ModelSpec:
    """A further model, `ROLE:MODEL`, only held."""
    role, colon, name = text.partition(":")
    if not colon or role not in ROLES or not name:
        raise SpecError(
            f"{g.where('also')}: must be ROLE:MODEL with ROLE one of {', '.join(ROLES)} (got {shown(text)})",
            hint="like --also reference:llama-3-8b",
        )
    architecture, _ = architecture_named(g, name)
    num_params = _count(g, name) if architecture is None else architecture.layout.num_params
    _check_size(num_params, name)
    return ModelSpec(name=name, role=role, num_params=num_params, architecture=architecture)
