"""`[[localisation.line]]` in a plan: one table over several networks, on so many images of each class."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tests.end_to_end.test_localisation_table import PLAN as TABLE
from tests.end_to_end.test_localisation_table import Truths

from dprotonet.cli.main import main
from dprotonet.data.birds import Birds
from dprotonet.experiment.benchmark.files import save_benchmark
from dprotonet.experiment.benchmark.localisation import Localisation, images_of_each_class
from dprotonet.experiment.benchmark.plan import Plan
from dprotonet.experiment.benchmark.run import Benchmark
from dprotonet.experiment.compare.store import Store

LINES = """
[localisation]
images_per_class = 2
steps = 2
top = 0.5
truth = "bird"

[[localisation.line]]
name = "Grad-CAM"
row = "black box"
method = "gradcam"

[[localisation.line]]
name = "ProtoPNet"
row = "ProtoPNet"
method = "similarity"

[[localisation.line]]
name = "decoder"
row = "ProtoPNet"
method = "mdm-prototype:paper,iterations=2"

[[localisation.line]]
name = "in the middle"
row = "black box"
method = "centre"
"""
START, END = TABLE.index("[localisation]"), TABLE.index("[[row]]")
PLAN = TABLE[:START].replace('title = "Tiny"', 'title = "Tiny"\nseeds = [0, 1]') + LINES + TABLE[END:]
NAMES = ["Grad-CAM", "ProtoPNet", "decoder", "in the middle"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lines")
    (folder / "plan.toml").write_text(PLAN)
    assert main(words(folder)) == 0
    return folder


def words(folder: Path) -> list[str]:
    paths = [str(folder / "plan.toml"), "--out", str(folder / "out"), "--cache", str(folder / "cache")]
    return ["benchmark", *paths]


def content(folder: Path, name: str = "results.json") -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "out" / name).read_text())
    return read


def test_one_table_has_lines_of_several_networks(done: Path) -> None:
    lines = content(done)["localisation"]
    assert [line["name"] for line in lines] == NAMES
    assert [line["row"] for line in lines] == ["black box", "ProtoPNet", "ProtoPNet", "black box"]
    assert {line["images"] for line in lines} == {4}
    accuracy = {item["row"]: [] for item in content(done)["results"]}  # type: ignore[var-annotated]
    for item in content(done)["results"]:
        accuracy[item["row"]].append(100 * item["accuracy"])
    for line in lines:
        assert line["accuracy"] == pytest.approx(sum(accuracy[line["row"]]) / 2)
    assert (lines[2]["forward"], lines[2]["backward"]) == (
        23,
        20,
    )  # the image, a blank one, its prototype, 2 × 10 masks


def test_only_what_a_line_names_is_measured(done: Path) -> None:
    runs = done / "out" / "runs"
    found = {path.parent.name for path in runs.glob("black_box*/localisation/done/*/*.npz")}
    assert found == {"gradcam", "centre"}


def test_a_value_is_the_mean_over_images_of_the_mean_over_seeds(done: Path) -> None:
    chosen = images_of_each_class(Birds(species=2, per_species=3, split="test", size=32), 2)
    values = torch.zeros(4, 2, dtype=torch.double)
    for seed in (0, 1):
        store = Store(done / "out" / "runs" / f"ProtoPNet--birds--seed{seed}" / "localisation")
        for place, index in enumerate(chosen):
            record = store.read("similarity", index)
            assert record is not None
            values[place, seed] = record.values["insertion"]
    cell = content(done)["localisation"][1]["measures"]["insertion"]
    assert cell["mean"] == pytest.approx(float(values.mean()))
    means = values.mean(dim=1)
    assert float(means.min()) <= cell["low"] <= cell["mean"] <= cell["high"] <= float(means.max())


def test_the_paper_s_eight_measures_first_and_named_by_what_they_are(done: Path) -> None:
    text = (done / "out" / "localisation.md").read_text()
    heads = next(line for line in text.splitlines() if line.startswith("| method"))
    assert heads.strip("| ").split(" | ") == [
        "method",
        "network",
        "explained by",
        "accuracy ↑",
        "AD, 50 % of pixels kept ↓",
        "AI, 50 % of pixels kept ↑",
        "deletion ↓",
        "insertion ↑",
        "DICE ↑",
        "IOU ↑",
        "PPV ↑",
        "sensitivity of the maps, top 50 % against the bird ↑",
        "AD, soft ↓",
        "AI, soft ↑",
        "seconds",
        "F / B",
    ]
    assert "2 test images of each class, drawn by seed 0" in text
    assert "4 images, 4 with truth" in text
    rows = list(csv.DictReader((done / "out" / "localisation.csv").open()))
    assert [row["measure"] for row in rows[:2]] == ["AD50", "AI50"]
    assert content(done, "localisation.json")["lines"] == content(done)["localisation"]
    assert r"Grad-CAM & black box & gradcam & " in (done / "out" / "localisation.tex").read_text()


def test_the_pictures_are_there_and_listed(done: Path) -> None:
    files = content(done)["files"]
    for what in ("curves", "sweep", "grid"):
        path = Path(files[f"{what} of maps on birds"])
        assert path.name == f"localisation-1-{what}.png"
        assert Image.open(path).width > 300


def test_images_of_each_class_by_loops_and_more_include_fewer() -> None:
    data = Truths([None] * 9)
    data.labels = [0, 1, 1, 0, 2, 1, 1, 0, 0]
    for count, wanted in ((1, {0: 1, 1: 1, 2: 1}), (3, {0: 3, 1: 3, 2: 1})):
        found = images_of_each_class(data, count, seed=5)
        assert {label: [data.labels[i] for i in found].count(label) for label in range(3)} == wanted
    assert set(images_of_each_class(data, 1, seed=5)) <= set(images_of_each_class(data, 3, seed=5))
    draws = {images_of_each_class(data, 1, seed=seed) for seed in range(9)}
    assert len(draws) > 1


def test_images_without_truth_count_for_recognition_only_and_are_named(done: Path, tmp_path: Path) -> None:
    """As a lesion mask that is missing: the image's other measures go on."""
    plan = Plan.of(content_of(PLAN), where="plan")
    benchmark = Benchmark(plan, done / "out", cache=done / "cache", splits=Blind())  # type: ignore[arg-type]
    assert plan.localisation is not None
    localisation = Localisation(benchmark, plan.localisation)
    index = localisation.images(plan.cells[0])[0]
    for path in (done / "out" / "runs").glob(f"*/localisation/done/*/{index:06d}.npz"):
        path.unlink()
    Blind.hidden = index
    try:
        assert [step.failure for step in localisation.run() if step.failure] == []
        lines = save_benchmark(benchmark)["localisation"]
        text = (done / "out" / "localisation.md").read_text()
    finally:
        Blind.hidden = None
    assert {line["images"] for line in lines} == {4}
    name = Birds(species=2, per_species=3, split="test", size=32).name(index)
    assert f"4 images, 3 with truth; 1 without: {name}" in text
    assert content(done, "localisation.json")["columns"][0]["without truth"] == [name]


class Blind:
    """The birds, one of whose test images has no truth."""

    hidden: int | None = None

    def __call__(self, config: Any, on_progress: Any = None) -> Any:
        from dataclasses import replace

        from dprotonet.experiment.build.data import build_splits

        found = build_splits(config)
        return replace(found, test=_Hidden(found.test))


class _Hidden:
    def __init__(self, data: Any) -> None:
        self.data, self.classes, self.labels, self.name = data, data.classes, data.labels, data.name
        self.fingerprint = data.fingerprint

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        from dataclasses import replace

        sample = self.data[index]
        return replace(sample, truth=None) if index == Blind.hidden else sample


def content_of(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


def test_results_of_another_version_are_refused_by_their_folder(
    done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = next((done / "out" / "runs").glob("ProtoPNet--birds--seed0/localisation/plan.json"))
    kept = path.read_text()
    path.write_text(json.dumps(json.loads(kept) | {"version": "0.0.1"}))
    assert main([*words(done), "--json"]) == 1
    path.write_text(kept)
    printed = capsys.readouterr()
    (failure,) = json.loads(printed.out)["failures"]
    assert failure["run"] == "ProtoPNet--birds--seed0"
    assert f"{path.parent} holds a comparison with another version; name another --out" in failure["reason"]


MISTAKES = [
    ('row = "black box"\nmethod = "gradcam"', 'row = "box"\nmethod = "gradcam"', "the plan has no row 'box'"),
    ('"centre"', '"center"', "line 'in the middle': unknown method 'center'"),
    ('row = "ProtoPNet"\nmethod = "sim', 'row = "black box"\nmethod = "sim', "similarity needs prototypes"),
    ('name = "decoder"', 'name = "ProtoPNet"', "two lines are called 'ProtoPNet'"),
    ('name = "decoder"\n', "", "no name in a [[localisation.line]]"),
    ('name = "decoder"', 'name = "decoder"\npaper = 3', "unknown key 'paper' in a [[localisation.line]]"),
    ("images_per_class = 2", "images_per_class = 0", "localisation.images_per_class is 0"),
    ("images_per_class = 2", "images_per_class = 2\nimages = 5", "both images and images_per_class"),
    ("steps = 2", "steps = 2\nkeep = 1.5", "localisation.keep is 1.5"),
    ("steps = 2", 'steps = 2\nmeasures = ["DIZE"]', "localisation.measures: unknown 'DIZE'; known: "),
    ("steps = 2", 'steps = 2\nmethods = ["mdm"]', "both methods and line"),
]


@pytest.mark.parametrize(("before", "after", "message"), MISTAKES, ids=[item[2] for item in MISTAKES])
def test_mistakes_are_found_before_the_work(
    before: str, after: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert before in PLAN
    (tmp_path / "plan.toml").write_text(PLAN.replace(before, after, 1))
    assert main(words(tmp_path)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
    assert not (tmp_path / "out").exists()
