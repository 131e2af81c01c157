"""Why this class and not that one: both sides add up, what is against comes first, nothing large is hid."""

import math
from pathlib import Path

import pytest
import torch

from dprotonet.errors import UserError
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.model import Model
from dprotonet.experiment.trained.class_contrast import ClassContrast, ContrastRow, class_contrast
from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.experiment.trained.versus import check_different, check_versus, class_number, compared_with

NAMES = ("Hill Bird", "Vale Bird")
PARTS = {0: "beak", 1: "wing", 2: "wing", 3: "part C"}


def item(number: int, owner: str, points: float, part: str = "") -> EvidenceItem:
    return EvidenceItem(number, owner, f"source {number}", points, 1.0, points, 0, part)


def planted(own: list[float], other: list[float]) -> ClassContrast:
    """Two classes with a prototype of each of four parts; every prototype speaks for its own class only."""
    said = [(points, 0.0) for points in own] + [(0.0, points) for points in other]
    part = [*range(len(own)), *range(len(other))]
    owner = [NAMES[0]] * len(own) + [NAMES[1]] * len(other)
    items = tuple(
        {
            number: item(number, owner[number], pair[side], PARTS[part[number]])
            for number, pair in enumerate(said)
        }
        for side in (0, 1)
    )
    return class_contrast(NAMES, said, part=part, items=(items[0], items[1]))


def test_a_row_is_a_part_and_has_both_sides() -> None:
    found = planted([1.9, 1.0, 0.5, 0.2], [0.7, 1.1, 0.4, 0.4])
    assert [(row.name, row.points, row.other_points) for row in found.rows] == [
        ("beak", 1.9, 0.7),
        ("part C", 0.2, 0.4),
        ("wing", 1.0, 1.1),
        ("wing", 0.5, 0.4),
    ]
    beak = found.rows[0]
    assert beak.own is not None
    assert beak.other is not None
    assert (beak.own.class_name, beak.other.class_name, beak.prototypes) == (*NAMES, (0, 4))
    assert found.difference == pytest.approx(1.0)
    assert [row.name for row in found.shown(2)] == ["part C", "beak"]  # against first
    folded = found.folded(2)
    assert (folded.count, folded.ahead, folded.behind) == (2, pytest.approx(0.1), pytest.approx(-0.1))
    assert [row.name for row in found.agreeing] == ["wing", "wing", "part C"]


def test_a_row_has_both_names_where_the_classes_call_its_part_differently() -> None:
    legs, crest, letter = item(0, NAMES[0], 1.0, "legs"), item(4, NAMES[1], 0.5, "crest"), "part C"
    assert ContrastRow((0, 4), 1.0, 0.5, legs, crest, 0).name == "legs / crest"
    assert ContrastRow((0, 4), 1.0, 0.5, legs, item(4, NAMES[1], 0.5, "legs"), 0).name == "legs"
    assert ContrastRow((0, 4), 1.0, 0.5, item(0, NAMES[0], 1.0, letter), crest, 0).name == "crest"
    assert ContrastRow((0, 4), 1.0, 0.5, item(0, NAMES[0], 1.0, letter), None, 0).name == letter
    assert ContrastRow((0, 4), 1.0, 0.5, item(0, NAMES[0], 1.0), item(4, NAMES[1], 0.5), 0).name == "place 0"


def test_the_sentence_is_made_from_the_numbers() -> None:
    decided = planted([1.9, 1.0, 0.5, 0.2], [0.7, 1.4, 0.6, 0.8])
    assert decided.sentence == (
        "The beak decided: 1.90 points for Hill Bird and 0.70 for Vale Bird; "
        "all else adds 1.10 for Vale Bird."
    )
    among = planted([1.9, 1.0, 0.5, 0.2], [0.7, 0.8, 0.2, 0.1])  # both wings speak together
    assert among.sentence == (
        "Hill Bird is ahead of Vale Bird most by the beak: 1.90 points for Hill Bird and 0.70 for Vale Bird; "
        "all else adds 0.60 for Hill Bird."
    )
    wings = planted([0.7, 1.0, 0.9, 0.2], [0.6, 0.8, 0.2, 0.1])
    assert "most by the wing: 1.90 points for Hill Bird and 1.00 for Vale Bird" in wings.sentence
    behind = planted([0.7, 1.0, 0.5, 0.2], [0.6, 1.0, 0.5, 1.3])  # the other class is ahead
    assert behind.sentence == (
        "Part C decided: 1.30 points for Vale Bird and 0.20 for Hill Bird; all else adds 0.10 for Hill Bird."
    )


def test_prototypes_without_parts_are_rows_of_their_own() -> None:
    said = [(3.0, -1.0), (-0.5, 2.0), (1.0, 0.0)]
    owners = [*NAMES, "Moon Bird"]
    mine, theirs = ({n: item(n, owners[n], pair[side]) for n, pair in enumerate(said)} for side in (0, 1))
    found = class_contrast(NAMES, said, part=None, items=(mine, theirs))
    assert [(row.name, row.difference) for row in found.rows] == [
        ("prototype 0", 4.0),
        ("prototype 1", -2.5),
        ("prototype 2", 1.0),
    ]
    assert [row.shown.class_name for row in found.rows] == owners
    assert [row.own is None for row in found.rows] == [False, True, False]


def test_the_rows_of_a_trained_network_add_up_to_the_difference_of_its_logits(run_folder: Path) -> None:
    model = Model.load(run_folder)
    image = build_splits(model.config.data).test[0].image
    answer = model.answer(image)
    with torch.no_grad():
        logits = model.network(model.inputs([image]))[0].double()
    pairs = [(one, other) for one in range(3) for other in range(3) if one != other]
    for label, versus in pairs:
        found = answer.contrast(label, versus)
        assert math.fsum(row.difference for row in found.rows) == pytest.approx(found.difference, abs=1e-9)
        assert found.difference == pytest.approx(float(logits[label] - logits[versus]), abs=1e-4)
        numbers = sorted(number for row in found.rows for number in row.prototypes)
        assert numbers == list(range(len(model.prototypes)))
        for top in (1, 3):
            shown, folded = found.shown(top), found.folded(top)
            least = min(abs(row.difference) for row in shown)
            assert all(abs(row.difference) <= least for row in found.rows if row not in shown)
            signs = [row.difference >= 0 for row in shown]
            assert signs == sorted(signs)
            total = sum(row.difference for row in shown) + folded.ahead + folded.behind
            assert total == pytest.approx(found.difference)
    assert answer.runner_up(answer.label()) == int(answer.plain.argsort(descending=True)[1])
    off = answer.contrast(0, 1, off=[found.rows[0].prototypes[0]])
    assert math.fsum(row.difference for row in off.rows) == pytest.approx(off.difference)
    with pytest.raises(UserError, match="cannot be compared with itself"):
        answer.contrast(1, 1)


def test_an_image_of_the_class_compared_with_gets_its_runner_up() -> None:
    labels = torch.tensor([0, 1, 2])
    logits = torch.tensor([[3.0, 1, 2], [0, 3, 1], [2, 0, 3]])
    classes = [*NAMES, "Shore Bird"]
    found = compared_with(NAMES[1], labels, logits, classes=classes, owner="it")
    assert found.versus.tolist() == [1, 2, 1]
    assert found.replaced.tolist() == [False, True, False]
    with pytest.raises(UserError, match="Vale Bird is the class that is explained"):
        check_different([0, 1], NAMES[1], classes, owner="it")
    check_different([0, 1], "runner-up", classes, owner="it")


def test_a_class_called_runner_up_is_meant_by_its_number(caplog: pytest.LogCaptureFixture) -> None:
    labels, logits = torch.tensor([0]), torch.tensor([[3.0, 1, 2]])
    classes = [NAMES[0], "runner-up", NAMES[1]]
    assert compared_with("runner-up", labels, logits, classes=classes, owner="it").versus.tolist() == [2]
    assert compared_with("1", labels, logits, classes=classes, owner="it").versus.tolist() == [1]
    check_versus("1", classes, owner="it")
    assert not caplog.records
    check_versus("runner-up", classes, owner="it")
    assert "means the likeliest other class; for the class of that name give its number 1" in caplog.text


@pytest.mark.parametrize(
    ("written", "number"),
    [("tinca tinca", 0), ("LUNG opacity", 1), ("lung-opacity", 1), ("e\u0301cole", 2), ("gar", 3), ("4", 4)],
)
def test_a_name_may_be_written_differently_where_one_class_is_meant(written: str, number: int) -> None:
    classes = ["tench, Tinca tinca", "lung_opacity", "École", "gar, garfish", "garfish"]
    assert class_number(written, classes, owner="it") == number


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("Gar", "did you mean 'gar' or 'GAR'?"),  # two classes, and none is written so
        ("runner_up", "did you mean 'runner-up'?"),
        ("tnich", "did you mean 'tench, Tinca tinca'?"),
        (
            "xyz",
            "no class 'xyz'; give one of its names (tench, Tinca tinca, gar, GAR), or a number, or runner-up",
        ),
    ],
)
def test_a_name_that_means_no_class_or_two_is_refused_with_what_is_close(written: str, hint: str) -> None:
    with pytest.raises(UserError) as error:
        check_versus(written, ["tench, Tinca tinca", "gar", "GAR"], owner="it")
    assert hint in str(error.value)


def test_what_is_level_is_told_as_level() -> None:
    row = ContrastRow((0,), 1.0, 1.0, item(0, NAMES[0], 1.0), None, 0)
    assert "0.00" in ClassContrast(*NAMES, 1.0, 1.0, rows=(row,)).sentence
    assert ClassContrast(*NAMES, 1.0, 0.0).sentence == ""
