"""The ranks of a job as processes on 127.0.0.1: started once per world, fed case by case, killed on failure.

A case is one message `(module, case)` to every rank, which answers with what `module.run(case, rank)` returns.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import socket
import time
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.live.cases import Case

FIRST_SECONDS, SECONDS = 600, 120
"""How long the first case of a world may take (DeepSpeed may compile), and any later one."""


class CaseFailedError(Exception):
    """A rank raised, died or did not answer; the text is its traceback."""


class Ranks:
    """`world` processes, started when they are first asked."""

    def __init__(self, world: int) -> None:
        self.world = world
        self._processes: list[Any] = []

    def run(self, module: str, case: Case) -> list[dict[str, Any]]:
        """What every rank recorded of a case of `module`, such as `tests.live.torch_runs`, in order of ranks."""
        limit = SECONDS if self._processes else FIRST_SECONDS
        if not self._processes:
            self._start()
        for inbox in self._inboxes:
            inbox.put((module, case))
        try:
            return self._answers(time.monotonic() + limit)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill the processes that this object started."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        self._processes = []

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._outbox = context.Queue()
        self._inboxes = [context.Queue() for _ in range(self.world)]
        port = _free_port()
        for rank, inbox in enumerate(self._inboxes):
            given = (rank, self.world, port, inbox, self._outbox)
            process = context.Process(target=_serve, args=given, daemon=True)
            process.start()
            self._processes.append(process)

    def _answers(self, deadline: float) -> list[dict[str, Any]]:
        answers: dict[int, dict[str, Any]] = {}
        while len(answers) < self.world:
            try:
                rank, facts, error = self._outbox.get(timeout=1)
            except queue.Empty:
                self._check(deadline)
                continue
            if error:
                raise CaseFailedError(f"rank {rank} of {self.world}:\n{error}")
            answers[rank] = facts
        return [answers[rank] for rank in range(self.world)]

    def _check(self, deadline: float) -> None:
        dead = [rank for rank, process in enumerate(self._processes) if not process.is_alive()]
        if dead:
            raise CaseFailedError(f"rank {dead[0]} of {self.world} died without a word")
        if time.monotonic() > deadline:
            raise CaseFailedError("no answer in time: a rank waits for a message that is never sent")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _serve(rank: int, world: int, port: int, inbox: Any, outbox: Any) -> None:
    """One rank: join the group, then run whatever comes in."""
    try:
        _join(rank, world, port)
        while True:
            module, case = inbox.get()
            outbox.put((rank, import_module(module).run(case, rank), None))
    except Exception:
        outbox.put((rank, None, traceback.format_exc()))


def _join(rank: int, world: int, port: int) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1",
        DS_ACCELERATOR="cpu", DS_BUILD_OPS="0", TOKENIZERS_PARALLELISM="false",
    )  # fmt: skip
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
