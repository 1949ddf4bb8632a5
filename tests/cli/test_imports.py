"""Start-up is what users feel: what is not needed is not imported."""

import subprocess
import sys

import pytest

from .running import MAIN, environment

HEAVY = ("numpy", "rich", "yaml", "hjson", "torch", "tomllib", "huggingface_hub")


def _imported(*arguments):
    script = "import sys\nfrom zerocalc.cli import run\ncode = run(sys.argv[1:])\nprint(' '.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environment(), capture_output=True, text=True, encoding="utf-8", check=True, timeout=60,
    )  # fmt: skip
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments", [(), ("--help",), ("--version",), ("compare", "--help"), ("schema", "compare")]
)
def test_help_and_schemas_import_neither_pydantic_nor_the_core(arguments):
    modules = _imported(*arguments)
    assert modules & {*HEAVY, "pydantic", "zerocalc.evaluate", "zerocalc.results"} == set()


def test_json_imports_neither_rich_nor_numpy():
    modules = _imported(*MAIN, "-f", "json")
    unwanted = {*HEAVY, "zerocalc.render.document", "zerocalc.jobs.project", "zerocalc.readers.hub"} - {
        "tomllib"
    }
    assert modules & unwanted == set()


def test_a_deepspeed_file_in_strict_json_imports_no_other_format(tmp_path):
    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {"stage": 2}}')
    modules = _imported("compare", "70b", "-n", "8", "--deepspeed", str(path), "-f", "json")
    assert modules & set(HEAVY) == {"tomllib"}


def test_a_table_imports_rich_and_no_numpy():
    modules = _imported(*MAIN)
    assert "rich.table" in modules
    assert "numpy" not in modules


def test_only_the_table_imports_rich():
    from pathlib import Path

    import zerocalc

    sources = Path(zerocalc.__file__).parent.rglob("*.py")
    assert [
        path.name for path in sources if "rich" in path.read_text() and "from rich" in path.read_text()
    ] == ["table.py"]
