"""The notebook runs from top to bottom, and what it would show can be shown.

Its code cells are executed in one namespace; what the last line of a cell gives is displayed as a notebook
would, so that a broken `_repr_html_` is noticed. No Jupyter is needed.
"""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
CONTENT = json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))
SOURCES = [(cell["cell_type"], "".join(cell["source"])) for cell in CONTENT["cells"]]


def shown(code: str, namespace: dict[str, Any]) -> Any:
    """Run a cell; what its last line gives, if that is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), namespace)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)


def displayed(value: Any) -> str:
    """The richest form a notebook would find."""
    for name in ("_repr_html_", "_repr_png_"):
        if hasattr(value, name):
            made = getattr(value, name)()
            assert made
            return name
    return repr(value)


def test_the_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DPROTONET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    namespace: dict[str, Any] = {}
    seen = [displayed(shown(code, namespace)) for kind, code in SOURCES if kind == "code"]
    assert seen.count("_repr_html_") == 3  # two predictions and an explanation
    assert seen.count("_repr_png_") == 2  # a sheet and a grid
    assert "0" in seen  # the command went well
    assert "faithfulness" in capsys.readouterr().out
    assert namespace["prediction"].familiar
    assert not namespace["strange"].familiar


def test_it_is_a_notebook_without_outputs() -> None:
    assert (CONTENT["nbformat"], CONTENT["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in CONTENT["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in CONTENT["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_its_links_lead_somewhere() -> None:
    words = "\n".join(text for kind, text in SOURCES if kind == "markdown")
    targets = re.findall(r"\]\(([^)#:]+)\)", words)
    assert targets
    assert [target for target in targets if not (DOCS / target).is_file()] == []
