"""Completion, as the shells ask for it."""

import pytest

from .running import call, process


def _completed(words, *, shell="bash"):
    typed = words.split(" ")
    done = process(_ZEROCALC_COMPLETE=f"{shell}_complete", COMP_WORDS=words, COMP_CWORD=str(len(typed) - 1))
    assert (done.code, done.err) == (0, "")
    return [line.partition(",")[2] for line in done.out.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_every_shell_has_a_script(shell):
    done = call("completion", shell)
    assert done.code == 0
    assert "_ZEROCALC_COMPLETE" in done.out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("zerocalc comp", {"compare", "completion"}),
        ("zerocalc compare llama-3-8", {"llama-3-8b"}),
        ("zerocalc compare --gpu h100-s", {"h100-sxm-80"}),
        (
            "zerocalc compare --strategy zero1,ze",
            {"zero1,zero1", "zero1,zero2", "zero1,zero3", "zero1,zeropp"},
        ),
        ("zerocalc compare --format j", {"json", "jsonl"}),
        ("zerocalc compare --offload-opt", {"--offload-optimizer"}),
        ("zerocalc compare --offload-optimizer n", {"none", "nvme"}),
        ("zerocalc solve g", {"gpus"}),
        ("zerocalc presets show gpus h100-s", {"h100-sxm-80"}),
        ("zerocalc presets show settings paper:qw", {"paper:qwz"}),
        ("zerocalc schema comp", {"compare"}),
    ],
)
def test_what_is_completed(words, expected):
    assert expected <= set(_completed(words))
