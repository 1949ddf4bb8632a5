"""zerocalc's own job file: the flags' words, flat or in sections."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from zerocalc.errors import FileError, SpecError, ZerocalcError
from zerocalc.readers.jobfile import FILES, VOCABULARY, job_reading, read_job

CONFIGS = Path(__file__).parents[1] / "data" / "configs"


def plain(given):
    return {name: value.value for name, value in given.items()}


def test_sections_and_settings():
    path = CONFIGS / "job.toml"
    reading = read_job(path)
    assert plain(reading.values) == {
        "model": "llama-3-8b", "gpus": 64, "gpus_per_node": 8, "gpu": "h100", "offload_optimizer": "cpu", "micro_batch": 2,
        "seq_len": 8192, "grad_accum": 4, "precision": "bf16", "strategy": ["zero2", "zero3"], "framework": "deepspeed",
    }  # fmt: skip
    assert plain(reading.settings) == {"reduce_bucket_size": 200_000_000, "offload_optimizer.ratio": 0.5}
    assert plain(reading.files) == {"deepspeed": str(CONFIGS / "ds_zero3_offload.json")}
    assert reading.values["gpus_per_node"].origin == f"file:{path}:ranks.gpus-per-node"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("job.json", json.dumps({"model": "70b", "micro-batch": 2, "settings": {"a": 1}})),
        ("job.toml", 'model = "70b"\nmicro-batch = 2\nsettings.a = 1'),
        ("job.yaml", "model: 70b\nmicro-batch: 2\nsettings: {a: 1}"),
        ("job.yml", "model: 70b\nwork: {micro_batch: 2}\nsettings: {a: 1}"),
        ("job", json.dumps({"$schema": "x", "model": "70b", "micro_batch": "2", "settings": {"a": 1}})),
    ],
)
def test_the_same_job_in_every_format(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    reading = read_job(path)
    assert plain(reading.values) == {"model": "70b", "micro_batch": 2}
    assert plain(reading.settings) == {"a": 1}


def test_standard_input_is_json():
    code = "from zerocalc.readers.jobfile import read_job; r = read_job('-').values['gpus']; print(r.value, r.origin)"
    run = subprocess.run(
        [sys.executable, "-c", code], input='{"gpus": 8}', capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "8 file:<stdin>:gpus"


@pytest.mark.parametrize(
    ("key", "says"),
    [("micro_bach", "did you mean 'micro_batch'"), ("stratgy", "did you mean 'strategy'"), ("zzz", "unknown key 'zzz'"),
     ("setings", "did you mean 'settings'"), ("offload", "unknown key 'offload'")],
)  # fmt: skip
def test_unknown_keys_are_refused(key, says):
    with pytest.raises(SpecError) as error:
        job_reading({key: 1}, "job.json")
    assert says in error.value.message
    assert error.value.hint


@pytest.mark.parametrize(
    ("key", "value"),
    [("gpus", True), ("gpus", 0), ("gpus", 1.5), ("gpus", [8]), ("gpus", "many"), ("gpu", 80), ("gpu", ""), ("k", "x"),
     ("k", float("nan")), ("k", -1), ("lora_targets", []), ("lora_targets", [1]), ("strategy", 2), ("model", None.__class__),
     ("model", 0), ("sequence_parallel", "yes"), ("settings", 1), ("settings", {"a": [1]}), ("settings", {"a": float("inf")}),
     ("deepspeed", {})],
)  # fmt: skip
def test_values_of_the_wrong_type(key, value):
    with pytest.raises(ZerocalcError, match=f"job.json: {key}"):
        job_reading({key: value}, "job.json")


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [("model", 7_000_000_000, 7_000_000_000), ("model", 7e9, 7_000_000_000), ("tokens", "1.5T", 1_500_000_000_000),
     ("trainable", "2%", "2%"), ("strategy", "zero2,zero3", ["zero2", "zero3"]), ("lora-targets", "q_proj,v_proj", ["q_proj", "v_proj"]),
     ("k", 12, 12), ("k", 2.5, 2.5), ("also", ["reference:70b"], ["reference:70b"]), ("sequence_parallel", True, True)],
)  # fmt: skip
def test_values(key, value, read):
    assert job_reading({key: value}, "job.json").values[key.replace("-", "_")].value == read


def test_null_is_not_given_and_twice_is_refused():
    assert job_reading({"gpus": None}, "job.json").values == {}
    with pytest.raises(SpecError, match="given twice"):
        job_reading({"micro-batch": 1, "work": {"micro_batch": 2}}, "job.json")


def test_paths_are_relative_to_the_job(tmp_path):
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"model": "./config.json", "accelerate": "acc.yaml", "hub": "org/model"}))
    reading = read_job(path)
    assert reading.value("model") == str(tmp_path / "config.json")
    assert plain(reading.files) == {"accelerate": str(tmp_path / "acc.yaml"), "hub": "org/model"}
    assert job_reading({"model": "./m"}, "-", base=Path()).value("model") == "./m"


def test_the_vocabulary_is_the_jobs():
    from zerocalc.jobs.givens import WORDS

    assert set(VOCABULARY) - set(FILES) == WORDS


def test_words_of_newer_jobs_are_taken_from_the_caller():
    with pytest.raises(SpecError, match="unknown key 'zeta'"):
        job_reading({"zeta": 1}, "job.json")
    assert job_reading({"zeta": "9GB"}, "job.json", words={"zeta"}).value("zeta") == "9GB"
    with pytest.raises(SpecError, match="zeta: must be"):
        job_reading({"zeta": [1]}, "job.json", words={"zeta"})


def test_a_list_is_no_job(tmp_path):
    path = tmp_path / "job.json"
    path.write_text("[1]")
    with pytest.raises(FileError, match="must hold a mapping"):
        read_job(path)
