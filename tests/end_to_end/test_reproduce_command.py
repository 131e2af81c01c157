"""`dprotonet reproduce`: everything at its smallest, and what it says where data is missing."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from tests.original_layouts import make_palm

from dprotonet.cli.main import main
from dprotonet.experiment.reproduce.items import ITEMS

PLANS = Path(__file__).parents[2] / "configs"
SMALL: dict[str, dict[str, Any]] = {
    "data": {
        "species": 2,
        "train_per_species": 4,
        "val_per_species": 2,
        "test_per_species": 2,
        "image_size": 64,
    },
    "network": {"backbone": "timm:test_resnet:none", "dimension": 8, "masks": 6, "prototypes_per_class": 2},
    "training": {
        "epochs": 2,
        "warm_epochs": 0,
        "push_every": 2,
        "last_layer_epochs": 1,
        "augmentations": 1,
        "batch_size": 4,
        "views_per_epoch": 2,
    },
}


def small(kind: str, folder: Path) -> Path:
    """The plans of a kind with tiny networks, on few images, by few steps."""
    folder.mkdir()
    for path in (PLANS / kind).glob("*.toml"):
        plan = tomllib.loads(path.read_text(encoding="utf-8"))
        for table, values in SMALL.items():
            plan[table] = {**plan.get(table, {}), **values}
        plan["training"]["mode"], plan["seeds"] = "frozen", [0]
        plan["training"].pop("workers", None)
        for item in (*plan["row"], *plan["column"]):
            item.get("network", {}).pop("backbone", None)
        for line in plan.get("localisation", {}).get("line", []):
            line["method"] = line["method"].split(",")[0].replace(":paper", ":paper,iterations=2")
        if "localisation" in plan:
            plan["localisation"] |= {"steps": 2} | ({"images": 2} if "images" in plan["localisation"] else {})
        if "figures" in plan:
            plan["figures"] |= {"regions": 1, "inference": 1, "decoder": "fast,iterations=1"}
        (folder / path.name).write_text(tomli_w.dumps(plan), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """The command that did all of --quick, and where."""
    place = tmp_path_factory.mktemp("reproduce")
    words = ["reproduce", "--quick", "--plans", str(small("quick", place / "plans"))]
    words += ["--out", str(place / "out"), "--cache", str(place / "cache")]
    assert main([*words, "--json"]) == 0
    return words, place / "out"


def content_of(out: Path, stem: str = "reproduction") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / f"{stem}.json").read_text(encoding="utf-8"))
    return found


def test_every_table_has_ours_beside_the_papers(done: tuple[list[str], Path]) -> None:
    items = {item["name"]: item for item in content_of(done[1])["items"]}
    assert list(items) == list(ITEMS)
    for name in (f"table-{number}" for number in range(1, 6)):
        (table,) = items[name]["tables"]
        for row in table["rows"]:
            needed = [cell for cell in row["cells"] if cell["paper"] is not None]
            assert all(cell["ours"] is not None for cell in needed or row["cells"][-1:]), (name, row["name"])
            assert row["deviations"]
    assert items["table-2"]["tables"][0]["title"].endswith("the paper's are of RSNA and ResNet50")
    first = {row["name"]: row for row in items["table-1"]["tables"][0]["rows"]}
    (cell,) = first["DProtoNet"]["cells"]
    assert cell["paper"] == 80.9
    assert cell["low"] <= cell["ours"] <= cell["high"]
    assert "2 epochs" in first["DProtoNet"]["training"]
    assert "steps" in first["DProtoNet"]["training"]
    (medical,) = items["table-2"]["tables"]
    assert [cell["measure"] for cell in medical["rows"][0]["cells"]] == [
        "accuracy",
        "sensitivity of the maps",
    ]
    (five,) = items["table-5"]["tables"]
    few = 1 + content_of(done[1])["deviations"].index("maps on 2 test images, not on 10 of each class")
    assert all(few in row["deviations"] for row in five["rows"])  # also of the controls
    assert {row["name"] for row in five["rows"]} >= {"Grad-CAM", "XProtoNet", "DProtoNet", "DProtoNet, fast"}


def test_every_figure_that_quick_has_is_there(done: tuple[list[str], Path]) -> None:
    items = {item["name"]: item for item in content_of(done[1])["items"]}
    for name, item in ITEMS.items():
        if name.startswith("figure") and item.quick:
            assert items[name]["pictures"], name
            assert all((done[1] / path).is_file() for path in items[name]["pictures"].values())
        elif name.startswith("figure"):
            assert items[name]["lacking"], name


def test_deviations_are_named_on_both_pages(done: tuple[list[str], Path]) -> None:
    texts = content_of(done[1])["deviations"]
    assert "data: the built-in birds, not CUB-200-2011" in texts
    assert "backbone: test_resnet, not ResNet50" in texts
    assert "mode frozen, not joint" in texts
    assert "epochs 2, the paper is silent, its recipe has 30" in texts
    assert "image_size 64, not 224" in texts
    assert "a push mixes 2 views, not 40" in texts
    assert "maps on 2 test images, not on 10 of each class" in texts
    assert "maps by mdm-prototype:fast, not by the paper's decoder at its full length" in texts
    assert not any(text.startswith("push_images") for text in texts)  # what Table 4 is about
    page = (done[1] / "reproduction.html").read_text(encoding="utf-8")
    latex = (done[1] / "reproduction.tex").read_text(encoding="utf-8")
    for text in texts:
        assert text.replace("'", "&#39;") in page
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 5
    assert latex.count(r"\item") == len(texts)
    assert "<script" not in page


def test_equal_runs_of_several_tables_are_trained_once(done: tuple[list[str], Path]) -> None:
    runs = [path for path in (done[1] / "runs").iterdir() if path.is_dir()]
    assert len(runs) == 7 + 2  # five networks, our own recipe and the black box; two values of M
    assert sum(path.name.startswith("dprotonet") for path in runs) == 4


def test_the_same_command_does_nothing_again(
    done: tuple[list[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words, out = done
    weights = {path: path.stat().st_mtime_ns for path in (out / "runs").glob("*/model.safetensors")}
    maps = {path: path.stat().st_mtime_ns for path in out.rglob("*.npz")}
    assert weights
    assert maps
    assert main(words) == 0
    assert f"html: {out / 'reproduction.html'}" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in weights} == weights
    assert {path: path.stat().st_mtime_ns for path in maps} == maps
    assert main([*words, "--plan", "--json"]) == 0
    for plan in json.loads(capsys.readouterr().out)["plans"]:
        assert plan["finished"] == plan["runs"] > 0


def test_a_plan_tells_time_and_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "table-2", "--plans", str(small("paper", tmp_path / "plans"))]
    words += ["--data-root", str(tmp_path / "data"), "--out", str(tmp_path / "out"), "--plan"]
    make_palm(tmp_path / "data" / "PALM")
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "medical (table-2): 5 runs, about" in said
    assert "missing: RSNA pneumonia in" in said
    assert "rsna.org" in said
    assert "with it: 5 runs more, about" in said
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_run_and_the_rest_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "table-2", "--plans", str(small("paper", tmp_path / "plans"))]
    words += ["--data-root", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    make_palm(tmp_path / "data" / "PALM")
    assert main([*words, "--cache", str(tmp_path / "cache")]) == 1
    said = capsys.readouterr().err
    assert "1 data sets are missing (RSNA pneumonia)" in said
    (table,) = content_of(tmp_path / "out", "table-2")["items"][0]["tables"]
    row = next(row for row in table["rows"] if row["name"] == "DProtoNet")
    by_head = {cell["measure"]: cell for cell in row["cells"]}
    assert by_head["RSNA, accuracy"]["ours"] is None
    assert by_head["iChallenge-PM, accuracy"]["ours"] is not None
    assert by_head["iChallenge-PM, sensitivity of the maps"]["ours"] is not None
    assert by_head["iChallenge-PM, accuracy"]["paper"] == 98.5
    assert "98.25" in (tmp_path / "out" / "table-2.md").read_text(encoding="utf-8")  # as printed
    assert {row["name"] for row in table["rows"]} >= {"centre", "random"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("table-6", "there is no 'table-6' to reproduce; did you mean 'table-5'?"),
        ("table-1 --data-root /no/such/place", "none of the data is there: get CUB-200-2011 into"),
        ("figure-9 --quick", "--quick has nothing for figure-9"),
        ("table-1 --plans /no/such/folder", "--plans /no/such/folder is not a folder"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *words.split(), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.strip().count("\n") == 0
    assert not (tmp_path / "out").exists()


def test_maps_of_another_network_are_not_shown(tmp_path: Path) -> None:
    """Plans that changed: what is not measured anew has no number."""
    plans = small("quick", tmp_path / "plans")
    words = ["reproduce", "table-2", "--quick", "--plans", str(plans), "--out", str(tmp_path / "out")]
    words += ["--cache", str(tmp_path / "cache")]
    assert main(words) == 0
    before = {path.parent.parent.name for path in (tmp_path / "out" / "medical").rglob("*.npz")}
    text = (plans / "medical.toml").read_text(encoding="utf-8")
    (plans / "medical.toml").write_text(text.replace("epochs = 2", "epochs = 4", 1), encoding="utf-8")
    assert main(words) == 0
    after = {path for path in (tmp_path / "out" / "medical" / "localisation").iterdir() if path.is_dir()}
    assert before
    assert len(after) == 2 * 5  # five networks, each with a folder for each of its two trainings


def test_a_damaged_result_is_told_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "table-3", "--quick", "--plans", str(small("quick", tmp_path / "plans"))]
    words += ["--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    assert main(words) == 0
    (result,) = (tmp_path / "out" / "runs").glob("blackbox-*/result.json")
    result.write_text('{"config": {"da', encoding="utf-8")
    (result.parent / "metrics.jsonl").write_text("no JSON\n", encoding="utf-8")  # of its curve
    capsys.readouterr()
    assert main(words) == 1
    assert "is damaged; remove it" in capsys.readouterr().err
    (table,) = content_of(tmp_path / "out", "table-3")["items"][0]["tables"]
    ours = {row["name"]: row["cells"][0]["ours"] for row in table["rows"]}
    assert ours["black box"] is None
    assert ours["DProtoNet"] is not None


def test_a_plan_lists_all_the_same_where_data_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data" / "PALM").mkdir(parents=True)
    words = ["reproduce", "table-2", "--plan", "--plans", str(small("paper", tmp_path / "plans"))]
    assert main([*words, "--data-root", str(tmp_path / "data")]) == 0
    assert "cannot be read: " in capsys.readouterr().out


@pytest.mark.parametrize(
    "content", ['{"res', "{}", "[]", '{"files": {}, "results": [{"row": "M = 1", "column": "birds"}]}']
)
def test_a_table_that_cannot_be_read_stops_nothing(content: str, tmp_path: Path) -> None:
    """The pages that are written after each plan meet what an earlier version left of the next one."""
    words = ["reproduce", "table-3", "table-4", "--quick", "--plans", str(small("quick", tmp_path / "plans"))]
    words += ["--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    (tmp_path / "out" / "push").mkdir(parents=True)
    (tmp_path / "out" / "push" / "results.json").write_text(content, encoding="utf-8")
    assert main(words) == 0
    three, four = content_of(tmp_path / "out", "table-3-table-4")["items"]
    for item in (three, four):
        assert not item["lacking"]
        assert all(row["cells"][0]["ours"] is not None for row in item["tables"][0]["rows"])


def test_folds_are_a_deviation_and_wrong_settings_name_their_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = small("quick", tmp_path / "plans")
    words = ["reproduce", "table-3", "--quick", "--plans", str(plans), "--out", str(tmp_path / "out")]
    text = (plans / "backbone.toml").read_text(encoding="utf-8")
    (plans / "backbone.toml").write_text(f"folds = 2\n{text}", encoding="utf-8")
    assert main([*words, "--cache", str(tmp_path / "cache")]) == 0
    texts = content_of(tmp_path / "out", "table-3")["deviations"]
    assert "accuracy over 2 folds of training images, not on test images" in texts
    (plans / "backbone.toml").write_text(text.replace("epochs = 2", "epochs = 0", 1), encoding="utf-8")
    capsys.readouterr()
    assert main(words) == 2
    assert "backbone.toml, DProtoNet on birds: --epochs is 0" in capsys.readouterr().err
