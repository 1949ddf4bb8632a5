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


PLAUSIBLE = {
    "--tp": "1 2 4", "--pp": "1 2", "--cp": "1 2", "--ep": "1 2 8", "--etp": "1 2", "--gpus-per-node": "1 4 8",
    "--shard-size": "1 2 4 8", "--host-memory": "1GB 2TB", "--nvme-memory": "1GB 30TB", "--reserve": "0B 10% 5GiB",
    "--strategy": "ddp zero1 zero2 zero3 hsdp mics zeropp zero1,zero3 fsdp", "--framework": "paper",
    "--precision": "fp32 fp16-mixed bf16-pure", "--optimizer": "adam sgd lion adafactor muon adamw-8bit", "--k": "0 12 2.03125",
    "--param-dtype": "fp32 bf16", "--grad-dtype": "fp32 fp16", "--reduce-dtype": "fp32", "--trainable": "1 1% 100% 5b",
    "--frozen-dtype": "nf4 int8", "--lora-rank": "1 16", "--lora-targets": "q_proj,v_proj all-linear", "--expert-params": "0 1b",
    "--also": "reference:1b reward:gpt2", "--offload-optimizer": "none cpu nvme", "--offload-params": "none cpu nvme",
    "--micro-batch": "1 3", "--seq-len": "1 128 4096", "--grad-accum": "1 7", "--checkpointing": "none selective full",
    "--attention": "flash math eager sdpa", "--mfu": "0.4 1", "--tokens": "1t", "--peak-flops": "312T", "--busbw": "230GB/s",
    "--set": "qwz=false hpz=4 working_memory=operator", "--units": "GB GiB", "--color": "always never",
}  # fmt: skip
_SENSIBLE = st.one_of(
    st.sampled_from(sorted(PLAUSIBLE)).flatmap(
        lambda flag: st.tuples(st.just(flag), st.sampled_from(PLAUSIBLE[flag].split()))
    ),
    st.sampled_from(["--sequence-parallel", "--require-fit", "-q"]).map(lambda flag: (flag,)),
)


@st.composite
def sensible(draw):
    """Questions that mostly have an answer, so that every renderer sees odd ones."""
    subject = draw(
        st.sampled_from(
            [
                "compare",
                "estimate",
                "solve gpus",
                "solve params",
                "solve strategy",
                "explain peak",
                "explain sent",
            ]
        )
    )
    model = draw(
        st.sampled_from(
            ["1", "7b", "70b", "1e15", "llama-3-8b", "mixtral-8x7b", "gpt2", "opt-125m", "bert-base-uncased"]
        )
    )
    ranks = draw(st.sampled_from(["-n 8", "-n 64", "--dp 1", "-n 16 --node dgx-h100"]))
    gpu = draw(st.sampled_from(["", "--gpu h100", "--gpu 80GB", "--gpu 1B"])) if "node" not in ranks else ""
    options = draw(st.lists(_SENSIBLE, max_size=5))
    fmt = draw(st.sampled_from(["", "-f json", "-f csv", "-f markdown", "-f jsonl"]))
    return [
        *f"{subject} {model} {ranks} {gpu} {fmt}".split(),
        *(part for option in options for part in option),
    ]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sensible())
def test_no_sensible_question_finds_a_fault(arguments):
    test_no_arguments_find_a_fault.hypothesis.inner_test(arguments)


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
