"""Jobs to write, and the same jobs read back: the file, and beside it the words that the fragment leaves unsaid."""

from zerocalc.errors import UsageError
from zerocalc.jobs.givens import WORDS
from zerocalc.jobs.resolve import resolve
from zerocalc.readers.accelerate import read_accelerate
from zerocalc.readers.deepspeed import read_deepspeed
from zerocalc.readers.reading import Given
from zerocalc.readers.torchtitan import read_torchtitan
from zerocalc.writers import fragment

READ = {
    "deepspeed": ("ds.json", read_deepspeed),
    "accelerate": ("accelerate.yaml", read_accelerate),
    "torchtitan": ("train.toml", read_torchtitan),
}
DEGREES = ("world_size", "tp", "pp", "cp", "ep", "etp", "gpus_per_node")
BYTES = ("param_dtype", "grad_dtype", "reduce_dtype", "master_dtype", "moment_dtype")


def job_of(settings=None, **words):
    words = {"model": "7b", **words}
    return resolve(
        {name: Given(value, "flag") for name, value in words.items() if value is not None},
        {name: Given(value, "flag") for name, value in (settings or {}).items()},
    )


def written(job, tool):
    """The fragment, or None where the tool refuses with its reason and what can do it instead."""
    try:
        return fragment(job, tool)
    except UsageError as error:
        refusal = error
    assert refusal.message
    assert refusal.hint
    return None


def read_back(part, tool, folder, model="7b"):
    """The job that the file says, completed by what the fragment left unsaid; foreign settings of the paper stay away."""
    name, read = READ[tool]
    path = folder / name
    path.write_text(part.text)
    reading = read(path)
    unsaid = {word: value for word, value in part.unsaid.items() if not word.startswith("settings.")}
    beside = {
        word.removeprefix("settings."): v for word, v in part.unsaid.items() if word.startswith("settings.")
    }
    values = {**reading.values, "model": Given(model, "flag")}
    values |= {word: Given(value, "flag") for word, value in unsaid.items()}
    settings = {**reading.settings, **{name: Given(value, "flag") for name, value in beside.items()}}
    unread = [
        text
        for text in reading.warnings
        if "unknown" in text or "no effect" in text or "not modelled" in text
    ]
    assert unread == []
    return resolve({name: given for name, given in values.items() if name in WORDS}, settings)


def essence(job):
    """What a job comes to: degrees, strategy, offload, batch, element types."""
    p = job.parallelism
    facts = {name: getattr(p, name) for name in DEGREES}
    if facts["gpus_per_node"]:
        facts["gpus_per_node"] = min(facts["gpus_per_node"], p.world_size)
    if job.strategy in ("hsdp", "mics"):
        facts["group"] = min(p.sharding_group_size or p.gpus_per_node, p.shard_size)
    facts |= {name: getattr(job.precision, name) for name in BYTES}
    return {
        **facts,
        "strategy": job.strategy,
        "offload": job.offload,
        "workload": job.workload,
        "optimizer": job.optimizer.name,
        "k": job.optimizer.bytes_per_param,
    }
