"""Hostile and odd files: each is one clear FileError or the right answer, in bounded time and memory."""

import json
import subprocess
import sys
import time
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zerocalc.errors import FileError, ZerocalcError
from zerocalc.readers import text
from zerocalc.readers.accelerate import read_accelerate
from zerocalc.readers.deepspeed import read_deepspeed
from zerocalc.readers.jobfile import read_job
from zerocalc.readers.torchtitan import read_torchtitan


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")],
)
def test_encodings_with_a_mark_are_read(write, encoding, mark):
    path = write("a.json", mark + '{"a": "ö"}'.encode(encoding))
    assert text.read_mapping(path, default="json") == {"a": "ö"}


def test_carriage_returns_are_line_ends(write):
    path = write("a.yaml", "a: 1\r\nb:\r\n  c: 2\r\n")
    assert text.read_mapping(path, default="yaml") == {"a": 1, "b": {"c": 2}}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b" \n\t ", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b'{"a": "\xff"}', "not UTF-8 text (byte 7"),
        (b'{"a": "\x00"}', "binary"),
        (b'"text"', "must hold a mapping of keys to values (got 'text')"),
        (b"null", "got nothing"),
    ],
)
def test_what_is_no_text_or_no_mapping(write, content, says):
    with pytest.raises(FileError, match=r"a\.json") as error:
        text.read_mapping(write("a.json", content), default="json")
    assert says in error.value.message


def test_missing_folder_loop_unreadable_and_special(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_text("x")
    for path, says in [
        (tmp_path / "none.json", "no such file"),
        (tmp_path, "is a folder"),
        (tmp_path / "loop", "symbolic links"),
        (tmp_path / "file" / "below", "no folder"),
        ("/dev/zero", "not a regular file"),
        ("nul\0name", "cannot be read"),
        ("x" * 5000, "cannot be read"),
    ]:
        with pytest.raises(FileError) as error:
            text.read_text(path)
        assert says in error.value.message
        assert "\n" not in error.value.message


def test_a_huge_file_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as stream:
        stream.truncate(500_000_000)
    start = time.perf_counter()
    with pytest.raises(FileError, match="500,000,000 bytes"):
        text.read_text(path)
    assert time.perf_counter() - start < 0.5


def test_standard_input_only_where_allowed():
    code = "from zerocalc.readers.text import read_text; print(read_text('-', stdin=True))"
    run = subprocess.run([sys.executable, "-c", code], input=b"{}", capture_output=True, check=True)
    assert run.stdout.strip() == b"{}"
    with pytest.raises(FileError, match="no such file"):
        text.read_text("-")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"a": 1, "a": 2}', "key 'a' appears twice"),
        ('{"a": {"b": 1, "b": 1}}', "key 'b' appears twice"),
        ('{"a": NaN}', "NaN is no JSON number"),
        ('{"a": -Infinity}', "-Infinity is no JSON number"),
        ('{"a": 1e400}', "too large a number"),
        ('{"a": ' + "9" * 5000 + "}", "too large a number"),
        ("[" * 100_000, "nested more than 100 levels"),
        ('{"a":' * 200 + "1" + "}" * 200, "nested more than 100 levels"),
        ('{"a": 1,\n "b" 2}', "line 2, column 6"),
    ],
)
def test_json(content, says):
    for parse in (text.parse_json, text.parse_hjson):
        with pytest.raises(FileError) as error:
            parse(content, "f.json")
        assert error.value.message.startswith("f.json: ")
        assert says in error.value.message
        assert len(error.value.message) < 200


def test_hjson_where_json_fails():
    content = "{\n  # comment\n  stage: 3 // bare\n  /* block */ name: ZERO_STAGE,\n  list: [1, 2,],\n}"
    parsed = text.parse_hjson(content, "f")
    assert parsed["name"] == "ZERO_STAGE,"
    assert parsed["list"] == [1, 2]
    with pytest.raises(FileError, match="appears twice"):
        text.parse_hjson("{a: 1\na: 2}", "f")
    with pytest.raises(FileError, match=r"not valid JSON: .*line 1") as error:
        text.parse_hjson("{a: 1", "f")
    assert error.value.hint.startswith("as Hjson neither")


@pytest.mark.parametrize(
    ("module", "parse", "content", "extra"),
    [
        ("hjson", text.parse_hjson, "{a: 1}", "zerocalc[hjson]"),
        ("yaml", text.parse_yaml, "a: 1", "zerocalc[yaml]"),
    ],
)
def test_a_missing_parser_says_how_to_get_it(monkeypatch, module, parse, content, extra):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "zerocalc.readers.safeyaml", raising=False)
    with pytest.raises(FileError) as error:
        parse(content, "f")
    assert f"pip install '{extra}'" in error.value.hint


def test_yaml_keeps_the_meaning_of_1_1():
    parsed = text.parse_yaml("a: 5e8\nb: no\nc: 1.0e-8\nd: 0x10\ne: &x {k: 1}\nf: {<<: *x, l: 2}\ng: *x", "f")
    assert parsed == {
        "a": "5e8", "b": False, "c": 1e-8, "d": 16, "e": {"k": 1}, "f": {"k": 1, "l": 2}, "g": {"k": 1},
    }  # fmt: skip


def _laughs(line):
    names = "abcdefghij"
    return "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(line(new, old) for old, new in pairwise(names))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (_laughs(lambda new, old: f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"), "expands to more than"),
        (
            "a: &a {x: 1}\n"
            + "".join(
                f"{b}: &{b}\n  <<: [{','.join([f'*{a}'] * 9)}]\n"
                for a, b in zip("abcdefgh", "bcdefghi", strict=True)
            ),
            "expands to more than",
        ),
        ("a: &a [*a]", "an alias contains itself"),
        ("&a {b: *a}", "an alias contains itself"),
        ("[" * 100_000, "nest"),
        ("\n".join(" " * i + "a:" for i in range(500)), "expands to more than"),
        ("\n".join(f"k{i}: 1" for i in range(60_000)), "expands to more than"),
        ("a: 1\na: 2", "key 'a' appears twice"),
        ("a: {b: 1, b: 2}", "key 'b' appears twice"),
        ("a: *b", "undefined alias"),
        ("a:\n\t- b", "line 2, column 1"),
        ("a: 1\n---\nb: 2", "another document"),
        ("a: !!python/object/apply:os.system [echo]", "could not determine a constructor"),
        ("a: 2001-99-99", "not valid YAML"),
        ("a: " + "9" * 6000, "not valid YAML"),
        ("? [a]\n: b", "unhashable"),
    ],
)
def test_yaml_bombs_and_mistakes(content, says):
    start = time.perf_counter()
    with pytest.raises(FileError) as error:
        text.parse_yaml(content, "f.yaml")
    assert says in error.value.message
    assert "\n" not in error.value.message
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a = 1\na = 2", "Cannot overwrite"),
        ("a = " + "[" * 50_000, "nested more than"),
        (".".join(["a"] * 20_000) + " = 1", "nested more than"),
        ("[" + ".".join(["a"] * 20_000) + "]", "nested more than"),
        ("a = " + "9" * 6000, "not valid TOML"),
        ("a 1", "line 1"),
        ("a = '" + "x" * 2**20 + "'", "characters, more than"),
    ],
)
def test_toml(content, says):
    start = time.perf_counter()
    with pytest.raises(FileError) as error:
        text.parse_toml(content, "f.toml")
    assert says in error.value.message
    assert time.perf_counter() - start < 2


def test_importing_readers_is_cheap():
    code = (
        "import sys\n"
        "from zerocalc.readers import accelerate, deepspeed, jobfile, torchtitan, trainer\n"
        "print([name for name in ('yaml', 'hjson', 'pydantic', 'tomllib', 'numpy', 'difflib') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


_WORDS = """
    zero_optimization stage offload_optimizer device fp16 bf16 enabled optimizer
    type params train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps mics_shard_size reduce_bucket_size distributed_type
    fsdp_config fsdp_sharding_strategy fsdp_version deepspeed_config zero_stage num_processes num_machines mixed_precision
    parallelism_config dp_shard_size dp_replicate_size megatron_lm_config tp_degree training parallelism data_parallel_shard_degree
    data_parallel_replicate_degree local_batch_size global_batch_size dtype activation_checkpoint mode model name
    flavor converters fsdp deepspeed bf16 adapter lora_r base_model
    settings gpus strategy micro_batch offload pipeline stages tensor_parallel
    autotp_size value
"""
_KEYS = st.sampled_from(_WORDS.split())
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8),
    st.sampled_from(["auto", "5e8", "true", "FULL_SHARD", "DEEPSPEED", "FSDP", "MEGATRON_LM", "${X}", "cpu", "bf16", "-1"]),
)  # fmt: skip
_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_KEYS | st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=25,
)
_READERS = (read_deepspeed, read_accelerate, read_torchtitan, read_job)


def _message_or_reading(read, path):
    """One line of text where a reader refuses, else its reading; anything else that is raised fails the test."""
    try:
        return read(path)
    except ZerocalcError as error:
        return error.message


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.dictionaries(_KEYS, _TREES, max_size=8))
def test_no_mapping_escapes_the_errors(tmp_path, data):
    path = tmp_path / "fuzz.json"
    path.write_text(json.dumps(data))
    for read in _READERS:
        answer = _message_or_reading(read, path)
        if isinstance(answer, str):
            assert "\n" not in answer
        else:
            assert all(given.origin for given in answer.values.values())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.one_of(
        st.binary(max_size=200), st.text(alphabet="{}[]\":,#&*!<>|-\n \tab0.'=", max_size=200).map(str.encode)
    )
)
@pytest.mark.parametrize("suffix", ["json", "yaml", "toml"])
def test_no_bytes_escape_the_errors(tmp_path, suffix, data):
    path = tmp_path / f"fuzz.{suffix}"
    path.write_bytes(data)
    for read in _READERS:
        answer = _message_or_reading(read, path)
        assert not isinstance(answer, str) or "\n" not in answer
