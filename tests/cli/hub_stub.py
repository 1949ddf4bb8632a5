"""A stand-in for the Hub's client: a folder of models, and the errors that the real one raises. No network."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

from zerocalc.readers.hub import read_hub


class HfHubHTTPError(Exception):
    pass


class RepositoryNotFoundError(HfHubHTTPError):
    pass


class GatedRepoError(RepositoryNotFoundError):
    pass


class RevisionNotFoundError(HfHubHTTPError):
    pass


class EntryNotFoundError(Exception):
    pass


class LocalEntryNotFoundError(EntryNotFoundError, FileNotFoundError):
    pass


class NotASafetensorsRepoError(Exception):
    pass


class HFValidationError(ValueError):
    pass


class ConnectError(Exception):
    pass


FAULTS = {
    "org/gated": GatedRepoError,
    "org/none": RepositoryNotFoundError,
    "org/offline": LocalEntryNotFoundError,
    "org/unreachable": ConnectError,
    "no id at all": HFValidationError,
    "org/broken": HfHubHTTPError,
}


def install(monkeypatch, folder: Path, tensors=None):
    """Put the stand-in where the client would be; `tensors` maps a model to files of tensors. Returns what was asked."""
    asked = []

    def download(*, repo_id, filename, revision):
        asked.append((repo_id, filename, revision))
        if repo_id in FAULTS:
            raise FAULTS[repo_id]("a long text\nof the client's own")
        if revision == "missing":
            raise RevisionNotFoundError
        path = folder / repo_id / filename
        if not path.exists():
            raise EntryNotFoundError
        return str(path)

    def metadata(*, repo_id, revision):
        asked.append((repo_id, "safetensors", revision))
        if repo_id not in (tensors or {}):
            raise NotASafetensorsRepoError
        return SimpleNamespace(files_metadata=tensors[repo_id])

    client, utils = ModuleType("huggingface_hub"), ModuleType("huggingface_hub.utils")
    client.hf_hub_download, client.get_safetensors_metadata = download, metadata
    client.utils, utils.disable_progress_bars = utils, lambda: None
    monkeypatch.setitem(sys.modules, "huggingface_hub", client)
    monkeypatch.setitem(sys.modules, "huggingface_hub.utils", utils)
    read_hub.cache_clear()
    return asked


def tensor(dtype, *shape, at=0):
    """One tensor as the client describes it."""
    size = {"BF16": 2, "F32": 4, "I64": 8}[dtype]
    for dimension in shape:
        size *= dimension
    return SimpleNamespace(dtype=dtype, shape=list(shape), data_offsets=(at, at + size))
