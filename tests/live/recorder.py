"""What a rank sends and what it keeps: every collective, and every storage that is still alive."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import ProcessGroup
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_DTYPES = {
    torch.float64: "fp64", torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.uint8: "uint8",
    torch.int8: "int8", torch.int32: "int32", torch.int64: "int64",
}  # fmt: skip
_OPS = {
    "allgather": "all_gather", "allgather_base": "all_gather", "allgather_into_tensor_coalesced": "all_gather",
    "all_gather_into_tensor": "all_gather", "reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter", "reduce_scatter_tensor": "reduce_scatter",
    "allreduce": "all_reduce", "allreduce_coalesced": "all_reduce", "alltoall_base": "all_to_all", "alltoall": "all_to_all",
}  # fmt: skip
"""The dispatcher's names and ours; any other name stays as it is, so that it shows up as a difference."""
_SILENT = frozenset({"barrier", "monitored_barrier", "wait_tensor"})


class Recorder(TorchDispatchMode):
    """Sees every operation while it is switched on.

    `phase` is set by whoever runs the step; messages are totalled under `phase|op|dtype|group size`, and `peaks` has the
    most bytes that were alive at once in each phase.
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase = "start"
        self.sent: dict[str, list[int]] = {}
        self.peaks: dict[str, int] = {}
        self._watching = False
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operation, note its storages and, for a collective, what it carries."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # DTensor calls again with its local tensors
        out = func(*args, **(kwargs or {}))
        if func.namespace in {"c10d", "_c10d_functional"}:
            self._count(func, args, out)
            self._note(_tensors(args))
        self._note(_tensors(out))
        if self._watching:
            self._watch()
        return out

    def start_step(self, *, watch: bool) -> None:
        """Forget the messages so far, as only the last step counts; `watch` its peak, which takes a few times longer."""
        self.sent.clear()
        self._watching = watch

    def _watch(self) -> None:
        bytes_alive = sum(storage.nbytes() for storage in self._alive())
        self.peaks[self.phase] = max(self.peaks.get(self.phase, 0), bytes_alive)

    def held(self, owners: Mapping[str, Iterable[torch.Tensor]]) -> dict[str, int]:
        """Bytes of live storages by the first owner that shows them; what nobody owns is `elsewhere`."""
        left = {id(storage): storage.nbytes() for storage in self._alive()}
        held = {}
        for owner, tensors in owners.items():
            seen = {}
            for tensor in tensors:
                storage = local(tensor).untyped_storage()
                if id(storage) in left:
                    seen[id(storage)] = left.pop(id(storage))
            held[owner] = sum(seen.values())
        return {**held, "elsewhere": sum(left.values())}

    def _alive(self) -> list[torch.UntypedStorage]:
        alive, gone = [], []
        for key, seen in self._storages.items():
            storage = seen()
            if storage is None:
                gone.append(key)
            else:
                alive.append(storage)
        for key in gone:
            del self._storages[key]
        return alive

    def _note(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            if tensor.device.type != "meta":
                storage = local(tensor).untyped_storage()
                seen = self._storages.get(id(storage))
                if seen is None or seen() is not storage:
                    self._storages[id(storage)] = weakref.ref(storage)

    def _count(self, func: Any, args: tuple[Any, ...], out: Any) -> None:
        name = func.__name__.partition(".")[0].strip("_")
        if name in _SILENT:
            return
        functional = func.namespace == "_c10d_functional"
        sides = [_tensors(args[:1]), _tensors(out if functional else args[1:2])]
        carried = max(sides, key=_bytes)
        op, dtype = _OPS.get(name, name), carried[0].dtype
        key = f"{self.phase}|{op}|{_DTYPES.get(dtype, str(dtype))}|{_group_size(args)}"
        total = self.sent.setdefault(key, [0, 0])
        total[0] += 1
        total[1] += _bytes(carried)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a distributed tensor; any other tensor itself."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _group_size(args: tuple[Any, ...]) -> int | None:
    """Ranks of the group: a handle among the arguments, or its name in a functional collective."""
    for arg in args:
        if isinstance(arg, torch.ScriptObject) and "ProcessGroup" in str(arg._type()):
            return ProcessGroup.unbox(arg).size()
    names = [arg for arg in args if isinstance(arg, str)]
    return _resolve_process_group(names[-1]).size() if names else None
