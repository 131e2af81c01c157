"""Collects into docs/fidelity.md where defaults depart from the paper, and all that docstrings mark as
`Deviation:` or `Unstated:`.

python docs/collect_fidelity.py          # write the page
python docs/collect_fidelity.py --check  # exit 1 if it is stale
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from dprotonet.config import by_name
from dprotonet.experiment.settings.paper_values import PAPER
from dprotonet.experiment.settings.recipes import config_from

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "fidelity.md"
HEAD = """# Fidelity to the paper

Made by `python docs/collect_fidelity.py` from the docstrings; do not edit. *Deviation*: we do otherwise, and
say why. *Unstated*: the paper is silent, and we chose.
"""

SETTINGS = """## Settings

`--recipe paper` has the paper's value of every setting that the paper states (`dprotonet train --recipe paper
--show-config` prints them with their places). Where our defaults differ (frozen mode has parts by default,
[parts.md](parts.md); `--recipe masks` is beside it):
"""


def departures(kind: str) -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            place = str(path.relative_to(ROOT / "src" / "dprotonet")) + _name(node)
            yield from ((place, text) for text in _marked(ast.get_docstring(node) or "", kind))


def _name(node: ast.AST) -> str:
    return f", `{node.name}`" if hasattr(node, "name") else ""


def _marked(docstring: str, kind: str) -> Iterator[str]:
    """From the marker to the end of its paragraph or to the next marker."""
    for paragraph in docstring.split("\n\n"):
        text = " ".join(paragraph.split())
        for piece in (
            text.replace("Deviation:", "\0Deviation:").replace("Unstated:", "\0Unstated:").split("\0")
        ):
            if piece.startswith(kind + ":"):
                yield piece.removeprefix(kind + ":").strip()


def settings() -> Iterator[str]:
    """A line for every setting that the paper states and a default of ours departs from."""
    asked = [("joint", "default"), ("frozen", "default"), ("frozen", "masks")]
    modes = [by_name(config_from({"training": {"mode": mode}, "recipe": name})) for mode, name in asked]
    yield "| setting | the paper | its place | default, joint | default, frozen | `masks`, frozen | why |"
    yield "|---|---|---|---|---|---|---|"
    for name, item in PAPER.stated.items():
        ours = [mode[name] for mode in modes]
        if item.value is not None and any(value != item.value for value in ours):
            shown = [
                f"`{name.rpartition('.')[2]}`",
                f"{item.value}",
                item.place,
                *map(str, ours),
                item.departure,
            ]
            yield f"| {' | '.join(shown)} |"


def page() -> str:
    parts = [HEAD, SETTINGS, "\n".join(settings()), ""]
    for kind, title in (("Deviation", "Deviations"), ("Unstated", "Unstated in the paper")):
        parts.append(f"## {title}\n")
        parts += [f"- **{place}**: {text}" for place, text in departures(kind)]
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
