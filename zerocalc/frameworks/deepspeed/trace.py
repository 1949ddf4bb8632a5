"""What stage 3 gathers in a step: its prefetcher and its rules of release, replayed over the order of modules.

DeepSpeed records one step and replays it: before a module runs, what it needs is gathered and, behind it, as many of
the parameters needed next as fit the prefetch bucket; after it ran, its parameters go unless they are needed again
within the reuse distance, or the prefetcher counted on them. Nothing here is closed form: the same walk is taken.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from zerocalc.frameworks.deepspeed.modules import Module, Param

Phase = Literal["forward", "backward"]


class Event(NamedTuple):
    """A module is entered (its parameters are fetched) or left (they may go)."""

    enters: bool
    module: Module
    phase: Phase


class Gather(NamedTuple):
    """One all-gather: the parameters it brings, in which phase, and whether from the secondary copy (hpZ)."""

    phase: Phase
    params: tuple[Param, ...]
    secondary: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings that govern a trace, in elements."""

    prefetch: int
    max_live: int
    max_reuse: int
    persistent: frozenset[str]
    """Names of parameters that stay whole on every rank."""


@dataclass(slots=True)
class Trace:
    """The gathers of one micro-step, and the most elements that were gathered at once in each phase."""

    gathers: list[Gather] = field(default_factory=list)
    live_peak: dict[Phase, int] = field(default_factory=lambda: {"forward": 0, "backward": 0})
    live_at_turn: int = 0
    """Elements still gathered when the forward pass ends."""
    released: set[str] = field(default_factory=set)
    """Parameters that were dropped at least once: hpZ has a secondary copy of them."""


def step_events(root: Module, *, checkpointing: bool) -> list[Event]:
    """The order in which modules are entered and left in one forward and backward pass."""
    return [*_forward(root), *_backward(root, checkpointing=checkpointing)]


def _forward(module: Module) -> Iterator[Event]:
    yield Event(True, module, "forward")
    for child in module.called:
        yield from _forward(child)
    yield Event(False, module, "forward")


def _backward(module: Module, *, checkpointing: bool) -> Iterator[Event]:
    if not module.has_backward:
        return
    if module.is_layer and checkpointing:
        yield from _recomputed(module)
        return
    yield Event(True, module, "backward")
    for child in reversed(module.called):
        yield from _backward(child, checkpointing=checkpointing)
    yield Event(False, module, "backward")


def _recomputed(layer: Module) -> Iterator[Event]:
    """A checkpointed layer: its last module is fetched, the layer runs again up to that module's input, then backward."""
    path = _last_path(layer)
    backward = list(_backward_plain(layer))
    entered = len(path)
    yield from backward[:entered]
    yield from _forward_until(layer, path)
    yield from backward[entered:]


def _last_path(module: Module) -> list[Module]:
    path = [module]
    while path[-1].called:
        path.append(path[-1].called[-1])
    return path


def _backward_plain(module: Module) -> Iterator[Event]:
    yield Event(True, module, "backward")
    for child in reversed(module.called):
        yield from _backward_plain(child)
    yield Event(False, module, "backward")


def _forward_until(module: Module, path: list[Module]) -> Iterator[Event]:
    """Enter everything up to the last module of `path`; what is on the path is never left."""
    yield Event(True, module, "backward")
    for child in module.called:
        yield from _forward_until(child, path) if child in path else _again(child)


def _again(module: Module) -> Iterator[Event]:
    yield Event(True, module, "backward")
    for child in module.called:
        yield from _again(child)
    yield Event(False, module, "backward")


class Gatherer:
    """The replay of one recorded step."""

    def __init__(
        self, events: Iterable[Event], limits: Limits, *, secondary: bool = False, copied: Iterable[str] = ()
    ) -> None:
        """Take the recorded order; `copied` names parameters that have a secondary copy from earlier micro-steps."""
        self.events = list(events)
        self.limits = limits
        self.secondary = secondary
        self.trace = Trace(released=set(copied))
        self._modules = [event.module for event in self.events if event.enters]
        self._queue = deque(
            (param, step) for step, module in enumerate(self._modules) for param in sorted_params(module)
        )
        self._traversed = [0]
        for module in self._modules:
            self._traversed.append(self._traversed[-1] + sum(param.numel for param in module.held))
        self._uses: dict[str, list[int]] = defaultdict(list)
        for step, module in enumerate(self._modules):
            for param in module.held:
                self._uses[param.name].append(step)
        self._present: set[str] = set()
        self._active: dict[str, set[int]] = defaultdict(set)
        self._fetched_for: dict[str, int] = defaultdict(lambda: -1)
        self._live = 0
        self._step = 0

    def run(self) -> Trace:
        """Replay the step."""
        for event in self.events:
            if event.enters:
                self._enter(event)
            else:
                self._leave(event)
            if event.phase == "forward":
                self.trace.live_at_turn = self._live
        return self.trace

    def _gather(self, params: Iterable[Param], phase: Phase) -> None:
        missing = [p for p in params if p.name not in self._present and p.name not in self.limits.persistent]
        for copied in (True, False):
            group = tuple(p for p in missing if self._has_copy(p) is copied)
            if group:
                self.trace.gathers.append(Gather(phase, group, copied))
        self._present.update(p.name for p in missing)
        self._live += sum(p.numel for p in missing)
        self.trace.live_peak[phase] = max(self.trace.live_peak[phase], self._live)

    def _has_copy(self, param: Param) -> bool:
        return self.secondary and param.name in self.trace.released

    def _enter(self, event: Event) -> None:
        needed = event.module.held
        self._gather(needed, event.phase)
        for param in needed:
            self._active[param.name].add(id(event.module))
        self._forget(needed)
        self._prefetch(event.phase)
        self._step += 1

    def _forget(self, needed: list[Param]) -> None:
        """Take what this module uses off the prefetch queue, unless an earlier prefetch already did."""
        waiting = len({p.name for p in needed if self._fetched_for[p.name] < self._step})
        discarded: set[str] = set()
        while self._queue and len(discarded) < waiting:
            param, step = self._queue.popleft()
            self._fetched_for[param.name] = step
            discarded.add(param.name)

    def _prefetch(self, phase: Phase) -> None:
        room = min(self.limits.max_live - self._live, self.limits.prefetch)
        chosen: dict[str, Param] = {}
        numel = 0
        while self._queue and numel < room:
            param, step = self._queue.popleft()
            self._fetched_for[param.name] = max(self._fetched_for[param.name], step)
            here = param.name in self._present or param.name in self.limits.persistent
            if not here and param.name not in chosen:
                chosen[param.name] = param
                numel += param.numel
        self._gather(chosen.values(), phase)

    def _leave(self, event: Event) -> None:
        for param in event.module.held:
            self._active[param.name].discard(id(event.module))
            if param.name in self._present and not self._active[param.name] and not self._kept(param):
                self._present.discard(param.name)
                self._live -= param.numel
                self.trace.released.add(param.name)

    def _kept(self, param: Param) -> bool:
        """Whether it is needed again soon, or the prefetcher passed over a later use because it was there."""
        if self._fetched_for[param.name] > self._step:
            return True
        following = next((step for step in self._uses[param.name] if step >= self._step), None)
        if following is None:
            return False
        return self._traversed[following] - self._traversed[self._step] < self.limits.max_reuse


def sorted_params(module: Module) -> list[Param]:
    """A module's parameters, each once, in the order of registration."""
    return list({param.name: param for param in module.held}.values())


def micro_steps(
    root: Module, limits: Limits, *, checkpointing: bool, count: int, secondary: bool
) -> list[Trace]:
    """The first micro-step's trace and, when there are more, that of each of the others; with hpZ they differ."""
    events = step_events(root, checkpointing=checkpointing)
    first = Gatherer(events, limits, secondary=secondary).run()
    if count == 1:
        return [first]
    held = {param.name for module in root.walk() for param in module.params} - limits.persistent
    return [first, Gatherer(events, limits, secondary=secondary, copied=held).run() if secondary else first]
