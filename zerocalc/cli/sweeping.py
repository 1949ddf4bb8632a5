"""A sweep from the command line: its grid from what was typed, its rows to where they go, its progress on stderr."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from zerocalc.cli.failures import NO, OK
from zerocalc.errors import FileError

if TYPE_CHECKING:
    from zerocalc.questions.sweep import Sweep
    from zerocalc.specs.job import Job

Write = Callable[[str], None]
GRID_WORDS = ("over", "where", "sort", "top", "pareto")
_LISTS = ("strategy", "framework", "also", "lora_targets")
_EVERY_S = 0.2


def run(typed: Mapping[str, Any]) -> int:
    """Run the sweep and return the exit code: 1 where a fit was required and nothing fits."""
    from zerocalc.cli.output import sink_of
    from zerocalc.questions.sweep import prepare
    from zerocalc.render.stream import stream

    job_words = {name: value for name, value in typed.items() if name not in GRID_WORDS}
    sweep = prepare(
        builder(job_words),
        [*typed["over"], *_several(job_words, typed["over"])],
        **{word: typed[word] for word in GRID_WORDS[1:]},
    )
    sink = sink_of(job_words, "sweep")
    writer = stream(sink.fmt, sweep.head(), sink.look)
    with (
        destination(sink.path) as write,
        interruptible() as stopped,
        progress(sweep, quiet=sink.look.quiet) as shown,
    ):
        # The opening goes out with the first rows, so that where there can be none stdout stays empty.
        ahead, written = writer.opening(), 0
        for rows in sweep.progress():
            if rows:
                write(ahead + writer.rows(rows))
                ahead, written = "", written + len(rows)
            shown()
            stopped()
        write(ahead + writer.closing(written, sweep.tally.reasons))
    _summary(sweep, written, quiet=sink.look.quiet or sink.fmt in {"table", "markdown"})
    return NO if typed.get("require_fit") and not sweep.tally.fitting else OK


def _several(job_words: Mapping[str, Any], over: tuple[str, ...]) -> list[str]:
    """Several strategies or frameworks given by their own option are an axis too."""
    given = {text.partition("=")[0].strip() for text in over}
    axes = []
    for word in ("strategy", "framework"):
        names = ",".join(job_words.get(word) or ())
        if "," in names and word not in given:
            axes.append(f"{word}={names}")
    return axes


def builder(job_words: Mapping[str, Any]) -> Callable[[Mapping[str, str]], Job]:
    """How the job of a point comes about: as if its values had been typed."""
    from zerocalc.cli.question import question

    def build(point: Mapping[str, str]) -> Job:
        typed = dict(job_words)
        own = [
            f"{word.removeprefix('set.')}={text}" for word, text in point.items() if word.startswith("set.")
        ]
        for word, text in point.items():
            if not word.startswith("set."):
                typed[word] = (text,) if word in _LISTS else text
        names = {text.partition("=")[0] for text in own}
        kept = [text for text in typed.get("set") or () if text.partition("=")[0].strip() not in names]
        typed["set"] = (*kept, *own)
        return question(typed).job

    return build


@contextmanager
def destination(path: str | None) -> Iterator[Write]:
    """Where the text goes: stdout, or a file that appears whole or not at all."""
    if path is None:
        yield _to_stdout
        return
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        if target.is_dir():
            raise FileError(f"{path}: is a directory", hint="name a file in it")
        with target.open("w", encoding="utf-8", newline="\n") as device:
            yield lambda text: _send(device, text)
        return
    try:
        descriptor, temporary = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.name[:100]}.", suffix=".part"
        )
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FileError(
            f"{path}: cannot be written: {reason}", hint="choose another place with -o"
        ) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            yield lambda text: _send(stream, text)
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _send(stream: Any, text: str) -> None:
    stream.write(text)
    stream.flush()


def _to_stdout(text: str) -> None:
    """Write all of a text whatever signals arrive: a buffered write that is interrupted may lose its end."""
    if sys.stdout is None:
        raise OSError("standard output is closed")
    content = text.encode(getattr(sys.stdout, "encoding", None) or "utf-8", "backslashreplace")
    sys.stdout.flush()
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        _send(sys.stdout, content.decode(getattr(sys.stdout, "encoding", None) or "utf-8"))
        return
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Ctrl-C takes effect between chunks, so that only whole rows are written; a second one at once."""
    asked: list[bool] = []

    def note(number: int, frame: Any) -> None:
        if asked:
            signal.default_int_handler(number, frame)
        asked.append(True)

    def stopped() -> None:
        if asked:
            raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGINT, note)
    except ValueError:  # not the main thread
        yield stopped
        return
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def progress(sweep: Sweep, *, quiet: bool) -> Iterator[Callable[[], None]]:
    """A line on stderr that says how far the sweep is, where stderr is a terminal."""
    stream = sys.stderr
    if quiet or stream is None or not stream.isatty():
        yield lambda: None
        return
    total, last = sweep.grid.size, [monotonic()]

    def show() -> None:
        if monotonic() - last[0] >= _EVERY_S:
            last[0] = monotonic()
            done, found = sweep.tally.evaluated, sweep.tally.found
            stream.write(
                f"\r\x1b[K{done:,} of {total:,} configurations ({done * 100 // total}%), {found:,} rows"
            )
            stream.flush()

    try:
        yield show
    finally:
        stream.write("\r\x1b[K")
        stream.flush()


def _summary(sweep: Sweep, written: int, *, quiet: bool) -> None:
    """One line on stderr: how many there were, and why some could not be."""
    if quiet or sys.stderr is None:
        return
    tally = sweep.tally
    lines = [f"{written:,} rows of {tally.evaluated:,} configurations"]
    lines += [f"{item.num_configurations:,} cannot be: {item.reason}" for item in tally.reasons[:3]]
    sys.stderr.write("\n".join(lines) + "\n")
