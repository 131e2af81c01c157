"""Python in README, docs and examples: it imports names of `dprotonet` itself only, and it runs."""

import ast
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tests.conftest import tiny_config

import dprotonet as dp
from dprotonet.config import given_tables

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
INSIDE = "how-to-add.md"  # code for files of the package itself
RUN_ELSEWHERE = {
    "README.md": "test_readme.py",
    "export.md": "test_onnx_model.py",
    "decoder.md": "test_decoder_page.py",
    "labels.md": "test_several_labels.py",
    "recipes.md": "test_examples.py",
    INSIDE: "test_how_to_add.py",
}


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def printed() -> Iterator[tuple[str, str]]:
    """Where Python stands, and the Python."""
    for page in PAGES:
        if page.name == INSIDE:
            continue
        yield from ((f"{page.name} {number}", code) for number, code in enumerate(blocks(page), 1))
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield path.name, path.read_text(encoding="utf-8")
    notebook = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    yield from ((f"tutorial.ipynb {n}", "".join(cell["source"])) for n, cell in enumerate(cells, 1))


def imported(code: str) -> set[str]:
    """Modules that a piece of Python imports, of `dprotonet`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return {name for name in found if name.partition(".")[0] == "dprotonet"}


def named(code: str) -> set[str]:
    """Names of `dp` that a piece of Python uses."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute)]
    used = {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == "dp"}
    taken = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    return used | {alias.name for node in taken if node.module == "dprotonet" for alias in node.names}


@pytest.mark.parametrize(("place", "code"), printed(), ids=lambda value: value if len(value) < 50 else "")
def test_printed_code_needs_public_names_only(place: str, code: str) -> None:
    assert imported(code) <= {"dprotonet"}, place
    assert named(code) <= set(dp.__all__), place


def test_the_check_sees_deep_imports() -> None:
    deep = "import dprotonet.config\nfrom dprotonet.data.birds import Birds\nimport torch"
    assert imported(deep) == {"dprotonet.config", "dprotonet.data.birds"}
    assert named("import dprotonet as dp\nfrom dprotonet import MDM\ndp.load('x').predict('y')") == {
        "MDM",
        "load",
    }


# What holds of the demo's prototypes, for a run that has eight, none of them pure.
OF_DEMO = {"[71]": "[1]", "[71, 92]": "[1, 2]", "item.purity < 0.7": "item.prototype == 0"}
TRAINING = re.compile(r'data="folder:photos"(?:, mode="frozen")?')
RUN_HERE = [
    (page.name, number, code)
    for page in PAGES
    if page.name not in RUN_ELSEWHERE
    for number, code in enumerate(blocks(page), 1)
]


@pytest.mark.parametrize(("page", "number", "code"), RUN_HERE, ids=[f"{p} {n}" for p, n, _ in RUN_HERE])
def test_the_python_of_the_pages_runs(
    page: str, number: int, code: str, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPROTONET_CACHE", str(tmp_path / "cache"))
    Image.fromarray(dp.Birds(species=4, per_species=1)[0].image.permute(1, 2, 0).numpy()).save("new.png")
    for name in ("demo", "photos"):
        if "dp.train" not in code:
            shutil.copytree(run_folder, Path("runs") / name)
    for words, here in OF_DEMO.items():
        code = code.replace(words, here)
    exec(TRAINING.sub("**tiny", code), surroundings())


def surroundings() -> dict[str, Any]:
    """What blocks take for granted: a `model`, some `images`; and settings of a run of seconds."""
    tables = given_tables(tiny_config(mode="frozen", epochs=2, last_layer_epochs=1))
    settings = {key: value for table in tables.values() for key, value in table.items()}
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 300, 8, stride=8), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    )
    return {"tiny": settings, "model": model.eval(), "images": torch.rand(1, 3, 32, 32)}
