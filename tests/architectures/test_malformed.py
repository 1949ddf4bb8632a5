"""Configs that make no model: one clear line each, naming the key, quickly."""

import time

import pytest

from zerocalc.architectures import FAMILIES, architecture
from zerocalc.errors import SpecError, UnknownNameError, ZerocalcError

LLAMA = {"model_type": "llama"}
REFUSED = [
    ({"hidden_size": "4096"}, 'hidden_size must be a whole number (got "4096")'),
    ({"hidden_size": 4096.0}, "hidden_size must be a whole number (got 4096.0)"),
    ({"hidden_size": True}, "hidden_size must be a whole number (got true)"),
    ({"hidden_size": None}, "hidden_size must be a whole number (got null)"),
    ({"hidden_size": [4096]}, "hidden_size must be a whole number (got a list)"),
    ({"hidden_size": {"a": 1}}, "hidden_size must be a whole number (got an object)"),
    ({"hidden_size": -4096}, "hidden_size must be at least 1 (got -4096)"),
    ({"num_hidden_layers": 0}, "num_hidden_layers must be at least 1 (got 0)"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers must be at most 2,000"),
    ({"vocab_size": 10**400}, "vocab_size must be at most 1,000,000,000,000,000"),
    ({"num_attention_heads": 33}, "hidden_size 4,096 is not divisible by num_attention_heads 33"),
    (
        {"num_attention_heads": 33, "head_dim": 128},
        "hidden_size 4,096 is not divisible by num_attention_heads 33",
    ),
    ({"num_attention_heads": 5000}, "hidden_size 4,096 is not divisible by num_attention_heads 5,000"),
    ({"num_key_value_heads": 0}, "num_key_value_heads must be at least 1 (got 0)"),
    ({"head_dim": 0}, "head_dim must be at least 1 (got 0)"),
    ({"tie_word_embeddings": "yes"}, 'tie_word_embeddings must be true or false (got "yes")'),
    ({"attention_bias": 1}, "attention_bias must be true or false (got 1)"),
    ({"attention_dropout": 7}, "attention_dropout must be a number from 0 to 1 (got 7)"),
    (
        {"hidden_size": 10**7, "num_attention_heads": 1},
        "the sizes give more than 1,000,000,000,000,000 parameters",
    ),
]


@pytest.mark.parametrize(("keys", "message"), REFUSED)
def test_refused(keys, message):
    with pytest.raises(SpecError) as error:
        architecture({**LLAMA, **keys}, origin="config.json")
    assert error.value.message == f"config.json: {message}"


def test_hint_offers_the_class_default():
    with pytest.raises(SpecError) as error:
        architecture({**LLAMA, "vocab_size": "32k"})
    assert error.value.hint == "leave vocab_size out for the class default of llama, 32000"


def test_nested_keys_are_named_with_their_path():
    with pytest.raises(SpecError, match=r"text_config\.hidden_size must be a whole number"):
        architecture({"model_type": "gemma3", "text_config": {"hidden_size": "x"}})
    with pytest.raises(SpecError, match=r"text_config must be an object"):
        architecture({"model_type": "gemma3", "text_config": [1]})


@pytest.mark.parametrize("config", [None, [], "llama", 7])
def test_no_object(config):
    with pytest.raises(SpecError, match="must be an object"):
        architecture(config)


def test_unknown_family_says_which_there_are_and_the_other_way():
    with pytest.raises(UnknownNameError) as error:
        architecture({"model_type": "lama"})
    assert "unknown model_type 'lama'" in error.value.message
    assert "llama" in error.value.message
    assert "model.safetensors.index.json" in error.value.hint
    assert all(family in error.value.hint for family in FAMILIES)


def test_model_type_is_needed_unless_the_class_is_named():
    with pytest.raises(SpecError, match="model_type is missing"):
        architecture({"hidden_size": 8})
    with pytest.raises(SpecError, match="model_type must be text"):
        architecture({"model_type": 3})
    assert architecture({"architectures": ["Qwen2ForCausalLM"]}).model_type == "qwen2"
    assert architecture({"architectures": ["T5WithLMHeadModel"]}).model_type == "t5"


def test_another_class_is_counted_with_a_note():
    notes = architecture({**LLAMA, "architectures": ["LlamaForSequenceClassification"]}).assumptions
    assert notes[0] == "counted as LlamaForCausalLM, though architectures says LlamaForSequenceClassification"


def test_what_the_file_leaves_out_is_said():
    (note,) = architecture({**LLAMA, "hidden_size": 8, "num_attention_heads": 2}, origin="c.json").assumptions
    assert note == (
        "not in c.json, so the class default of llama: intermediate_size = 11,008, num_hidden_layers = 32, "
        "vocab_size = 32,000"
    )


def test_rounding_down_is_said_where_the_class_rounds():
    notes = architecture({"model_type": "qwen2", "num_attention_heads": 28}).assumptions
    assert notes[0] == "hidden_size 4,096 over num_attention_heads 28 rounded down to 146, as qwen2 does"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("value", ["8", 8.0, -1, 10**18, [], {}, True, float("nan"), "x" * 10**6])
def test_any_key_with_any_nonsense_is_one_short_line(family, value):
    from zerocalc.architectures.defaults import ALIASES, DEFAULTS

    spellings = {name for names in ALIASES.get(family, {}).values() for name in names}
    messages = []
    for key in {*DEFAULTS[family], *spellings}:
        try:
            architecture({"model_type": family, key: value})
        except ZerocalcError as error:
            messages.append(error.message)
    assert not [message for message in messages if "\n" in message or len(message) > 200]


def test_alternating_layers_do_not_hang():
    config = {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 2_000,
        "decoder_sparse_step": 2,
        "hidden_size": 64,
    }
    start = time.perf_counter()
    with pytest.raises(SpecError):
        architecture({**config, "num_hidden_layers": 10**9})
    architecture({**config, "num_experts": 2, "moe_intermediate_size": 8, "intermediate_size": 8})
    assert time.perf_counter() - start < 5
