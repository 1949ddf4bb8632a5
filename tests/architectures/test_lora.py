"""LoRA adapters: r·(in + out) for every targeted linear layer."""

import pytest

from zerocalc.architectures import architecture
from zerocalc.architectures.lora import lora_layout
from zerocalc.errors import SpecError

LLAMA = {
    "model_type": "llama", "vocab_size": 100, "hidden_size": 16, "intermediate_size": 40, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip


def _params(config, rank, *targets):
    return lora_layout(architecture(config).layout, rank=rank, targets=targets).num_params


def test_named_targets():
    layout = lora_layout(architecture(LLAMA).layout, rank=4, targets=["q_proj", "v_proj"])
    assert [(name, tensor.shape) for name, tensor in layout.named_tensors()][:4] == [
        ("model.layers.0.self_attn.q_proj.lora_A.default.weight", (4, 16)),
        ("model.layers.0.self_attn.q_proj.lora_B.default.weight", (16, 4)),
        ("model.layers.0.self_attn.v_proj.lora_A.default.weight", (4, 16)),
        ("model.layers.0.self_attn.v_proj.lora_B.default.weight", (8, 4)),
    ]
    assert layout.num_params == 3 * 4 * ((16 + 16) + (16 + 8))
    assert len(layout.units) == 1


def test_all_linear_is_every_linear_layer_but_the_head():
    attention, mlp = 2 * (16 + 16) + 2 * (16 + 8), 3 * (16 + 40)
    assert _params(LLAMA, 8, "all-linear") == 3 * 8 * (attention + mlp)
    assert _params(LLAMA, 8, "all-linear", "lm_head") == 3 * 8 * (attention + mlp) + 8 * (16 + 100)


def test_llama_2_7b_as_published():
    """PEFT prints 4,194,304 trainable parameters for Llama-2-7B with r = 8 on q_proj and v_proj."""
    assert _params({"model_type": "llama"}, 8, "q_proj", "v_proj") == 4_194_304


def test_gpt2_layers_are_transposed():
    layout = lora_layout(architecture({"model_type": "gpt2"}).layout, rank=8, targets=["c_attn"])
    shapes = [tensor.shape for _, tensor in layout.named_tensors()][:2]
    assert shapes == [(8, 768), (2304, 8)]
    assert layout.num_params == 294_912  # as PEFT prints for gpt2 with r = 8


def test_adapters_split_with_their_layer():
    tensors = dict(lora_layout(architecture(LLAMA).layout, rank=2, targets=["all-linear"]).named_tensors())
    axes = {name.split(".", 3)[3]: tensor.tp_axis for name, tensor in tensors.items() if ".0." in name}
    assert axes["self_attn.q_proj.lora_A.default.weight"] is None
    assert axes["self_attn.q_proj.lora_B.default.weight"] == 0
    assert axes["mlp.down_proj.lora_A.default.weight"] == 1
    assert axes["mlp.down_proj.lora_B.default.weight"] is None


def test_fused_experts_and_routers_are_no_linear_layers():
    mixtral = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4}
    assert _params(mixtral, 8, "all-linear") == 3 * 8 * (2 * (16 + 16) + 2 * (16 + 8))
    with pytest.raises(SpecError, match="'gate' is no linear layer"):
        _params(mixtral, 8, "gate")


def test_shared_experts_are():
    deepseek = {"model_type": "deepseek_v3", "num_hidden_layers": 4}
    assert _params(deepseek, 1, "down_proj") == 3 * (18432 + 7168) + (2048 + 7168)


@pytest.mark.parametrize(
    ("rank", "targets"), [(0, ["q_proj"]), (-1, ["q_proj"]), (10**9, ["q_proj"]), (8, [])]
)
def test_refused(rank, targets):
    with pytest.raises(SpecError):
        lora_layout(architecture(LLAMA).layout, rank=rank, targets=targets)


def test_unknown_target_names_what_there_is():
    with pytest.raises(SpecError) as error:
        _params(LLAMA, 8, "c_attn")
    assert "'c_attn'" in error.value.message
    assert error.value.hint == (
        "available: down_proj, gate_proj, k_proj, lm_head, o_proj, q_proj, up_proj, v_proj; or all-linear"
    )
