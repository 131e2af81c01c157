"""Which image the sheet of what was missed shows, and what it says was missed."""

import pytest
import torch
from torch import Tensor

from dprotonet.data.birds import Birds
from dprotonet.experiment.prototypes.missed import Miss, chosen_miss, missed_words
from dprotonet.experiment.trained.class_contrast import ClassContrast, ContrastRow
from dprotonet.experiment.trained.evidence import EvidenceItem

BIRDS = Birds(species=4, per_species=2, split="test", size=32)  # labels 0 1 2 3 0 1 2 3; 0 1 and 2 3 siblings
AHEAD = [5.0, 2.0, 9.0, 4.0, 5.0, 5.0, 5.0, 1.5]


def logits(said: list[int]) -> Tensor:
    found = torch.zeros(len(said), 4)
    for index, label in enumerate(said):
        found[index, label] = AHEAD[index]
    return found


def contrast(beak: tuple[float, float]) -> ClassContrast:
    """A part called beak in two rows, and a tail that decides."""
    item = EvidenceItem(0, "Hill Bird", "source", 1.0, 1.0, 1.0, 0)
    rows = [(beak[0] - 0.5, beak[1] - 0.25, "beak"), (0.5, 0.25, "beak"), (9.0, 1.0, "tail")]
    made = [
        ContrastRow((number,), own, other, EvidenceItem(**{**vars(item), "part": name}), None, number)
        for number, (own, other, name) in enumerate(rows)
    ]
    return ClassContrast("Hill Bird", "Vale Bird", beak[0] + 9, beak[1] + 1, tuple(made))


def test_a_confusion_of_siblings_comes_before_a_surer_mistake() -> None:
    found = chosen_miss(logits([0, 0, 1, 2, 0, 1, 2, 3]), BIRDS)
    # 1 taken for 0 and 3 taken for 2, the surer; surest of all was 2 taken for 1
    assert found == Miss(3, 3, f"mistaken for its sibling {BIRDS.classes[2]}", siblings=True)


def test_without_a_confusion_of_siblings_the_surest_mistake() -> None:
    found = chosen_miss(logits([0, 2, 1, 3, 0, 1, 2, 3]), BIRDS)
    assert found == Miss(2, 2, f"mistaken for {BIRDS.classes[1]}", siblings=False)


def test_without_a_mistake_the_smallest_margin_to_the_sibling_and_it_is_said() -> None:
    right = logits([0, 1, 2, 3, 0, 1, 2, 3])
    right[7, 0] = 1.4  # no sibling of 3, and nearer to it than any sibling
    right[5, 0] = 4.5  # the sibling of 1
    found = chosen_miss(right, BIRDS)
    assert (found.index, found.versus, found.siblings) == (5, 0, True)
    assert "no test image was mistaken" in found.words
    assert f"its sibling {BIRDS.classes[0]}" in found.words


def test_classes_without_siblings_are_compared_with_the_runner_up() -> None:
    class Plain:
        classes, labels = BIRDS.classes, BIRDS.labels

    right = logits([0, 1, 2, 3, 0, 1, 2, 3])
    right[7, 0] = 1.4
    found = chosen_miss(right, Plain())  # type: ignore[arg-type]
    assert (found.index, found.versus, found.siblings) == (7, 0, False)
    assert "sibling" not in found.words


@pytest.mark.parametrize(
    ("beak", "said"),
    [((1.5, 1.25), "missed"), ((1.25, 1.5), "seen, but other parts outweighed it")],
)
def test_what_was_missed_is_said_from_the_numbers_of_all_rows_of_the_part(
    beak: tuple[float, float], said: str
) -> None:
    assert missed_words(contrast(beak), "beak", "Vale Bird") == (
        f"The two differ in the beak alone: it adds {beak[0]:.2f} points for Hill Bird and "
        f"{beak[1]:.2f} for Vale Bird, so it was {said}."
    )


def test_nothing_is_called_missed_in_a_right_answer_or_where_no_part_has_the_name() -> None:
    told = missed_words(contrast((1.5, 1.25)), "beak", "Hill Bird")
    assert told.endswith("1.50 points for Hill Bird and 1.25 for Vale Bird.")
    nameless = missed_words(contrast((1.5, 1.25)), "crest", "Vale Bird")
    assert nameless == "The two differ in the crest alone; the model compares no part of that name."
