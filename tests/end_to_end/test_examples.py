"""The examples run as they are printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
RECIPES = {
    re.findall(r"python examples/(\w+)\.py", code)[0]: code
    for code in re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "DPROTONET_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, str(path), str(tmp_path / "run")]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    if path.stem in RECIPES:
        assert list((tmp_path / "run").rglob("overlay.png")), "a recipe draws a picture"


def test_the_recipes_are_the_examples() -> None:
    """docs/recipes.md prints examples as they are."""
    printed = {text.strip() for text in RECIPES.values()}
    assert printed <= {path.read_text(encoding="utf-8").strip() for path in EXAMPLES}
    assert len(RECIPES) == 6
