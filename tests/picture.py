"""The README's picture of the table, drawn from the command's own output: `python -m tests.picture`."""

from __future__ import annotations

import io
import re

from rich.console import Console
from rich.text import Text

from tests.readme import ROOT, run

COMMAND = "zerocalc compare 70b --dp 64 --gpu 80GB"
PICTURE = ROOT / ".github/images/compare.svg"
_FONT_FACES = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def drawn() -> str:
    """The picture as SVG text; it loads no font from the network."""
    output = run(f"{COMMAND} --color always").split("\nNot counted")[0]
    console = Console(
        record=True, width=100, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Text(f"$ {COMMAND}", style="bold"))
    console.print(Text.from_ansi(output))
    svg = console.export_svg(title="zerocalc", unique_id="zerocalc")
    return _FONT_FACES.sub("", svg).replace("Fira Code", "ui-monospace, Menlo, Consolas") + "\n"


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
