"""The paper's medical plan at its smallest: whose sensitivity it is, a lesion mask that is gone, folds."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.test_localisation_table import PLAN

from dprotonet.data.palm import palm_splits
from dprotonet.data.reading import Reading
from dprotonet.experiment.benchmark.files import save_benchmark
from dprotonet.experiment.benchmark.localisation import Localisation
from dprotonet.experiment.benchmark.plan import Plan
from dprotonet.experiment.benchmark.run import Benchmark
from original_layouts import PALM_LESIONS, make_palm

MEDICAL = Path(__file__).parents[2] / "configs" / "paper" / "medical.toml"
NAMES = ["ProtoPNet", "DProtoNet", "centre"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path, str]:
    """What the plan found, its folder, and the name of the test image whose masks are gone."""
    folder = tmp_path_factory.mktemp("medical")
    root = make_palm(folder / "PALM", per_letter=10)
    test = palm_splits(root, Reading(size=32)).test
    lost = next(name for name in map(test.name, range(len(test))) if Path(name).name.startswith("P"))
    for path in (root / PALM_LESIONS).glob(f"*/{Path(lost).stem}.bmp"):
        path.unlink()
    plan = Plan.of(small(f"palm:{root}"), where="medical")
    assert plan.localisation is not None
    benchmark = Benchmark(plan, folder / "out", cache=folder / "cache")
    assert [step.failure for step in benchmark.run() if step.failure] == []
    localisation = Localisation(benchmark, plan.localisation)
    assert [step.failure for step in localisation.run() if step.failure] == []
    return save_benchmark(benchmark), folder / "out", lost


def small(data: str) -> dict[str, Any]:
    """The plan with two rows and three lines, folds, and networks of a few numbers."""
    content, tiny = tomllib.loads(MEDICAL.read_text()), tomllib.loads(PLAN)
    section = content["localisation"]
    section["line"] = [line for line in section["line"] if line["name"] in NAMES]
    section["line"][1]["method"] = "mdm-prototype:paper,iterations=2"
    return content | {
        "recipe": "default",
        "seeds": [0],
        "folds": 2,
        "data": {"image_size": 32},
        "network": tiny["network"],
        "training": tiny["training"],
        "localisation": section | {"steps": 2},
        "row": [row for row in content["row"] if row["name"] in NAMES],
        "column": [{"name": "iChallenge-PM", "data": {"data": data}}],
    }


def test_accuracy_and_the_sensitivity_of_maps_stand_in_one_table(
    done: tuple[dict[str, Any], Path, str],
) -> None:
    content, out, _ = done
    lines = content["localisation"]
    assert [line["name"] for line in lines] == NAMES
    assert [list(line["measures"]) for line in lines] == [["sensitivity"]] * 3
    head = "accuracy ↑ | sensitivity of the maps, top 50 % against the lesion ↑ | seconds"
    assert head in (out / "localisation.md").read_text()
    assert lines[2]["measures"]["sensitivity"]["mean"] < 0.5  # the lesions lie in a corner
    assert "in 2-fold cross-validation" in (out / "localisation.md").read_text()
    assert "The maps are of the network of fold 1." in (out / "localisation.md").read_text()


def test_the_accuracy_is_that_of_all_folds(done: tuple[dict[str, Any], Path, str]) -> None:
    content, _, _ = done
    accuracy = {item["row"]: item for item in content["results"]}
    assert accuracy["DProtoNet"]["images"] == 24  # of 30, a fifth is set aside for the test
    assert content["localisation"][1]["accuracy"] == pytest.approx(100 * accuracy["DProtoNet"]["accuracy"])


def test_a_missing_lesion_mask_is_named_and_counted(done: tuple[dict[str, Any], Path, str]) -> None:
    content, out, lost = done
    assert {line["images"] for line in content["localisation"]} == {1}  # of two with a lesion
    assert f"1 images, 1 with truth; 1 passed over without truth: {lost}" in (
        (out / "localisation.md").read_text()
    )
    found = json.loads((out / "localisation.json").read_text())
    assert found["columns"][0]["passed over"] == [lost]
