"""A real browser without a window, driven over a pipe in its own protocol: no package, no port, no network."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from itertools import count
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


def executable():
    """The browser's path; the test that asks is skipped where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no chromium: install the system package `chromium`")
    return found


class Browser:
    """One browser with one page."""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        from_us, self._to = os.pipe()
        self._from, from_it = os.pipe()
        command = [executable(), *FLAGS, f"--user-data-dir={self._folder.name}"]
        # The protocol is spoken on descriptors 3 and 4, whichever the pipe's are.
        shell = f'exec "$@" 3<&{from_us} 4>&{from_it}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command], pass_fds=(from_us, from_it),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(from_us)
        os.close(from_it)
        self._numbers, self._buffer, self._session, self.events = count(1), b"", None, []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self._session = None
        self.ask("Browser.close")
        self._process.wait(20)
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()

    def ask(self, method, **parameters):
        """Send one command and wait for its answer; what happens meanwhile is kept in `events`."""
        message = {"id": next(self._numbers), "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            received = self._read()
            if received.get("id") == message["id"]:
                assert "error" not in received, received
                return received["result"]
            self.events.append(received)

    def _read(self):
        while b"\0" not in self._buffer:
            chunk = os.read(self._from, 1 << 20)
            assert chunk, "the browser is gone"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, path, *, width, height=900, dark=False):
        """Load a file in a window of this size and theme, and wait until it is there."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.ask("Page.navigate", url=Path(path).as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def run(self, script):
        """The value of an expression in the page."""
        return self.ask("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def press(self, key, code):
        """One key, down and up."""
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                     **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}))  # fmt: skip

    def picture(self, path):
        """The whole page as a PNG."""
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def happened(self, method):
        """The parameters of every event of a kind."""
        return [event["params"] for event in self.events if event.get("method") == method]
