"""The paper's numbers as we copied them, checked against what its text says of them and against our plans."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from dprotonet.config import Config, NetworkConfig, TrainingConfig, read_toml
from dprotonet.errors import UserError
from dprotonet.experiment.benchmark.plan import Plan
from dprotonet.experiment.reproduce.compared import settings_apart, wilson
from dprotonet.experiment.reproduce.items import ITEMS, chosen_items
from dprotonet.experiment.reproduce.paper_numbers import FAITHFUL, MAP_SENSITIVITY, NUMBERS
from dprotonet.experiment.reproduce.reproduction import with_root
from dprotonet.experiment.settings.config_check import check_config
from dprotonet.experiment.settings.recipes import config_from, final_config

PLANS = Path(__file__).parents[2] / "configs"
LOWER = ("AD50", "deletion")  # the better, the lower

# Section 4.5: by how many per cent DProtoNet improves on the best other method, measure by measure.
SAID = {
    "interpretability-resnet50": (37.1, 32.7, 26.3, 81.3, 3.9, 4.8, 4.3, 1.9),
    "interpretability-densenet121": (51.3, 14.5, 8.9, 17.9, 20.2, 29.1, 21.6, 20.6),
}


@pytest.mark.parametrize("plan", list(SAID))
def test_table_5_improves_by_what_the_text_says(plan: str) -> None:
    numbers = NUMBERS[plan]
    for measure, said in zip(FAITHFUL, SAID[plan], strict=True):
        values = {row: value for (row, _, name), value in numbers.items() if name == measure}
        ours = values.pop("DProtoNet")
        best = min(values.values()) if measure in LOWER else max(values.values())
        assert abs(100 * abs(ours - best) / best - said) < 0.11, measure  # the text rounds or cuts


def test_medical_improvements_are_those_of_the_text() -> None:
    """RSNA: accuracy 5.1 points higher, sensitivity 4.2."""
    for measure, said in (("accuracy", 5.1), (MAP_SENSITIVITY, 4.2)):
        rsna = {
            row: v for (row, column, m), v in NUMBERS["medical"].items() if (column, m) == ("RSNA", measure)
        }
        ours = rsna.pop("DProtoNet")
        assert ours - max(rsna.values()) == pytest.approx(said)


def test_tables_agree_with_one_another() -> None:
    """DProtoNet's accuracies stand in Tables 1, 2, 3 and 4."""
    for backbone in ("ResNet50", "VGG19", "DenseNet121"):
        first = NUMBERS["general-cub"]["DProtoNet", backbone, "accuracy"]
        assert first == NUMBERS["backbone"][f"DProtoNet, {backbone}", "CUB-200-2011", "accuracy"]
        assert first == NUMBERS["push"]["M = 40", backbone, "accuracy"]
    for data in ("RSNA", "iChallenge-PM"):
        known = NUMBERS["backbone"]["DProtoNet, ResNet50", data, "accuracy"]
        assert NUMBERS["medical"]["DProtoNet", data, "accuracy"] == known


@pytest.mark.parametrize("name", list(NUMBERS))
def test_every_number_has_a_place_in_its_plan(name: str) -> None:
    plan = Plan.read(PLANS / "paper" / f"{name}.toml")
    rows, columns = set(plan.rows), set(plan.columns)
    if plan.localisation is not None:
        rows |= {line.name for line in plan.localisation.line}
    assert {row for row, _, _ in NUMBERS[name]} <= rows
    assert {column for _, column, _ in NUMBERS[name]} <= columns | {"CUB-200-2011"}


@pytest.mark.parametrize("kind", ["paper", "quick"])
def test_every_item_has_its_plans_and_they_are_by_the_papers_recipe(kind: str) -> None:
    for item in ITEMS.values():
        for part in item.parts if kind == "paper" else item.quick:
            plan = Plan.read(PLANS / kind / f"{part.plan}.toml")
            for cell in plan.cells:
                check_config(cell.config)
                assert cell.config.recipe == ("masks" if "masks" in cell.row else "paper")
                assert kind == "quick" or "masks" not in cell.row
            if kind == "paper":  # nothing but what the paper varies, and workers
                apart = {text.split()[0] for cell in plan.cells for text in settings_apart(cell.config)}
                assert apart <= ({"push_images"} if part.plan == "push" else set())


def test_settings_apart_names_what_differs_from_the_recipe() -> None:
    assert settings_apart(config_from({"recipe": "paper"})) == []
    changed = Config(
        network=NetworkConfig(masks=9),
        training=TrainingConfig(seed=3, workers=2, batch_size=7),
        recipe="paper",
    )
    assert settings_apart(final_config(changed)) == ["masks 9, not 720", "batch_size 7, not 60"]
    frozen = settings_apart(final_config(Config(training=TrainingConfig(mode="frozen"))))
    assert "mode frozen, not joint" in frozen
    assert "mask_style spatial, not uniform" in frozen


def test_wilsons_interval() -> None:
    """Brown, Cai and DasGupta, 2001: 0 of 10 and 5 of 10."""
    assert wilson(0.0, 10) == pytest.approx((0.0, 0.2775), abs=2e-4)
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=2e-4)


def test_data_below_a_root(tmp_path: Path) -> None:
    content = {
        "data": {"data": "cub:data/CUB_200_2011", "species": 3},
        "row": [{"name": "a"}],
        "column": [{"name": "b", "data": {"data": "birds"}}, {"name": "c", "data": {"data": "palm:/else"}}],
    }
    moved = with_root(content, tmp_path)
    assert moved["data"] == {"data": f"cub:{tmp_path.resolve() / 'CUB_200_2011'}", "species": 3}
    assert moved["column"] == content["column"]
    assert moved["row"] == content["row"]


def test_items_by_name() -> None:
    assert list(chosen_items(())) == list(chosen_items(["all"])) == list(ITEMS)
    assert list(chosen_items(["figure-7", "table-2"])) == ["table-2", "figure-7"]
    assert list(chosen_items(["tables"])) == [f"table-{number}" for number in range(1, 6)]
    with pytest.raises(UserError, match="did you mean 'figure-7'"):
        chosen_items(["figur-7"])


def test_plans_are_read_from_the_package_and_from_configs() -> None:
    """configs/paper and configs/quick are the folders that the package carries."""
    found: Mapping[str, object] = read_toml(PLANS / "quick" / "general.toml")
    assert found["recipe"] == "paper"
    inside = PLANS.parent / "src" / "dprotonet" / "experiment" / "reproduce" / "plans"
    assert (PLANS / "quick").resolve() == inside / "quick"
