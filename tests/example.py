"""The example repository, copied where a test may change it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent / "example_repo"
GIT = ("git", "-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")


def copy(folder: Path) -> Path:
    """A fresh copy of the example below `folder`."""
    return Path(shutil.copytree(ROOT, folder / "example"))


def deepspeed(repo: Path, **changes) -> None:
    """Change keys of ds_config.json; `stage` stands below zero_optimization."""
    path = repo / "ds_config.json"
    config = json.loads(path.read_text())
    if "stage" in changes:
        config["zero_optimization"]["stage"] = changes.pop("stage")
    path.write_text(json.dumps(config | changes, indent=2))


def project(repo: Path, old: str, new: str) -> None:
    """Change zerocalc.toml by a pattern that must match once."""
    path = repo / "zerocalc.toml"
    text, count = re.subn(old, new, path.read_text(), flags=re.MULTILINE)
    assert count == 1
    path.write_text(text)


def git(repo: Path, *arguments: str) -> str:
    """Run git in a repository."""
    return subprocess.run([*GIT, *arguments], cwd=repo, check=True, capture_output=True, text=True).stdout


def committed(folder: Path) -> Path:
    """A copy of the example as a git repository with one commit on `main`."""
    repo = copy(folder)
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "example")
    return repo
