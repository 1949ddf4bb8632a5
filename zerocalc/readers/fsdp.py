"""PyTorch FSDP as Accelerate, the Hugging Face Trainer and axolotl spell it: strategy words, versions, prefixes."""

from __future__ import annotations

from zerocalc.errors import SpecError, shown
from zerocalc.readers.convert import AUTO, Kind
from zerocalc.readers.keys import Effect, Found, Key
from zerocalc.readers.reading import Given, Reading

SHARDING = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")
"""FSDP's strategies in the order of their numbers, 1 to 5."""
_STRATEGY = {
    "full_shard": ("zero3", True),
    "shard_grad_op": ("zero2", False),
    "no_shard": ("ddp", None),
    "hybrid_shard": ("hsdp", True),
    "hybrid_shard_zero2": ("hsdp", False),
    "true": ("zero3", True),
    "false": ("zero2", False),
}
"""What each word means: the strategy, and whether parameters are resharded after forward."""
_PREFETCH_AS_USUAL = (None, "BACKWARD_PRE", "backward_pre", False)
_WRAPPED_BY_LAYER = (None, "TRANSFORMER_BASED_WRAP", "transformer_based_wrap")


def fsdp_keys(section: str) -> tuple[Key, ...]:
    """The rows of an FSDP section; every key also with the prefix that Accelerate adds."""

    def row(
        name: str,
        kind: Kind = "any",
        effect: Effect = "inert",
        *others: str,
        neutral: tuple[object, ...] = (),
        note: str = "",
    ) -> Key:
        aliases = tuple(f"{section}.{spelling}" for spelling in (f"fsdp_{name}", *others))
        unmoved = neutral or (None, False, 0, "", "none")
        return Key(f"{section}.{name}", kind, effect, aliases=aliases, neutral=unmoved, note=note)

    return (
        row("sharding_strategy", "text", "modelled"),
        row("reshard_after_forward", "text", "modelled"),
        row("version", "positive", "modelled"),
        row("offload_params", "bool", "modelled"),
        row("activation_checkpointing", "bool", "modelled"),
        row("use_orig_params", "bool", "modelled"),
        row("auto_wrap_policy", "text", "unmodelled", neutral=_WRAPPED_BY_LAYER, note="units are not the layers"),
        row("backward_prefetch", "text", "unmodelled", "fsdp_backward_prefetch_policy", "backward_prefetch_policy",
            neutral=_PREFETCH_AS_USUAL, note="fewer units are gathered ahead"),
        row("forward_prefetch", "bool", "unmodelled", note="one more unit is gathered ahead"),
        row("mixed_precision_policy", "any", "unmodelled", note="give --param-dtype and --reduce-dtype"),
        *(row(name) for name in (
            "transformer_layer_cls_to_wrap", "transformer_cls_to_wrap", "min_num_params", "limit_all_gathers",
            "sync_module_states", "cpu_ram_efficient_loading", "state_dict_type",
            "final_state_dict_type", "ignored_modules", "xla", "xla_fsdp_settings", "xla_fsdp_grad_ckpt",
            "xla_fsdp_v2", "tensor_parallel_degree", "wrap_policy",
        )),
    )  # fmt: skip


def apply_fsdp(
    found: Found,
    section: str,
    label: str,
    reading: Reading,
    *,
    word: Given | None = None,
    version: Given | None = None,
) -> None:
    """Turn what an FSDP section says into strategy, offload and checkpointing; `word` is the strategy named elsewhere."""
    version = found.get(f"{section}.version") or version or Given(1, f"default:fsdp_version (not in {label})")
    reading.settings["fsdp_version"] = version
    reading.values["framework"] = Given("pytorch", f"file:{label}")
    reshard = found.get(f"{section}.reshard_after_forward") if version.value != 1 else None
    given = reshard or found.get(f"{section}.sharding_strategy") or word
    if given is None or str(given.value).lower() == AUTO:
        given = Given("full_shard", f"default:FSDP (no strategy in {label})")
    name, resharded = _STRATEGY[_word(given, label)]
    reading.values["strategy"] = Given(name, given.origin)
    if name in ("zero3", "hsdp") and (version.value != 1 or not resharded):
        reading.settings["reshard_after_forward"] = Given(resharded, given.origin)
    original = found.get(f"{section}.use_orig_params")
    if original is not None and version.value == 1 and original.value != AUTO:
        reading.settings["use_orig_params"] = original
    offload = found.get(f"{section}.offload_params")
    if offload is not None and offload.value != AUTO:
        set_offload(offload, reading)
    checkpointing = found.get(f"{section}.activation_checkpointing")
    if checkpointing is not None and checkpointing.value is True:
        reading.values["checkpointing"] = Given("full", checkpointing.origin)


def _word(given: Given, label: str) -> str:
    """A strategy as written, by word, number or truth value, as a key of `_STRATEGY`."""
    text = str(given.value).strip().lower().rpartition(".")[2]
    if text.isdigit() and 1 <= int(text) <= len(SHARDING):
        return SHARDING[int(text) - 1]
    if text not in _STRATEGY:
        key = given.origin.rpartition(":")[2]
        raise SpecError(
            f"{label}: {key}: unknown strategy {shown(given.value)}",
            hint=f"one of {', '.join(SHARDING).upper()}, or 1 to 5",
        )
    return text


def set_offload(given: Given, reading: Reading) -> None:
    """FSDP's offload moves parameters, and with them gradients and the optimizer step, to the host."""
    device = "cpu" if given.value else "none"
    reading.values["offload_params"] = Given(device, given.origin)
    reading.values["offload_optimizer"] = Given(device, given.origin)


def set_hybrid_group(label: str, reading: Reading) -> None:
    """FSDP1's hybrid strategies shard inside a node unless told otherwise."""
    if reading.value("strategy") != "hsdp" or "shard_size" in reading.values:
        return
    per_node = reading.values.get("gpus_per_node")
    if per_node is None:
        reading.assumptions.append(
            f"{label}: a hybrid strategy shards inside a node; say its GPUs with --shard-size"
        )
    else:
        reading.values["shard_size"] = Given(
            per_node.value, f"{per_node.origin} (hybrid strategies shard inside a node)"
        )
