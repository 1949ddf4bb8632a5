"""Other tools' files, job files, project files and models from files and the Hub, through the command line."""

import json
import struct
import time

import pytest

from . import hub_stub
from .hub_stub import tensor
from .running import call

AUTO = {
    "bf16": {"enabled": "auto"},
    "train_micro_batch_size_per_gpu": "auto",
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
        "stage3_max_live_parameters": 1e9,
        "offload_optimizer": {"device": "cpu", "ratio": 0.3, "pin_memory": True},
    },
}
JOB = {
    "model": "llama-3-8b", "ranks": {"gpus": 16, "tp": 2}, "machine": {"gpu": "80GB"}, "strategy": "zero3",
    "framework": "deepspeed", "offload": {"optimizer": "cpu"}, "work": {"micro_batch": 1, "seq_len": 2048},
    "settings": {"reduce_bucket_size": 1e8, "offload_optimizer": {"ratio": 0.5}},
}  # fmt: skip
LLAMA = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 128, "vocab_size": 1000}  # fmt: skip
TITAN = """
[training]
local_batch_size = 8
seq_len = 4096
[parallelism]
data_parallel_shard_degree = 4
"""


def answer(*arguments, stdin=""):
    done = call(*arguments, "-f", "json", stdin=stdin)
    assert (done.code, done.err) == (0, ""), done.err
    return json.loads(done.out)


def error(*arguments, code=2):
    done = call(*arguments, "-f", "json")
    assert (done.code, done.out) == (code, "")
    return json.loads(done.err)["error"]


def values(document, *names):
    return tuple(document["request"][name]["value"] for name in names)


def write(tmp_path, name, content):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path.name if path.parent == tmp_path else str(path)


class TestDeepSpeed:
    def test_auto_is_filled_in_from_the_models_hidden_size(self, tmp_path):
        name = write(tmp_path, "ds.json", AUTO)
        request = answer("estimate", "llama-3-8b", "-n", "8", "--deepspeed", name)["request"]
        settings = {
            key.removeprefix("settings."): given
            for key, given in request.items()
            if key.startswith("settings.")
        }
        assert settings["reduce_bucket_size"]["value"] == 4096 * 4096
        assert settings["stage3_prefetch_bucket_size"]["value"] == 9 * 4096 * 4096 // 10
        assert settings["stage3_param_persistence_threshold"]["value"] == 40960
        assert settings["offload_optimizer.ratio"]["value"] == 0.3
        assert settings["reduce_bucket_size"]["origin"] == (
            "file:ds.json:zero_optimization.reduce_bucket_size (auto: h * h, h = 4096)"
        )

    def test_without_a_shape_deepspeeds_default_stands_and_is_said(self, tmp_path):
        document = answer("estimate", "7b", "-n", "8", "--deepspeed", write(tmp_path, "ds.json", AUTO))
        assert values(document, "settings.reduce_bucket_size") == (500_000_000,)
        assert any("hidden size is not known" in text for text in document["assumptions"])

    def test_settings_of_one_stage_are_not_idle_beside_the_rows_of_others(self, tmp_path):
        name = write(tmp_path, "ds.json", AUTO)
        compared = answer("compare", "llama-3-8b", "-n", "8", "--deepspeed", name)["warnings"]
        alone = answer("compare", "llama-3-8b", "-n", "8", "--deepspeed", name, "--strategy", "zero2")[
            "warnings"
        ]
        assert not any("stage3_max_live_parameters" in text for text in compared)
        assert any("stage3_max_live_parameters has no effect under zero2" in text for text in alone)

    def test_another_framework_says_which_settings_it_lacks(self, tmp_path):
        name = write(tmp_path, "ds.json", AUTO)
        warnings = answer("estimate", "7b", "-n", "8", "--deepspeed", name, "--framework", "paper")[
            "warnings"
        ]
        assert any(
            text.startswith("no effect in framework paper, which has no such settings: ") for text in warnings
        )

    def test_a_job_files_setting_that_no_framework_has_is_refused(self, tmp_path):
        job = {"model": "7b", "gpus": 8, "settings": {"reduce_bucket_sice": 1}}
        said = error("compare", "--job", write(tmp_path, "job.json", job))["message"]
        assert "unknown setting of framework paper 'reduce_bucket_sice'" in said

    def test_sub_groups_of_nothing_are_single_tensors(self, tmp_path):
        zero = {"stage": 3, "sub_group_size": 0, "offload_optimizer": {"device": "cpu"}}
        name = write(tmp_path, "ds.json", {"bf16": {"enabled": True}, "zero_optimization": zero})
        assert values(
            answer("estimate", "llama-3.2-1b", "-n", "8", "--deepspeed", name), "settings.sub_group_size"
        ) == (1,)

    def test_what_a_launcher_cannot_find_is_moot_once_it_is_given(self, tmp_path):
        write(tmp_path, "ds.json", AUTO)
        trainer = write(
            tmp_path, "sft.yaml", "model_name_or_path: x\ndeepspeed: configs/gone.json\nbf16: true\n"
        )
        both = answer("estimate", "llama-3-8b", "-n", "8", "--deepspeed", "ds.json", "--accelerate", trainer)
        alone = answer("estimate", "llama-3-8b", "-n", "8", "--accelerate", trainer)
        assert any("gone.json" in text for text in alone["warnings"])
        assert not any(
            "gone.json" in text or "--precision" in text for text in both["warnings"] + both["assumptions"]
        )
        assert values(both, "precision") == ("mixed-bf16",)


class TestGroups:
    @pytest.mark.parametrize(
        ("degrees", "world", "dp", "shard", "expert"),
        [
            ("data_parallel_shard_degree = 4\ncontext_parallel_degree = 2", 8, 4, 8, 8),
            ("data_parallel_shard_degree = 4\ntensor_parallel_degree = 2", 8, 4, 4, 8),
            ("data_parallel_shard_degree = 4\npipeline_parallel_degree = 2", 8, 4, 4, 4),
            ("data_parallel_shard_degree = 8\nexpert_parallel_degree = 4", 8, 8, 8, 2),
            ("data_parallel_shard_degree = 4\ndata_parallel_replicate_degree = 2", 8, 8, 4, 8),
        ],
    )
    def test_torchtitans_degrees(self, tmp_path, degrees, world, dp, shard, expert):
        """TP, PP, EP and replicas make a sharding group smaller; context-parallel ranks are part of it."""
        name = write(tmp_path, "t.toml", f"[parallelism]\n{degrees}\n")
        document = answer("estimate", "mixtral-8x7b", "--torchtitan", name)
        group = values(document, "sharding_group_size")[0] or values(document, "shard_size")[0]
        assert values(document, "world_size", "data_parallel_size") == (world, dp)
        assert (group, values(document, "expert_shard_size")[0]) == (shard, expert)

    def test_accelerates_hybrid_shard_stays_inside_a_node(self, tmp_path):
        content = (
            "distributed_type: FSDP\nnum_processes: 16\nnum_machines: 2\nmixed_precision: bf16\n"
            "fsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}\n"
        )
        document = answer("estimate", "llama-3.2-1b", "--accelerate", write(tmp_path, "acc.yaml", content))
        assert values(document, "strategy", "sharding_group_size", "gpus_per_node") == ("hsdp", 8, 8)

    def test_a_pipelines_micro_batches_and_selective_checkpointing(self, tmp_path):
        def peak(*extra):
            content = f"{TITAN}\npipeline_parallel_degree = 2\n[activation_checkpoint]\n" + "\n".join(extra)
            document = answer("estimate", "llama-3-8b", "--torchtitan", write(tmp_path, "t.toml", content))
            assert values(document, "micro_batch", "grad_accum") == (1, 8)
            return document["results"][0]["memory"]["gpu"]["peak_bytes"]

        none, full = peak('mode = "none"'), peak('mode = "full"')
        every = [peak('mode = "selective"', f'selective_ac_option = "{number}"') for number in (1, 2, 4)]
        assert none > every[2] > every[1] > every[0] == full
        assert every[1] == peak()
        assert full < peak('mode = "selective"', 'selective_ac_option = "op"') < none


class TestAdapters:
    FILE = "base_model: org/x\nadapter: lora\nlora_r: 8\nlora_target_modules: [q_proj, Wqkv]\nbf16: true\n"

    def test_a_layer_that_the_model_lacks_is_passed_over_and_named(self, tmp_path):
        name = write(tmp_path, "a.yaml", self.FILE)
        document = answer("estimate", "llama-3-8b", "-n", "8", "--accelerate", name)
        assert any("no linear layers of this model: Wqkv" in text for text in document["warnings"])
        only = answer("estimate", "llama-3-8b", "-n", "8", "--accelerate", name, "--lora-targets", "q_proj")
        assert only["results"] == document["results"]

    def test_a_typed_one_is_refused(self):
        found = error("estimate", "llama-3-8b", "-n", "8", "--lora-rank", "8", "--lora-targets", "Wqkv")
        assert "'Wqkv' is no linear layer" in found["message"]

    def test_a_count_has_no_layers_to_adapt(self, tmp_path):
        name = write(tmp_path, "a.yaml", self.FILE)
        document = answer("estimate", "7b", "-n", "8", "--accelerate", name)
        assert values(document, "num_trainable_params") == (0,)
        assert any("adapters are not counted" in text for text in document["warnings"])

    def test_what_is_trained_is_said_once(self, tmp_path):
        name = write(tmp_path, "a.yaml", self.FILE)
        document = answer("estimate", "llama-3-8b", "-n", "8", "--accelerate", name, "--trainable", "1%")
        assert values(document, "num_trainable_params") == (80302613,)


def test_keys_that_yaml_names_twice_count_as_pyyaml_reads_them(tmp_path):
    name = write(tmp_path, "a.yaml", "num_processes: 4\ndistributed_type: MULTI_GPU\nnum_processes: 8\n")
    document = answer("estimate", "7b", "--accelerate", name)
    assert values(document, "world_size") == (8,)
    assert any("'num_processes' appears twice" in text for text in document["warnings"])


def test_a_model_that_a_file_names_and_nobody_knows(tmp_path):
    name = write(tmp_path, "a.yaml", "base_model: org/unheard-of\nmicro_batch_size: 1\n")
    found = error("estimate", "-n", "8", "--accelerate", name)
    assert found["message"].startswith("a.yaml: base_model: unknown model 'org/unheard-of'")
    assert "name the MODEL" in found["hint"]
    assert "--hub org/unheard-of" in found["hint"]


class TestJobFiles:
    TOML = (
        'model = "llama-3-8b"\nstrategy = "zero3"\nframework = "deepspeed"\n[ranks]\ngpus = 16\ntp = 2\n'
        '[machine]\ngpu = "80GB"\n[offload]\noptimizer = "cpu"\n[work]\nmicro_batch = 1\nseq_len = 2048\n'
        "[settings]\nreduce_bucket_size = 1e8\noffload_optimizer.ratio = 0.5\n"
    )
    YAML = (
        "model: llama-3-8b\nstrategy: zero3\nframework: deepspeed\nranks: {gpus: 16, tp: 2}\nmachine: {gpu: 80GB}\n"
        "offload: {optimizer: cpu}\nwork: {micro_batch: 1, seq_len: 2048}\n"
        "settings: {reduce_bucket_size: 1.0e+8, offload_optimizer: {ratio: 0.5}}\n"
    )
    FLAGS = (
        "llama-3-8b", "-n", "16", "--tp", "2", "--gpu", "80GB", "--strategy", "zero3", "--framework", "deepspeed",
        "--offload-optimizer", "cpu", "--micro-batch", "1", "--seq-len", "2048",
        "--set", "reduce_bucket_size=1e8", "--set", "offload_optimizer.ratio=0.5",
    )  # fmt: skip

    def test_every_format_and_the_flags_are_one_job(self, tmp_path):
        names = [
            write(tmp_path, "j.json", JOB),
            write(tmp_path, "j.toml", self.TOML),
            write(tmp_path, "j.yaml", self.YAML),
        ]
        answers = [answer("estimate", "--job", name)["results"] for name in names]
        answers += [answer("estimate", "--job", "-", stdin=json.dumps(JOB))["results"]]
        assert all(found == answer("estimate", *self.FLAGS)["results"] for found in answers)

    def test_the_request_is_a_job_again(self, tmp_path):
        first = answer("estimate", "--job", write(tmp_path, "j.json", JOB))
        words = {"world_size": "gpus", "sharding_group_size": "shard_size", "optimizer_bytes_per_param": "k"}
        again = {"settings": {}}
        for name, given in first["request"].items():
            stated = given["origin"] not in ("default", "derived") and not given["origin"].startswith(
                "preset:"
            )
            if name.startswith("settings."):
                again["settings"][name.removeprefix("settings.")] = given["value"]
            elif stated and name not in ("num_params", "capacity_bytes"):
                again[words.get(name, name)] = given["value"]
        assert (
            answer("estimate", "--job", write(tmp_path, "again.json", again))["results"] == first["results"]
        )

    def test_origins_name_the_file_and_the_key(self, tmp_path):
        request = answer("estimate", "--job", write(tmp_path, "j.json", JOB))["request"]
        assert request["micro_batch"]["origin"] == "file:j.json:work.micro_batch"
        assert request["settings.reduce_bucket_size"]["origin"] == "file:j.json:settings.reduce_bucket_size"

    def test_the_schema_takes_them_and_refuses_a_slip(self, tmp_path):
        import jsonschema

        schema = json.loads(call("schema", "job-file").out)
        jsonschema.validate(JOB, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**JOB, "stratgy": "zero3"}, schema)
        assert (
            "did you mean 'strategy'"
            in error("estimate", "--job", write(tmp_path, "s.json", {"stratgy": "zero3"}))["message"]
        )

    def test_files_that_a_job_names_come_below_it(self, tmp_path):
        write(tmp_path, "sub/ds.json", AUTO)
        job = {"model": "llama-3-8b", "gpus": 8, "deepspeed": "ds.json", "strategy": "zero2"}
        name = write(tmp_path, "sub/job.json", job)
        assert values(answer("estimate", "--job", name), "strategy", "framework") == ("zero2", "deepspeed")

    def test_one_number_of_ranks_takes_the_place_of_the_other(self, tmp_path):
        name = write(tmp_path, "j.json", {"model": "7b", "gpus": 64, "tp": 2})
        assert values(answer("estimate", "--job", name, "--dp", "8"), "world_size") == (16,)


class TestProject:
    @pytest.fixture(autouse=True)
    def project(self, tmp_path, monkeypatch):
        (tmp_path / ".git").mkdir()
        write(tmp_path, "zerocalc.toml", '[job]\ngpu = "a100-80gb"\ngpus = 64\noptimizer = "sgd"\n')
        (tmp_path / "deep" / "down").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / "deep" / "down")

    def test_it_fills_in_what_is_not_given(self):
        document = answer("compare", "7b", "--optimizer", "adamw")
        assert values(document, "world_size", "gpu", "optimizer") == (64, "a100-sxm-80", "adamw")
        assert document["request"]["world_size"]["origin"].endswith("zerocalc.toml:1:gpus")
        assert document["request"]["optimizer"]["origin"] == "flag"
        assert any("--no-project" in text for text in document["assumptions"])

    def test_a_job_file_comes_before_it(self, tmp_path):
        write(tmp_path, "deep/down/job.json", {"model": "7b", "dp": 4})
        assert values(answer("estimate", "--job", "job.json"), "world_size", "gpu") == (4, "a100-sxm-80")

    def test_it_can_be_left_out_or_named(self, tmp_path):
        assert "how many GPUs" in error("compare", "7b", "--no-project")["message"]
        other = write(tmp_path, "else/zerocalc.toml", "[job]\ngpus = 8\n")
        assert values(answer("compare", "7b", "--project", other), "world_size", "gpu") == (8, None)

    def test_what_is_wrong_in_it_is_said_with_its_place(self, tmp_path):
        write(tmp_path, "zerocalc.toml", "[job]\ngpuz = 8\n")
        found = error("compare", "7b", "-n", "8")["message"]
        assert "zerocalc.toml:1" in found
        assert "gpuz" in found

    def test_outside_a_repository_only_this_folder_counts(self, tmp_path):
        (tmp_path / ".git").rmdir()
        assert "how many GPUs" in error("compare", "7b")["message"]

    @pytest.mark.parametrize("content", ["", "[tool.other]\nx = 1\n", "not toml at all = = ="])
    def test_a_pyproject_that_does_not_mention_us_is_no_matter(self, tmp_path, content):
        (tmp_path / "zerocalc.toml").unlink()
        write(tmp_path, "pyproject.toml", content)
        assert values(answer("compare", "7b", "-n", "8"), "world_size") == (8,)

    def test_pyprojects_table_is_one_too(self, tmp_path):
        (tmp_path / "zerocalc.toml").unlink()
        write(tmp_path, "pyproject.toml", "[tool.zerocalc.job]\ngpus = 16\n")
        assert values(answer("compare", "7b"), "world_size") == (16,)


class TestHub:
    def test_the_config_of_a_known_family(self, tmp_path, monkeypatch):
        write(tmp_path, "org/small/config.json", LLAMA)
        asked = hub_stub.install(monkeypatch, tmp_path)
        here = answer("params", "./org/small/config.json")
        document = answer("params", "--hub", "org/small@v1")
        assert document["num_params"] == here["num_params"]
        assert document["request"]["num_params"]["origin"] == "hub:org/small@v1"
        assert asked == [("org/small", "config.json", "v1")]
        compared = answer("compare", "--hub", "org/small@v1", "-n", "8")
        assert values(compared, "model", "num_params") == ("org/small@v1", here["num_params"])
        assert len(asked) == 1

    def test_the_headers_of_any_other(self, tmp_path, monkeypatch):
        write(tmp_path, "org/new/config.json", {"model_type": "unheard-of"})
        files = {"a": {"layers.0.w": tensor("BF16", 4, 4), "layers.1.w": tensor("BF16", 4, 4, at=32)},
                 "b": {"head.weight": tensor("F32", 10, 4), "ids": tensor("I64", 3, at=160)}}  # fmt: skip
        metadata = {name: type("File", (), {"tensors": held})() for name, held in files.items()}
        asked = hub_stub.install(monkeypatch, tmp_path, {"org/new": metadata, "org/bare": metadata})
        assert answer("params", "--hub", "org/new")["num_params"] == 72
        assert [what for _, what, _ in asked] == ["config.json", "safetensors"]
        assert values(answer("estimate", "--hub", "org/bare", "-n", "2"), "num_params") == (72,)

    @pytest.mark.parametrize(
        ("model", "says"),
        [("org/gated", "is gated"), ("org/none", "is not on the Hub"), ("org/offline", "cannot be reached"),
         ("org/unreachable", "cannot be reached"), ("no id at all", "is no id"), ("org/broken", "refuses"),
         ("org/small@missing", "no such revision"), ("org/empty", "has no config.json")],
    )  # fmt: skip
    def test_what_can_go_wrong_is_one_line(self, tmp_path, monkeypatch, model, says):
        hub_stub.install(monkeypatch, tmp_path)
        found = error("params", "--hub", model)
        assert found["message"].startswith(f"--hub {model}: ")
        assert says in found["message"]
        assert "\n" not in found["message"]

    def test_an_unknown_family_without_tensors_names_the_family(self, tmp_path, monkeypatch):
        write(tmp_path, "org/new/config.json", {"model_type": "unheard-of"})
        hub_stub.install(monkeypatch, tmp_path)
        assert "unheard-of" in error("params", "--hub", "org/new")["message"]

    def test_without_the_extra_the_hint_says_how_to_get_it(self, monkeypatch):
        import sys

        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        assert error("params", "--hub", "org/x")["hint"] == "pip install 'zerocalc[hub]'"

    def test_only_a_flag_asks_the_network(self, tmp_path, monkeypatch):
        asked = hub_stub.install(monkeypatch, tmp_path)
        name = write(tmp_path, "j.json", {"hub": "org/small", "gpus": 8})
        found = error("estimate", "--job", name)
        assert "asks for the network" in found["message"]
        assert "--hub org/small" in found["hint"]
        assert "both name the model" in error("params", "llama-3-8b", "--hub", "org/small")["message"]
        assert asked == []


class TestShapes:
    def header(self, path, tensors, *, claimed=None, pad=0):
        text = json.dumps(tensors).encode()
        end = max(item["data_offsets"][1] for item in tensors.values())
        path.write_bytes(struct.pack("<Q", claimed or len(text)) + text + b"\0" * (end + pad))

    def test_one_shape_by_every_way(self, tmp_path):
        tensors = {"layers.0.w": {"dtype": "BF16", "shape": [8, 8], "data_offsets": [0, 128]},
                   "layers.1.w": {"dtype": "BF16", "shape": [8, 8], "data_offsets": [128, 256]},
                   "ids": {"dtype": "I64", "shape": [4], "data_offsets": [256, 288]}}  # fmt: skip
        self.header(tmp_path / "model.safetensors", tensors)
        index = {"weight_map": dict.fromkeys(tensors, "model.safetensors")}
        write(tmp_path, "model.safetensors.index.json", index)
        (tmp_path / "folder").mkdir()
        self.header(tmp_path / "folder" / "x.safetensors", tensors)
        for model in ("model.safetensors", "./folder"):
            assert answer("params", model)["num_params"] == 128
            for framework in ("paper", "pytorch", "deepspeed"):
                document = answer("compare", model, "-n", "2", "--framework", framework)
                assert values(document, "num_params") == (128,)

    def test_a_config_beside_the_weights_says_more(self, tmp_path):
        self.header(
            tmp_path / "model.safetensors", {"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}
        )
        write(tmp_path, "config.json", LLAMA)
        document = answer("estimate", ".", "-n", "2", "--micro-batch", "1", "--seq-len", "128")
        assert any(term["name"] == "activations" for term in document["results"][0]["memory"]["gpu"]["terms"])

    def test_hostile_files_get_one_line_in_bounded_time(self, tmp_path):
        with (tmp_path / "huge.json").open("wb") as stream:
            stream.truncate(500_000_000)
        write(tmp_path, "deep.json", "[" * 100_000)
        self.header(
            tmp_path / "lie.safetensors",
            {"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}},
            claimed=2**62,
        )
        start = time.perf_counter()
        for name in ("./huge.json", "./deep.json", "lie.safetensors"):
            for command in (("params", name), ("compare", name, "-n", "8")):
                found = error(*command)
                assert "\n" not in found["message"]
        for flag in ("--deepspeed", "--accelerate", "--job"):
            error("estimate", "7b", "-n", "8", flag, "huge.json")
        assert time.perf_counter() - start < 5
