"""What is written is taken by the tools themselves: DeepSpeed's own config class, Accelerate's, torch's fully_shard."""

import json
import os

import pytest

from zerocalc.jobs.resolve import resolve
from zerocalc.readers.reading import Given
from zerocalc.writers import emit, fragment

pytestmark = [pytest.mark.live, pytest.mark.filterwarnings("ignore")]


def job_of(settings=None, **words):
    words = {"model": "7b", "gpus": 1, "micro_batch": 2, **words}
    return resolve(
        {name: Given(value, "flag") for name, value in words.items()},
        {name: Given(value, "flag") for name, value in (settings or {}).items()},
    )


def config_of(document):
    """DeepSpeed's configuration, read by DeepSpeed."""
    pytest.importorskip("torch")
    pytest.importorskip("deepspeed")
    from deepspeed.runtime.config import DeepSpeedConfig

    return DeepSpeedConfig(document)


@pytest.mark.parametrize("precision", ["mixed-bf16", "mixed-fp16", "fp32", "bf16-fp32-grads", "bf16-master"])
@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (0, {"strategy": "ddp"}),
        (1, {"strategy": "zero1"}),
        (2, {"strategy": "zero2", "offload_optimizer": "cpu"}),
        (3, {"strategy": "zero3", "offload_optimizer": "nvme", "offload_params": "nvme"}),
        (3, {"strategy": "zeropp", "gpus": 16, "gpus_per_node": 8}),
    ],
)
def test_deepspeed_accepts_it_and_means_the_same(stage, words, precision):
    if (stage, precision) == (0, "bf16-master"):
        precision = "mixed-bf16"
    job = job_of(**words, precision=precision, grad_accum=4)
    config = config_of(json.loads(emit(job, "deepspeed")))
    zero = config.zero_config
    assert int(zero.stage) == stage
    assert config.bfloat16_config.enabled == (job.precision.param_dtype == "bf16")
    assert config.float16_config.enabled == (job.precision.param_dtype == "fp16")
    assert (config.train_micro_batch_size_per_gpu, config.gradient_accumulation_steps) == (2, 4)
    for section, tier in (
        (zero.offload_optimizer, job.offload.optimizer),
        (zero.offload_param, job.offload.params),
    ):
        assert (_device(section) if section else "none") == tier
    if words["strategy"] == "zeropp":
        assert (zero.zero_hpz_partition_size, zero.zero_quantized_weights) == (8, True)


def _device(section):
    return getattr(section.device, "value", section.device)


def test_mics_is_refused_by_the_release_that_removed_it_as_the_note_says():
    job = job_of(strategy="mics", gpus=16, shard_size=4)
    part = fragment(job, "deepspeed")
    assert "removed MiCS" in part.notes[0]
    try:
        config = config_of(json.loads(part.text))
    except Exception as error:
        assert "MiCS" in str(error)  # noqa: PT017
    else:
        assert config.zero_config.mics_shard_size == 4


def test_every_setting_reaches_deepspeed():
    settings = {
        "reduce_bucket_size": "2e8", "overlap_comm": "false", "stage3_prefetch_bucket_size": "1e6", "sub_group_size": "1e8",
        "stage3_param_persistence_threshold": 0, "stage3_max_live_parameters": "2e9", "communication_data_type": "fp32",
        "contiguous_gradients": "false", "offload_optimizer.ratio": 0.3, "partition_activations": "true",
    }  # fmt: skip
    job = job_of(settings, framework="deepspeed", offload_optimizer="cpu")
    config = config_of(json.loads(emit(job, "deepspeed")))
    zero = config.zero_config
    assert (zero.reduce_bucket_size, zero.overlap_comm, zero.sub_group_size) == (
        200_000_000,
        False,
        100_000_000,
    )
    assert (zero.prefetch_bucket_size, zero.param_persistence_threshold) == (1_000_000, 0)
    assert (zero.max_live_parameters, zero.contiguous_gradients) == (2_000_000_000, False)
    assert zero.offload_optimizer.ratio == 0.3
    assert config.activation_checkpointing_config.partition_activations
    assert str(config.communication_data_type) == "torch.float32"


@pytest.mark.parametrize(
    "words",
    [
        {"strategy": "ddp", "precision": "fp32"},
        {"strategy": "zero1", "offload_optimizer": "cpu", "grad_accum": 4},
        {"strategy": "zero3", "offload_optimizer": "cpu", "offload_params": "cpu", "checkpointing": "full"},
        {"strategy": "hsdp", "gpus": 16, "shard_size": 8, "gpus_per_node": 8},
    ],
)
def test_accelerate_knows_every_key(words, tmp_path):
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    launch = pytest.importorskip("accelerate.commands.launch")
    path = tmp_path / "accelerate.yaml"
    path.write_text(emit(job_of(**words), "accelerate"))
    config = config_args.load_config_from_file(str(path))
    options = {
        option for action in launch.launch_command_parser()._actions for option in action.option_strings
    }
    for section in (config.fsdp_config, config.deepspeed_config, config.parallelism_config):
        assert {f"--{key}" for key in section} <= options


@pytest.mark.parametrize(
    "words",
    [{}, {"strategy": "zero2", "precision": "bf16-pure"}, {"checkpointing": "full", "grad_accum": 2}],
)
def test_torch_runs_the_python(words, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    import torch.distributed as dist

    settings = {"requires_gradient_sync": "false"} if "grad_accum" in words else {}
    text = emit(job_of(settings, framework="pytorch", **words), "fsdp2").replace('"cuda"', '"cpu"')
    names = {}
    exec(compile(text, "fragment.py", "exec"), names)
    monkeypatch.setitem(os.environ, "GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = torch.nn.Sequential(
            torch.nn.Linear(4, 4), torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(2)))
        )
        sharded = names["shard"](model, model[1])
        if "before_micro_step" in names:
            names["before_micro_step"](sharded, 0)
        storage = torch.bfloat16 if words.get("precision") == "bf16-pure" else torch.float32
        assert {parameter.dtype for parameter in sharded.parameters()} == {storage}
        assert sharded(torch.ones(2, 4, dtype=storage)).dtype == torch.bfloat16
    finally:
        dist.destroy_process_group()
