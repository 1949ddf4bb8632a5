"""What an answer says beside its numbers."""

import re

import zerocalc
from zerocalc.render import Look, render
from zerocalc.render.views.common import by_group

from .answers import comparison, every_answer, job


def _text(result, **look):
    return " ".join(render(result, "table", Look(**look)).split())


def test_over_the_dividing_line_no_number_of_gpus_helps():
    text = _text(comparison("bare"))
    assert (
        "kept whole (2Ψ) take 140.0 GB and one GPU has 80.0 GB: no number of GPUs helps ZeRO-1 or ZeRO-2"
        in text
    )
    assert "parameters must be sharded (ZeRO-3)" in text


def test_under_the_dividing_line_it_says_from_which_degree_on():
    result = zerocalc.compare(zerocalc.job("7.5b", dp=64, gpu="32GB"))
    assert result.dividing_line.zero2_min_data_parallel_size == 7
    assert "take 15.0 GB of 32.0 GB: ZeRO-2 fits from N_d = 7 on" in _text(result)


def test_model_parallel_degrees_stand_in_the_dividing_line():
    assert "(2Ψ/(tp·pp))" in _text(comparison("parallel"))


def test_without_a_gpu_there_is_no_verdict_and_the_next_command_adds_one():
    text = _text(comparison("no_gpu"), arguments="7b --dp 8")
    assert "Fits" not in text
    assert text.endswith("Next: zerocalc compare 7b --dp 8 --gpu 80GB")


def test_the_next_command_is_the_cheapest_that_fits():
    assert _text(comparison("bare"), arguments="X").endswith("Next: zerocalc estimate X --strategy zero3")
    nothing_fits = zerocalc.compare(zerocalc.job("70b", dp=2, gpu="16GB"))
    assert _text(nothing_fits, arguments="X").endswith("Next: zerocalc solve gpus X")


def test_offload_shows_host_memory_and_what_it_is_not():
    text = _text(comparison("offload"))
    assert "capacity, not throughput" in text
    assert "Host/rank Host/node Capacity Fits" in text
    assert "DDP does not apply: ddp cannot offload optimizer states" in text


def test_a_peak_above_the_states_gets_its_column_and_its_phase():
    text = _text(comparison("real"))
    assert "Total Peak Floor" in text
    assert "Peak: ZeRO-3 in forward+backward" in text
    assert "Total Floor" in _text(comparison("bare"))


def test_assumptions_exclusions_and_warnings_are_said():
    result = zerocalc.compare(zerocalc.job("7b", dp=1, gpu="80GB"))
    text = _text(result)
    for label, sentences in (("Warning", result.warnings), ("Not counted", result.excluded)):
        assert sentences
        assert all(f"{label}: {sentence}" in text for sentence in sentences)
    assert all(f"Assumed: {line}" in _text(comparison("real")) for line in comparison("real").assumptions)


def test_estimate_shows_every_term_in_its_phases_and_sums_them():
    text = render(zerocalc.estimate(job("bare")), "table", Look())
    assert "grads                64        –                 –           2.2             2.2" in text
    assert "Sum                         15.3              15.3          17.5            17.5" in text
    assert (
        "Peak: 17.5 GB in backward end, most of it optimizer states; fits, yes: 62.5 GB left of 80.0 GB"
        in text
    )


def test_a_question_without_an_answer_says_why():
    text = _text(every_answer()["solve-gpus"])
    assert "DDP none" in text
    assert "DDP: no number of GPUs helps" in text


def test_explain_gives_formula_numbers_origin_and_source():
    text = _text(every_answer()["explain-model_states"])
    assert "ceil(bytes_per_param * ceil_div(num_params, shards))" in text
    assert "= ceil(2" in text
    assert "https://arxiv.org/abs/1910.02054" in text
    assert "param_dtype from preset:mixed-bf16" in text


def test_a_sum_over_groups_has_one_group_a_line():
    assert by_group("ceil(2 * 3) + ceil(4 + 5)") == "ceil(2 * 3)\n    + ceil(4 + 5)"
    assert by_group("ceil(2 + 3)") == "ceil(2 + 3)"


def test_the_next_command_keeps_the_framework_that_was_asked_for():
    result = zerocalc.compare(zerocalc.job("gpt2", dp=8, gpu="80GB"), frameworks=["paper", "pytorch"])
    assert re.search(
        r"Next: zerocalc estimate X --strategy \w+( --framework pytorch)?$", _text(result, arguments="X")
    )
    nowhere = zerocalc.compare(zerocalc.job("gpt2", dp=8), frameworks=["paper", "pytorch"])
    assert _text(nowhere, arguments="X").endswith("compare X --gpu 80GB --framework paper,pytorch")


def test_frameworks_side_by_side_get_a_column():
    both = comparison("bare")
    twin = [row for row in both.results for row in (row, type(row)(**{**row.__dict__, "framework": "other"}))]
    text = _text(type(both)(**{**both.__dict__, "results": twin}))
    assert "Strategy Framework Params" in text
    assert "DDP paper 140.0" in text
    assert "DDP other 140.0" in text


def test_an_estimate_says_from_which_degree_on_more_gpus_stop_helping():
    # ZeRO-2 of 70B: 14 of 16 bytes fall as 1/N_d, 2 stay; 14/N_d is under a twentieth of 2 from 140 on.
    text = _text(zerocalc.estimate(zerocalc.job("70b", dp=64, strategy="zero2")))
    assert "15.3 GB of the peak fall as 1/N_d, 140.0 GB stay: from N_d = 140 on adding GPUs stops" in text
    assert "no part of the peak falls" in _text(zerocalc.estimate(zerocalc.job("7b", dp=8, strategy="ddp")))
    assert "every further one helps" in _text(zerocalc.estimate(zerocalc.job("7b", dp=8, strategy="zero3")))


def test_many_phases_stand_apart_from_their_terms():
    """A framework's dozen phases: every phase has its sum, every term its bytes and when it is live."""
    asked = zerocalc.job(
        "llama-3-8b", dp=8, framework="pytorch", strategy="zero3", micro_batch=1, seq_len=1024
    )
    result = zerocalc.estimate(asked)
    text = render(result, "table", Look(width=None))
    gpu = result.results[0].memory.gpu
    assert len(gpu.phases) > 6
    for phase in gpu.phases:
        assert phase.replace("_", " ").replace("forward backward", "forward+backward") in text.lower()
    for term in gpu.terms:
        assert term.name.replace("_", " ") in text
    assert "throughout" in text


def test_what_is_kept_free_says_what_it_covers_and_is_not_called_uncounted():
    given = zerocalc.job("llama-3-8b", gpus=8, gpu="h100", micro_batch=1, seq_len=2048)
    for answer in (zerocalc.compare(given), zerocalc.estimate(given), zerocalc.solve(given, "gpus")):
        assert any("kept free: 5,585,966,220 bytes for CUDA context" in text for text in answer.assumptions)
        assert any("preset:nvidia-hopper" in text for text in answer.assumptions)
        assert not any("CUDA context" in text for text in answer.excluded)
    flagged = zerocalc.job("7b", gpus=8, gpu="80GB", reserve="5%")
    assert any("4,000,000,000 bytes" in text for text in zerocalc.compare(flagged).assumptions)
    bare = zerocalc.compare(zerocalc.job("7b", gpus=8, gpu="80GB"))
    assert any("CUDA context" in text for text in bare.excluded)


def test_a_strategy_that_nobody_chose_is_assumed():
    said = "strategy zero3 (default); --strategy chooses"
    assert said in zerocalc.estimate(zerocalc.job("7b", gpus=8)).assumptions
    assert said not in zerocalc.estimate(zerocalc.job("7b", gpus=8, strategy="zero3")).assumptions
    assert said not in zerocalc.compare(zerocalc.job("7b", gpus=8)).assumptions


def test_peaks_of_several_frameworks_have_a_line_each():
    given = zerocalc.job("llama-3-8b", gpus=8)
    names = ["paper", "deepspeed", "pytorch"]
    lines = render(zerocalc.compare(given, frameworks=names), "table", Look(width=300)).split("\n")
    peaks = [line for line in lines if line.startswith("Peak under ")]
    assert [line.split()[2].rstrip(":") for line in peaks] == names
    assert "DDP in optimizer step, most of it master weights" in peaks[1]


def test_bytes_sent_show_what_a_multiple_of_psi_does_not():
    def sent(**words):
        text = render(zerocalc.compare(zerocalc.job("7b", gpus=8, **words)), "table", Look(quiet=True))
        return text.split("\n")[0].endswith("sent in one optimizer step"), " Sent" in text

    assert sent() == (False, False)
    assert sent(reduce_dtype="fp32") == (True, True)
    assert sent(framework="pytorch") == (True, True)


def test_a_named_gpu_has_its_size_in_both_units():
    text = render(zerocalc.compare(zerocalc.job("7b", gpus=8, gpu="h100")), "table", Look(width=300))
    assert "h100-sxm-80, 85.0 GB (79.2 GiB) each" in text
    assert "GiB" not in render(zerocalc.compare(zerocalc.job("7b", gpus=8, gpu="80GB")), "table", Look())


def test_what_no_strategy_changes_is_not_said_of_one():
    given = zerocalc.job("13b", gpus=16, gpu="80GB")
    text = render(zerocalc.explain(given, "offload"), "table", Look())
    assert "\nkept on gpu (baseline, gpu) = 208.0 GB" in text
    assert "ZeRO-3:" not in text
