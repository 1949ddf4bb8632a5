"""Words become a job: precedence of names, consistency, and one clear line for what is wrong."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zerocalc
from zerocalc.errors import ZerocalcError
from zerocalc.jobs.givens import WORDS
from zerocalc.jobs.resolve import resolve
from zerocalc.readers.reading import Given


def refused(**words):
    with pytest.raises(ZerocalcError) as caught:
        zerocalc.job(**{"model": "7b", "dp": 8} | words)
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"model": "0"}, "between 1 and"),
        ({"model": "-7b"}, "between 1 and"),
        ({"model": "nan"}, "unknown model"),
        ({"model": "1e400"}, "too large"),
        ({"model": "1e16"}, "between 1 and"),
        ({"model": ""}, "empty"),
        ({"model": "llama-3-8bb"}, "did you mean 'llama-3-8b'"),
        ({"model": "./nowhere.json"}, "no such file"),
        ({"dp": 0}, "--dp: must be between 1"),
        ({"dp": "many"}, "--dp: 'many' is not a count"),
        ({"gpus": 64}, "contradict"),
        ({"dp": None, "gpus": 6, "tp": 4}, "not divisible by tp·pp·cp"),
        ({"ep": 16}, "not divisible by ep·etp·pp"),
        ({"gpu": "80"}, "no clear unit"),
        ({"gpu": "80g"}, "no clear unit"),
        ({"gpu": "h10"}, "unknown GPU 'h10'"),
        ({"gpu": "80GB", "reserve": "90GB"}, "more than the GPU's"),
        ({"reserve": "10%"}, "share of the GPU's memory"),
        ({"k": "nan"}, "not a number"),
        ({"k": "-1"}, "not a number"),
        ({"k": "2000"}, "--k: must be at most 1,024"),
        ({"param_dtype": "bf17"}, "unknown dtype"),
        ({"precision": "half"}, "unknown precision"),
        ({"optimizer": "adamx"}, "unknown optimizer"),
        ({"strategy": "zero4"}, "unknown strategy 'zero4'; did you mean"),
        ({"checkpointing": "some"}, "must be one of none, selective, full"),
        ({"offload_optimizer": "gpu"}, "must be one of none, cpu, nvme"),
        ({"trainable": "101%"}, "at most 100%"),
        ({"trainable": "8b"}, "between 0 and"),
        ({"lora_rank": 8}, "needs the model's shape"),
        ({"also": ["critic:7b"]}, "ROLE one of frozen"),
        ({"micro_batch": 0, "seq_len": 1}, "--micro-batch: must be between 1"),
        ({"micro_batch": True}, "must be a whole number"),
        ({"grad_accum": "1.5"}, "not a whole number"),
    ],
)
def test_bad_words_get_one_line_that_names_them(words, says):
    assert says in refused(**words)


def test_a_file_is_named_by_its_key():
    words = {"model": Given("7b", "flag"), "dp": Given(0, "file:job.toml:dp")}
    with pytest.raises(ZerocalcError, match=r"^job\.toml: dp: must be between 1"):
        resolve(words)


def test_either_world_or_degree_and_both_when_they_agree():
    assert zerocalc.job("7b", gpus=64, tp=4, pp=2).parallelism.data_parallel_size == 8
    assert zerocalc.job("7b", dp=8, tp=4, pp=2).parallelism.world_size == 64
    assert zerocalc.job("7b", dp=8, gpus=64, tp=4, pp=2).parallelism.world_size == 64


def test_context_parallel_ranks_share_parameters_but_not_batches():
    parallelism = zerocalc.job("7b", gpus=64, cp=4).parallelism
    assert (parallelism.data_parallel_size, parallelism.shard_size) == (16, 64)


def test_a_node_implies_gpu_ram_and_ranks():
    job = zerocalc.job("7b", gpus=16, node="dgx-2")
    assert job.machine.gpu.startswith("v100")
    assert job.parallelism.gpus_per_node == 16
    assert job.machine.host_memory_bytes == 1_500_000_000_000
    assert job.origins["host_memory_bytes"] == "preset:dgx-2"


def test_flags_override_a_precision():
    job = zerocalc.job("7b", dp=8, grad_dtype="fp32")
    assert (job.precision.grad_dtype, job.precision.reduce_dtype) == ("fp32", "fp32")
    assert zerocalc.job("7b", dp=8, k="2.03125").optimizer.bytes_per_param == Fraction(65, 32)


def test_every_value_says_where_it_came_from():
    request = zerocalc.estimate(zerocalc.job("llama-3-8b", gpus=8, gpu="h100", strategy="zero3")).request
    assert request["num_params"].origin == "preset:llama-3-8b"
    assert request["world_size"].origin == "argument"
    assert request["grad_accum"].origin == "default"
    assert request["optimizer_bytes_per_param"].origin == "preset:adamw under preset:mixed-bf16"
    assert request["capacity_bytes"].origin.startswith("preset:h100")


def test_an_unknown_keyword_is_a_type_error():
    with pytest.raises(TypeError, match="microbatch"):
        zerocalc.job("7b", dp=8, microbatch=1)


@settings(max_examples=150, deadline=None)
@given(
    words=st.dictionaries(
        st.sampled_from(sorted(WORDS - {"presets"})),
        st.one_of(
            st.text(max_size=12),
            st.integers(),
            st.floats(),
            st.booleans(),
            st.lists(st.text(max_size=5), max_size=2),
        ),
        max_size=5,
    )
)
def test_nothing_but_a_clear_error_comes_out_of_any_words(words):
    given = {word: Given(value, "flag") for word, value in words.items()} | {"dp": Given(8, "flag")}
    with contextlib.suppress(ZerocalcError):
        zerocalc.compare(resolve(given))


def test_importing_loads_neither_click_nor_rich_nor_numpy():
    script = (
        "import sys, zerocalc; zerocalc.compare(zerocalc.job('7b', dp=8, gpu='80GB'));"
        "print({'click', 'rich', 'numpy', 'yaml', 'hjson'} & set(sys.modules))"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "set()"
