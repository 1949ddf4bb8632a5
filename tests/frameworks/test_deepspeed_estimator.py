"""DeepSpeed's estimators: the printed digits of their documentation and of issues that quote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import zerocalc
from zerocalc.errors import SpecError
from zerocalc.evaluate import evaluate
from zerocalc.frameworks.deepspeed_estimator import STRATEGIES

WORKED = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[1] / "data" / "worked.json").read_text())["cases"]
    if case["id"].startswith(("ds_z2_", "ds_z3_t5", "ds_z3_issue"))
}
GIB = 2**30


def printed(params: int, *, gpus: int, strategy: str, nodes: int = 1, **wanted: Any) -> tuple[int, int]:
    """Bytes per GPU, and per node on the host."""
    settings = wanted.pop("settings", {})
    job = zerocalc.job(
        params, gpus=gpus * nodes, gpus_per_node=gpus, strategy=strategy, framework="deepspeed-estimator",
        settings=settings, **wanted,
    )  # fmt: skip
    result, _ = evaluate(job)
    assert result.memory.cpu.bytes_per_node is not None
    return result.memory.gpu.peak_bytes, result.memory.cpu.bytes_per_node


def offloads(optimizer: bool, params: bool = False) -> dict[str, str]:
    return {
        "offload_optimizer": "cpu" if optimizer else "none",
        "offload_params": "cpu" if params else "none",
    }


@pytest.mark.parametrize("name", [name for name in WORKED if name.startswith("ds_z2_t5")])
def test_stage_2_of_t5_3b(name: str) -> None:
    inputs, expected = WORKED[name]["inputs"], WORKED[name]["expect"]
    answer = printed(
        inputs["params"], gpus=inputs["gpus_per_node"], strategy="zero2", **offloads(inputs["offload"])
    )
    assert answer == (expected["gpu"], expected["cpu"])


@pytest.mark.parametrize("name", [name for name in WORKED if name.startswith("ds_z3_t5")])
def test_stage_3_of_t5_3b(name: str) -> None:
    inputs, expected = WORKED[name]["inputs"], WORKED[name]["expect"]
    answer = printed(
        inputs["params"],
        gpus=inputs["gpus_per_node"],
        strategy="zero3",
        settings={"largest_layer_params": inputs["largest_layer"], "zero_init": inputs["zero_init"]},
        **offloads(inputs["offload_opt"], inputs["offload_param"]),
    )
    assert answer == (expected["gpu"], expected["cpu"])


def test_the_documentation_still_prints_the_older_stage_2() -> None:
    gpu, _ = printed(2_851_000_000, gpus=8, strategy="zero2", settings={"version": "before-2024-06"})
    assert gpu == 17_106_000_000
    assert f"{gpu / GIB:.2f}" == "15.93"


def test_figures_that_issues_quote() -> None:
    quoted = WORKED["ds_z2_issue2131"]["expect"]
    older = {"version": "before-2024-06"}
    assert printed(66 * 10**9, gpus=16, strategy="zero2", **offloads(True)) == (
        quoted["gpu_offload"],
        quoted["cpu"],
    )
    assert printed(66 * 10**9, gpus=16, strategy="zero2", settings=older)[0] == quoted["gpu_old_no_offload"]
    stage3 = WORKED["ds_z3_issue4527"]["expect"]
    largest = {"largest_layer_params": 131_000_000}
    assert printed(6_805_000_000, gpus=4, strategy="zero3", settings=largest) == (
        stage3["gpu"],
        stage3["cpu"],
    )
    full = printed(6_805_000_000, gpus=4, strategy="zero3", settings=largest, **offloads(True, True))
    assert full[1] == stage3["cpu_full_offload"]


@pytest.mark.parametrize(
    ("optimizer", "params", "expected"),
    [(False, False, 6_000_000_000), (True, False, 24_000_000_000), (True, True, 13_500_000_000)],
)
def test_several_nodes_share_the_states_but_not_the_loading(
    optimizer: bool, params: bool, expected: int
) -> None:
    settings = {"zero_init": params, "largest_layer_params": 1}
    answer = printed(
        10**9, gpus=1 if not optimizer else 4, nodes=2, strategy="zero3", settings=settings,
        **offloads(optimizer, params),
    )  # fmt: skip
    assert answer[1] == expected


def test_llama_2_7b_as_users_quote_it() -> None:
    job = zerocalc.job("llama-2-7b", gpus=8, strategy="zero2", framework="deepspeed-estimator")
    assert f"{evaluate(job)[0].memory.gpu.peak_bytes / GIB:.2f}" == "26.67"


def test_the_largest_layer_is_a_module_not_a_block() -> None:
    job = zerocalc.job(
        "llama-2-7b", gpus=8, strategy="zero3", framework="deepspeed-estimator", **offloads(True, True)
    )
    assert evaluate(job)[0].memory.gpu.peak_bytes == 4 * 32_000 * 4096


def test_it_knows_stages_2_and_3_only() -> None:
    assert frozenset({"zero2", "zero3"}) == STRATEGIES


def test_a_wrong_buffer_factor_is_refused() -> None:
    with pytest.raises(SpecError, match="additional_buffer_factor"):
        printed(10**9, gpus=8, strategy="zero2", settings={"additional_buffer_factor": "much"})
