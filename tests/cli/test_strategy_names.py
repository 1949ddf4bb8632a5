"""FSDP's names on the command line: the strategy they stand for, and the sentence that says so."""

from __future__ import annotations

import json

import pytest

from .running import call


@pytest.mark.parametrize(
    ("typed", "rows", "said"),
    [
        ("full_shard", ["zero3"], ["full_shard read as zero3"]),
        ("full_shard,no_shard", ["zero3", "ddp"], ["full_shard read as zero3", "no_shard read as ddp"]),
        ("zero2,shard_grad_op", ["zero2"], ["shard_grad_op read as zero2"]),
        ("zero-3,ddp", ["zero3", "ddp"], []),
    ],
)
def test_what_a_name_stands_for_is_said(typed, rows, said):
    answer = json.loads(call("compare", "7b", "-n", "8", "--strategy", typed, "-f", "json").out)
    assert [row["strategy"] for row in answer["results"]] == rows
    sentences = [text for text in answer["assumptions"] if " read as " in text]
    assert [text.partition(":")[0] for text in sentences] == said
