"""Which releases were last held against zerocalc; a newer one is a warning, not a failure."""

from __future__ import annotations

import warnings
from importlib.metadata import PackageNotFoundError, version

import pytest

pytestmark = pytest.mark.live

HELD = {"torch": "2.13.0", "transformers": "5.24.0", "deepspeed": "0.19.8", "accelerate": "1.15.0"}
"""The releases with which every case of this folder passed."""


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("package", HELD)
def test_the_release_has_been_held(package):
    try:
        installed = version(package).partition("+")[0]
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed: pip install -e '.[live]'")
    if installed != HELD[package]:
        warnings.warn(f"{package} {installed} has not been held yet, {HELD[package]} has", stacklevel=1)
