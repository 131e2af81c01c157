"""Scripts that no test runs, because they take minutes, at least import names that exist."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(
    path for folder in ("benchmarks", "docs", "scripts") for path in (ROOT / folder).glob("*.py")
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_script_imports_what_there_is(script: Path) -> None:
    tree = ast.parse(script.read_text(encoding="utf-8"))
    missing = [
        f"{node.module}.{name.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dprotonet")
        for name in node.names
        if not _there(str(node.module), name.name)
    ]
    assert missing == []


def _there(module: str, name: str) -> bool:
    if hasattr(import_module(module), name):
        return True
    try:
        import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True
