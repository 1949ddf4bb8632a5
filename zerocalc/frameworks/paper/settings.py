"""The knobs that the papers name: ZeRO++'s three, ZeRO-Infinity's working memory, ZeRO-R's buffer, activations."""

from __future__ import annotations

from zerocalc.frameworks.activation_settings import ACTIVATION_SETTINGS
from zerocalc.frameworks.settings import Setting

ZEROPP = frozenset({"zeropp"})
_SHARDED_PARAMS = frozenset({"zero3", "hsdp", "mics", "zeropp"})


SETTINGS = (
    Setting(
        name="hpz", kind="int", default=None, minimum=1, strategies=ZEROPP,
        doc="ranks that hold a secondary copy of the parameters between them (default: the GPUs of a node; 1 is off)",
    ),
    Setting(name="qwz", kind="bool", default=True, strategies=ZEROPP, doc="gather parameters as int8 in forward"),
    Setting(name="qgz", kind="bool", default=True, strategies=ZEROPP, doc="reduce gradients as int4 in two hops"),
    Setting(
        name="quant_block", kind="int", default=2048, minimum=1, strategies=ZEROPP,
        doc="elements that share one fp32 scale when quantised",
    ),
    Setting(
        name="working_memory", kind="str", default=None, choices=("unit", "operator"), strategies=_SHARDED_PARAMS,
        doc="what is gathered at once: the largest unit (a layer; default), or the largest operator as ZeRO-Infinity "
        "counts (default once parameters are offloaded)",
    ),
    Setting(
        name="constant_buffer", kind="int", default=0,
        doc="ZeRO-R CB: elements of the fused fp32 buffer, whatever the model's size",
    ),
    *ACTIVATION_SETTINGS,
)  # fmt: skip  # fmt: skip
