"""config.json from the wild and from hostile hands."""

import codecs
import json
import os
import time

import pytest

from zerocalc.errors import FileError
from zerocalc.readers.huggingface import read_config

CONFIG = {"model_type": "llama", "hidden_size": 8, "note": "Größe"}


def _write(folder, data):
    file = folder / "config.json"
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    return file


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_encodings(tmp_path, encoding):
    text = json.dumps(CONFIG, ensure_ascii=False)
    assert read_config(_write(tmp_path, text.encode(encoding))) == CONFIG


def test_big_endian_mark(tmp_path):
    data = codecs.BOM_UTF16_BE + json.dumps(CONFIG).encode("utf-16-be")
    assert read_config(_write(tmp_path, data)) == CONFIG


def test_folder(tmp_path):
    _write(tmp_path, json.dumps(CONFIG))
    assert read_config(tmp_path) == CONFIG
    assert read_config(str(tmp_path)) == CONFIG


def test_null_is_kept(tmp_path):
    assert read_config(_write(tmp_path, '{"q_lora_rank": null}')) == {"q_lora_rank": None}


REFUSED = [
    ("", "is empty"),
    (" \n", "is empty"),
    ("[1, 2]", "must hold one JSON object (got a list)"),
    ("null", "must hold one JSON object (got null)"),
    ("12", "must hold one JSON object (got a number)"),
    ('"llama"', "must hold one JSON object (got text)"),
    ("{'a': 1}", "not valid JSON"),
    ('{"a": 1,}', "not valid JSON"),
    ('{"a": 1} trailing', "not valid JSON"),
    ('{"a": NaN}', "NaN"),
    ('{"a": -Infinity}', "-Infinity"),
    ('{"a": 1e999}', "too large a number"),
    ('{"a": ' + "9" * 5000 + "}", "too large a number"),
    ('{"a": 1, "b": {"c": 1, "c": 2}}', "twice"),
    ('{"a": ' * 5000 + "1" + "}" * 5000, "nested"),
    ("[" * 200_000, "nested"),
    (b"\xff\xfe\x00", "text"),
    (b'{"a": "\xe9"}', "UTF-8"),
    (b"\x00\x01\x02\x03", "binary"),
]


@pytest.mark.parametrize(("data", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused(tmp_path, data, message):
    file = _write(tmp_path, data)
    with pytest.raises(FileError) as error:
        read_config(file)
    assert str(file) in error.value.message
    assert message in error.value.message
    assert "\n" not in error.value.message
    assert len(error.value.message) < 300 + len(str(file))


def test_missing(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        read_config(tmp_path / "config.json")
    with pytest.raises(FileError, match=r"the folder has no config\.json"):
        read_config(tmp_path)


def test_folder_named_like_the_file(tmp_path):
    (tmp_path / "config.json").mkdir()
    with pytest.raises(FileError):
        read_config(tmp_path)


def test_half_a_gigabyte_is_never_read(tmp_path):
    file = tmp_path / "config.json"
    with file.open("wb") as stream:
        stream.truncate(500 * 10**6)
    start = time.perf_counter()
    with pytest.raises(FileError, match="bytes"):
        read_config(file)
    assert time.perf_counter() - start < 0.5


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(FileError, match="not a regular file"):
        read_config(tmp_path)
