"""The Python that calls fully_shard: it compiles, and run with stand-ins for torch it does what the job says."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from tests.writers.jobs import job_of
from zerocalc.errors import UsageError
from zerocalc.writers import emit, fragment


class Layers:
    """A stack of two layers."""

    def __init__(self):
        self.held = {"0": "first", "1": "second"}

    def named_children(self):
        return list(self.held.items())

    def children(self):
        return list(self.held.values())

    def register_module(self, name, layer):
        self.held[name] = layer


@pytest.fixture
def torch(monkeypatch):
    """A torch that records what is asked of it."""
    calls = []

    def module(name, **members):
        made = ModuleType(name)
        made.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    def fully_shard(target, **options):
        calls.append((target, options))
        return target

    base = "torch.distributed"
    module("torch", float32="fp32", bfloat16="bf16", float16="fp16")
    module(base)
    module(f"{base}.algorithms")
    module(f"{base}.algorithms._checkpoint")
    wrapper = {"checkpoint_wrapper": lambda layer: f"checkpointed {layer}"}
    module(f"{base}.algorithms._checkpoint.checkpoint_wrapper", **wrapper)
    module(f"{base}.device_mesh", init_device_mesh=lambda *mesh, **names: (*mesh, *names.values()))
    policies = {name: lambda **options: options for name in ("MixedPrecisionPolicy", "CPUOffloadPolicy")}
    module(f"{base}.fsdp", fully_shard=fully_shard, **policies)
    return calls


def run(text, calls):
    """The sharded units with their options, the type weights rest in, and the names the fragment defines."""
    names = {}
    exec(compile(text, "fragment.py", "exec"), names)
    rests = []
    model = SimpleNamespace(to=rests.append)
    assert names["shard"](model, Layers()) is model
    return calls, rests, names


def test_every_layer_then_the_root(torch):
    calls, rests, _ = run(emit(job_of(gpus=8, strategy="zero3"), "fsdp2"), torch)
    assert [target for target, _ in calls[:2]] == ["first", "second"]
    assert len(calls) == 3
    assert rests == ["fp32"]
    assert calls[0][1] == {"mesh": ("cuda", (8,)), "mp_policy": {"param_dtype": "bf16"}}


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ({"strategy": "zero2"}, {"reshard_after_forward": False}),
        ({"offload_optimizer": "cpu", "offload_params": "cpu"}, {"offload_policy": {}}),
        ({"reduce_dtype": "fp32"}, {"mp_policy": {"param_dtype": "bf16", "reduce_dtype": "fp32"}}),
        (
            {"strategy": "hsdp", "gpus": 64, "shard_size": 8},
            {"mesh": ("cuda", (8, 8), ("replicate", "shard"))},
        ),
        ({"framework": "pytorch", "settings": {"reshard_after_forward": 4}}, {"reshard_after_forward": 4}),
        ({"framework": "pytorch", "precision": "fp32"}, {}),
    ],
)
def test_the_job_is_in_the_options(words, options, torch):
    calls, _, _ = run(emit(job_of(**{"gpus": 8, **words}), "fsdp2"), torch)
    for name, value in options.items():
        assert calls[-1][1][name] == value
    assert ("mp_policy" in calls[-1][1]) == (words.get("precision") != "fp32")


@pytest.mark.parametrize(
    ("precision", "storage"), [("bf16-pure", "bf16"), ("fp32", "fp32"), ("mixed-fp16", "fp32")]
)
def test_weights_rest_in_the_type_of_the_master_copy(precision, storage, torch):
    assert run(emit(job_of(gpus=8, precision=precision), "fsdp2"), torch)[1] == [storage]


def test_full_checkpointing_wraps_each_layer_before_it_is_sharded(torch):
    calls, _, _ = run(emit(job_of(gpus=8, checkpointing="full"), "fsdp2"), torch)
    assert calls[0][0] == "checkpointed first"


def test_gradients_are_reduced_in_the_last_micro_step_only_where_the_job_says_so(torch):
    settings = {"requires_gradient_sync": "false", "reshard_after_backward": "false"}
    job = job_of(settings, gpus=8, framework="pytorch", grad_accum=4)
    _, _, names = run(emit(job, "fsdp2"), torch)
    done = []
    model = SimpleNamespace(set_requires_gradient_sync=done.append, set_reshard_after_backward=done.append)
    for step in range(4):
        names["before_micro_step"](model, step)
    assert done == [False] * 6 + [True] * 2
    assert "before_micro_step" not in emit(job_of(gpus=8, grad_accum=4), "fsdp2")


def test_what_the_snippet_leaves_to_the_script_is_in_its_head():
    part = fragment(job_of(gpus=8, micro_batch=2, seq_len=1024, checkpointing="selective"), "fsdp2")
    assert part.unsaid == {"micro_batch": 2, "seq_len": 1024, "checkpointing": "selective"}
    assert "# not said here: --micro-batch 2 --seq-len 1024 --checkpointing selective" in part.text


@pytest.mark.parametrize(
    ("words", "reason", "can"),
    [
        ({"strategy": "ddp"}, "no ddp", "accelerate"),
        ({"strategy": "zero1"}, "no zero1", "deepspeed"),
        ({"tp": 2}, "no key for tp", "torchtitan"),
        ({"offload_optimizer": "cpu"}, "both to cpu", "deepspeed"),
        ({"framework": "pytorch", "settings": {"wrap": "torchtitan"}}, "torchtitan's own", "torchtitan"),
        ({"framework": "pytorch", "settings": {"fsdp_version": 1}}, "fsdp_version 1", "accelerate"),
    ],
)
def test_what_it_cannot_express(words, reason, can):
    with pytest.raises(UsageError) as error:
        emit(job_of(**{"gpus": 8, **words}), "fsdp2")
    assert reason in error.value.message
    assert can in error.value.hint
