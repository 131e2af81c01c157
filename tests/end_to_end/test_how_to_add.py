"""docs/how-to-add.md is right: what it says is done to a copy of the sources, and the commands know of it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from dprotonet.data.birds import Birds

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to-add.md"
NEW, INSIDE = re.compile(r"# new file (\S+)"), re.compile(r"# in (\S+), after: (.+)")
SPECIES = ("robin", "wren")
TRAIN = (
    "--image-size 64 --backbone timm:test_resnet:none --dimension 16 --prototypes-per-class 2 --epochs 2 "
    "--warm-epochs 1 --push-every 2 --last-layer-epochs 1 --batch-size 8"
)


def blocks() -> list[tuple[str, str]]:
    """First line and rest of every piece of Python on the page."""
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def follow(first: str, rest: str, root: Path) -> Path:
    """Do what a block says; the file that is new or changed."""
    if made := NEW.fullmatch(first):
        path = root / made[1]
        assert not path.exists(), f"{made[1]} is there already"
        path.write_text(rest, encoding="utf-8")
        return path
    inside = INSIDE.fullmatch(first)
    assert inside is not None, f"the page does not say where this goes: {first}"
    path = root / inside[1]
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    places = [number for number, line in enumerate(lines, start=1) if line.strip() == inside[2]]
    assert len(places) == 1, f"{inside[1]} has the line '{inside[2]}' {len(places)} times"
    lines.insert(places[0], rest)
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources with all that the page adds."""
    root = tmp_path_factory.mktemp("added")
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for first, rest in blocks():
        follow(first, rest, root)
    return root / "src"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images named by their class, as the page's data set has them."""
    folder = tmp_path_factory.mktemp("photos")
    birds = Birds(species=2, per_species=10, split="train", size=64)
    for index, label in enumerate(birds.labels):
        pixels = birds[index].image.permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(folder / f"{SPECIES[label]}-{index}.png")
    return folder


def python(sources: Path, *words: str) -> str:
    """What a process prints that has these sources."""
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    command = [sys.executable, *words]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_the_page_adds_one_of_each(sources: Path) -> None:
    titles = re.findall(r"^## … (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {"an explainer", "a network", "a data set", "a metric"} <= set(titles)
    files = [made[1] for first, _ in blocks() if (made := NEW.fullmatch(first))]
    assert {Path(name).parts[2] for name in files} == {"interpretation", "data", "metrics"}
    new = [str(sources.parent / name) for name in files]
    python(sources, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"), "--no-cache", *new)


COMMANDS = """
import json, sys
from dprotonet.cli.main import main

photos, out, image, settings = sys.argv[1:]
for line in (
    f"train --data named:{photos} --network cosine-protopnet --out {out}/run {settings}",
    f"saliency {out}/run {image} --method hiding --out {out}/maps",
    f"compare {out}/run --methods hiding --limit 2 --steps 2 --out {out}/compared",
    f"report {out}/run --compare {out}/compared --heatmaps stored --out {out}/page.html",
):
    assert main(line.split()) == 0, line
from dprotonet.experiment.explaining.explainers import available_explainers
from dprotonet.experiment.trained.trained_model import TrainedModel

served = available_explainers(TrainedModel.load(f"{out}/run"))
print("served:", json.dumps({name: entry.shown for name, entry in served.items()}))
"""


def test_the_commands_have_what_was_added(sources: Path, photos: Path, tmp_path: Path) -> None:
    image = next(photos.iterdir())
    said = python(sources, "-c", COMMANDS, str(photos), str(tmp_path), str(image), TRAIN)
    assert json.loads(said.rpartition("served:")[2])["hiding"] == "Hiding"
    (found,) = (tmp_path / "maps").rglob("explanation.json")
    explanation = json.loads(found.read_text(encoding="utf-8"))
    assert explanation["method"] == "hiding"
    assert explanation["passes"] == {"forward": 64, "backward": 0}
    assert explanation["class_name"] in SPECIES
    compared = json.loads((tmp_path / "compared" / "table.json").read_text(encoding="utf-8"))
    measures = next(row for row in compared["rows"] if row["method"] == "hiding")["measures"]
    assert 0 < measures["hot area"]["mean"] < 1
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "This model is a cosine-protopnet." in page
    assert "hot area" in page


HELP = """
import atexit, os, sys
from dprotonet.cli.main import main

atexit.register(lambda: "torch" in sys.modules and os._exit(3))
main(["saliency", "--help"])
"""


def test_help_lists_the_explainer_and_does_not_wait_for_torch(sources: Path) -> None:
    assert "hiding (Hiding, 64 passes)" in " ".join(python(sources, "-c", HELP).split())


def test_the_contract_of_explainers_runs_over_it(sources: Path) -> None:
    words = ["-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-k", "hiding"]
    suites = [
        str(ROOT / "tests" / "contracts" / f"test_{name}.py") for name in ("explainers", "explainer_targets")
    ]
    said = python(sources, *words, *suites)
    assert re.search(r"\d{2,} passed|\.{20,}", said)


@pytest.mark.parametrize(
    "first",
    ["# somewhere", "# in src/dprotonet/config.py, after: nowhere", "# new file src/dprotonet/config.py"],
)
def test_a_page_that_is_wrong_is_found_out(first: str, tmp_path: Path) -> None:
    (tmp_path / "src" / "dprotonet").mkdir(parents=True)
    shutil.copy(ROOT / "src" / "dprotonet" / "config.py", tmp_path / "src" / "dprotonet" / "config.py")
    with pytest.raises(AssertionError):
        follow(first, "x = 1\n", tmp_path)
