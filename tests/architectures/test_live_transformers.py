"""The real thing: random configs built by transformers on the meta device, parameter by parameter."""

import json

import pytest
from hypothesis import HealthCheck, assume, given, settings

from tests.architectures.test_closed_forms import FORMS, configs
from zerocalc.architectures import architecture
from zerocalc.architectures.counts import count_params

pytestmark = [pytest.mark.live, pytest.mark.filterwarnings("ignore")]
CLASSES = {
    "gpt2": "GPT2LMHeadModel", "gptj": "GPTJForCausalLM", "gpt_neox": "GPTNeoXForCausalLM", "opt": "OPTForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM", "gemma3_text": "Gemma3ForCausalLM", "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM", "gpt_oss": "GptOssForCausalLM", "bert": "BertForMaskedLM",
    "t5": "T5ForConditionalGeneration", "vit": "ViTForImageClassification",
}  # fmt: skip


def _build(config):
    """Build the class's model without weights; None where transformers refuses the config."""
    import torch
    import transformers

    family = config["model_type"]
    name = CLASSES.get(family, f"{family.capitalize()}ForCausalLM")
    keys = {key: value for key, value in json.loads(json.dumps(config)).items() if key != "model_type"}
    try:
        with torch.device("meta"):
            return getattr(transformers, name)(transformers.CONFIG_MAPPING[family](**keys))
    except Exception:  # its strict validation and its classes raise what they like
        return None


@pytest.mark.parametrize("family", sorted(set(FORMS) - {"kimi_k2"}))
def test_parameters_ties_and_buffers(family):
    pytest.importorskip("transformers")

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(configs(family))
    def hold(config):
        if family == "t5":
            config.pop("tie_word_embeddings", None)  # transformers 5 ties whatever the file says
        if family == "gpt_oss":
            config["head_dim"] = 2 * (config.get("head_dim") or 1)  # its rotary table needs pairs
        model = _build(config)
        assume(model is not None)
        described = architecture(config)
        layout = described.layout
        real = [(name, tuple(parameter.shape)) for name, parameter in model.named_parameters()]
        assert [(name, tensor.shape) for name, tensor in layout.named_tensors()] == real
        names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        assert {tie.name for tie in layout.ties} == names - {name for name, _ in real}
        buffers = sum(buffer.numel() for buffer in model.buffers())
        assert sum(buffer.numel * buffer.count for buffer in layout.buffers) == buffers
        owned = max(sum(p.numel() for p in m._parameters.values() if p is not None) for m in model.modules())
        assert count_params(described).largest_layer_params == owned

    hold()
