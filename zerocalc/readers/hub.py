"""A model on the Hugging Face Hub: its config.json, or the headers of its safetensors files. Never the weights.

The one place that asks the network, and only for an id that the user gave by `--hub`. Needs huggingface_hub.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerocalc.errors import FileError, ZerocalcError
from zerocalc.readers.huggingface import CONFIG_NAME, read_config
from zerocalc.readers.safetensors import entry_of, layout_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocalc.layout import Architecture
    from zerocalc.readers.safetensors import Entry

_NO_NETWORK = ("the Hub cannot be reached", "is there a network? a config.json that is here needs none")
_REASONS = {
    "GatedRepoError": ("is gated", "accept its terms on its page and log in with `hf auth login`"),
    "RevisionNotFoundError": ("has no such revision", "write it as ID or ID@REVISION"),
    "RepositoryNotFoundError": ("is not on the Hub, or not for you", "ids look like org/name"),
    "HFValidationError": ("is no id", "ids look like org/name, or org/name@revision"),
    "NotASafetensorsRepoError": ("has no safetensors file", "give a config.json of a known family"),
    "SafetensorsParsingError": ("has a safetensors file that cannot be read", None),
    "LocalEntryNotFoundError": _NO_NETWORK,
    "OfflineModeIsEnabled": ("the Hub is switched off (HF_HUB_OFFLINE)", _NO_NETWORK[1]),
    "EntryNotFoundError": (f"has no {CONFIG_NAME}", None),
    "HfHubHTTPError": ("the Hub refuses", None),
    "ConnectError": _NO_NETWORK,
    "ConnectionError": _NO_NETWORK,
    "TimeoutException": _NO_NETWORK,
    "Timeout": _NO_NETWORK,
    "OSError": _NO_NETWORK,
}
"""What each error of the Hub's client, of either of its transports, means for the user, and a hint."""


@lru_cache(maxsize=16)
def read_hub(model: str) -> Architecture:
    """The layout of `org/name`, or `org/name@revision`: from its config, or where its family is unknown from its tensors.

    Raises FileError for what cannot be fetched or read, with the reason.
    """
    client = _client()
    name, _, revision = model.partition("@")
    where = {"repo_id": name, "revision": revision or None}
    config, unread = _config(client, model, where)
    if config is not None and unread is None:
        try:
            return _described(config, model)
        except ZerocalcError as error:
            unread = error
    try:
        metadata = client.get_safetensors_metadata(**where)
    except Exception as error:  # the client's errors and those of its transport have no common base
        no_tensors = unread is not None and "NotASafetensorsRepoError" in _kinds(error)
        raise (unread if no_tensors else None) or _failure(model, error) from None
    headers = [_header(model, file, found) for file, found in sorted(metadata.files_metadata.items())]
    return layout_of(headers, model, config=config)


def _client() -> Any:
    try:
        import huggingface_hub
        from huggingface_hub.utils import disable_progress_bars
    except ImportError:
        raise FileError("--hub needs huggingface_hub", hint="pip install 'zerocalc[hub]'") from None
    disable_progress_bars()
    return huggingface_hub


def _config(client: Any, model: str, where: Mapping[str, Any]) -> tuple[Path | None, ZerocalcError | None]:
    """The model's config as a file; None, and why, for a model that has none. Raises FileError for anything else."""
    try:
        return Path(client.hf_hub_download(filename=CONFIG_NAME, **where)), None
    except Exception as error:
        kinds = _kinds(error)
        if "EntryNotFoundError" not in kinds or "LocalEntryNotFoundError" in kinds:
            raise _failure(model, error) from None
        return None, _failure(model, error)


def _described(config: Path, model: str) -> Architecture:
    from zerocalc.architectures import architecture

    return architecture(read_config(config), origin=f"hub:{model}")


def _header(model: str, file: str, metadata: Any) -> list[Entry]:
    """One file's tensors, held to the same checks as a header on disk."""
    entries = []
    for name, found in metadata.tensors.items():
        item = {"dtype": found.dtype, "shape": list(found.shape), "data_offsets": list(found.data_offsets)}
        entries.append(entry_of(f"{model}/{file}", name, item, 2**63))
    return entries


def _kinds(error: Exception) -> list[str]:
    return [kind.__name__ for kind in type(error).__mro__]


def _failure(model: str, error: Exception) -> FileError:
    """The client's error as one line of ours."""
    said = next((_REASONS[kind] for kind in _kinds(error) if kind in _REASONS), None)
    if said is None:
        text = " ".join(str(error).split())[:200] or type(error).__name__
        return FileError(f"--hub {model}: {text}")
    return FileError(f"--hub {model}: {said[0]}", hint=said[1])
