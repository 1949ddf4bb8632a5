"""Whatever is typed: no traceback, no fault of ours, nothing on stdout when there is an error."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zerocalc.cli import COMMANDS
from zerocalc.cli.options import SECTIONS

from .running import call

VALUES = st.one_of(
    st.sampled_from(
        [
            "0",
            "1",
            "2",
            "3",
            "8",
            "64",
            "-1",
            "70b",
            "7.5e9",
            "1e400",
            "nan",
            "inf",
            "80GB",
            "80",
            "80g",
            "0GB",
            "1e30TB",
            "50%",
            "101%",
            "h100",
            "a100",
            "llama-3-8b",
            "gpt2",
            "mixtral-8x7b",
            "zero1",
            "zero2,zero3",
            "hsdp",
            "mics",
            "zeropp",
            "fsdp",
            "cpu",
            "nvme",
            "none",
            "fp32",
            "bf16",
            "fp8",
            "adamw",
            "sgd",
            "adafactor",
            "full",
            "flash",
            "paper",
            "qwz=0",
            "hpz=8",
            "a=b",
            "=",
            ",",
            ".",
            "./x",
            "/",
            "-",
            "--",
            "1_000",
            "٣",
            "Ψ",
            "1,5",
            "9999999999999999999",
        ]
    ),
    st.text(max_size=8),
    st.integers(-5, 10**20).map(str),
)
_FLAGS = [row.flags.split()[-1] for rows in SECTIONS.values() for row in rows if not row.is_flag]
_SWITCHES = [row.flags.split()[-1] for rows in SECTIONS.values() for row in rows if row.is_flag]
_OPTION = st.one_of(
    st.tuples(st.sampled_from([*_FLAGS, "--units", "--color"]), VALUES),
    st.sampled_from([*_SWITCHES, "-q", "--nonsense", "-x"]).map(lambda flag: (flag,)),
)
_SUBJECTS = {
    "solve": ["params", "gpus", "strategy"],
    "explain": ["total", "peak", "sent", "links"],
    "presets": ["list", "show"],
}


@st.composite
def typed(draw):
    name = draw(st.sampled_from([name for name in COMMANDS if name != "completion"]))
    subject = [draw(st.sampled_from(_SUBJECTS[name]) | VALUES)] if name in _SUBJECTS else []
    model = draw(st.lists(VALUES, max_size=1))
    ranks = draw(st.sampled_from([(), ("-n", "8"), ("--dp", "64"), ("-n", "8", "--gpu", "80GB")]))
    options = draw(st.lists(_OPTION, max_size=4))
    fmt = draw(st.sampled_from([(), ("-f", "json"), ("-f", "csv"), ("-f", "markdown"), ("-f", "jsonl")]))
    return [name, *subject, *model, *ranks, *(part for option in options for part in option), *fmt]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(typed())
def test_no_arguments_find_a_fault(arguments):
    done = call(*arguments)
    assert done.code in {0, 1, 2}, done.err
    assert "Traceback" not in done.err
    if done.code == 2:
        assert done.out == ""
        assert done.err
    elif "-f" in arguments and arguments[arguments.index("-f") + 1] == "json" and arguments[0] != "schema":
        json.loads(done.out) if done.out.startswith("{") else None
