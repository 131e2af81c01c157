"""What can be reproduced: the paper's five tables and thirteen figures, and the plans that make each.

A plan is a file of `plans/paper`, or of `plans/quick` for the built-in birds; figures that show the runs of a
table name that table's plan, so that nothing is trained twice. Figures 1 to 4 of the paper are diagrams.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from dprotonet.errors import UserError


class PaperRow(NamedTuple):
    """Which of the paper's numbers stand beside a plan's: those of the plan `paper`, by its row and column.

    In `--quick` neither data nor backbone are the paper's; `column` names the one of the paper to look at,
    and `row` is what its rows end with, beyond ours.
    """

    paper: str
    column: str = ""
    row: str = ""


class PlanPart(NamedTuple):
    """A plan that an item needs; `files` says which of its pictures belong to it, by how names begin."""

    plan: str
    files: tuple[str, ...] = ()
    beside: PaperRow | None = None


class Item(NamedTuple):
    """A table or a figure of the paper, and its parts, whole and quick."""

    title: str
    parts: tuple[PlanPart, ...]
    quick: tuple[PlanPart, ...] = ()


def _own(*plans: str) -> tuple[PlanPart, ...]:
    return tuple(PlanPart(plan, beside=PaperRow(plan)) for plan in plans)


_RESNET, _DENSENET = "interpretability-resnet50", "interpretability-densenet121"
_CURVES, _SWEEP, _GRID = ("curves of maps",), ("sweep of maps",), ("grid of maps",)

ITEMS: Mapping[str, Item] = {
    "table-1": Item(
        "Accuracy on general data sets",
        _own("general-cub", "general-cars"),
        (PlanPart("general", beside=PaperRow("general-cub", "ResNet50")),),
    ),
    "table-2": Item(
        "Accuracy and sensitivity of the maps on medical data sets",
        _own("medical"),
        (PlanPart("medical", beside=PaperRow("medical", "RSNA")),),
    ),
    "table-3": Item(
        "DProtoNet and its backbone",
        _own("backbone"),
        (PlanPart("backbone", beside=PaperRow("backbone", "CUB-200-2011", ", ResNet50")),),
    ),
    "table-4": Item(
        "Multi-image prototype learning",
        _own("push"),
        (PlanPart("push", beside=PaperRow("push", "ResNet50")),),
    ),
    "table-5": Item(
        "Recognition and localisation",
        _own(_RESNET, _DENSENET),
        (PlanPart("interpretability", beside=PaperRow(_RESNET, "CUB-200-2011")),),
    ),
    "figure-5": Item(
        "Accuracy in the stages of training",
        (PlanPart("general-cub", ("curves on",)), PlanPart("general-cars", ("curves on",))),
        (PlanPart("general", ("curves on",)),),
    ),
    "figure-6": Item(
        "Deletion and insertion, ResNet50",
        (PlanPart(_RESNET, _CURVES),),
        (PlanPart("interpretability", _CURVES),),
    ),
    "figure-7": Item(
        "How DProtoNet comes to decide",
        (PlanPart("regions", ("inference",)),),
        (PlanPart("regions", ("inference",)),),
    ),
    "figure-8": Item(
        "Decision regions", (PlanPart("regions", ("regions",)),), (PlanPart("regions", ("regions",)),)
    ),
    "figure-9": Item("Deletion and insertion, DenseNet121", (PlanPart(_DENSENET, _CURVES),)),
    "figure-10": Item(
        "DICE, IOU, PPV and sensitivity over thresholds, ResNet50",
        (PlanPart(_RESNET, _SWEEP),),
        (PlanPart("interpretability", _SWEEP),),
    ),
    "figure-11": Item(
        "DICE, IOU, PPV and sensitivity over thresholds, DenseNet121", (PlanPart(_DENSENET, _SWEEP),)
    ),
    "figure-12": Item(
        "Maps of nine methods side by side",
        (PlanPart("comparison", _GRID),),
        (PlanPart("interpretability", _GRID),),
    ),
    "figure-13": Item(
        "Maps of nine methods side by side, further images",
        (PlanPart("comparison-more", _GRID),),
    ),
    "figure-14": Item("Decision regions, birds", (PlanPart("regions", ("regions on CUB-200-2011",)),)),
    "figure-15": Item("Decision regions, cars", (PlanPart("regions", ("regions on Stanford Cars",)),)),
    "figure-16": Item("Decision regions, chest X-rays", (PlanPart("regions", ("regions on RSNA",)),)),
    "figure-17": Item(
        "Decision regions, fundus images", (PlanPart("regions", ("regions on iChallenge-PM",)),)
    ),
}


class Source(NamedTuple):
    """A data set of the paper: its folder below --data-root, where to get it, and how many images it has."""

    name: str
    folder: str
    address: str
    train: int
    test: int
    classes: int


SOURCES: Mapping[str, Source] = {
    "cub": Source(
        "CUB-200-2011",
        "CUB_200_2011",
        "https://www.vision.caltech.edu/datasets/cub_200_2011/",
        5994,
        5794,
        200,
    ),
    "cars": Source(
        "Stanford Cars", "stanford_cars", "https://github.com/pytorch/vision/issues/7545", 8144, 8041, 196
    ),
    "rsna": Source(
        "RSNA pneumonia",
        "rsna",
        "https://www.rsna.org/education/ai-resources-and-training/ai-image-challenge/"
        "rsna-pneumonia-detection-challenge-2018",
        21347,
        5337,
        2,
    ),
    "palm": Source("iChallenge-PM", "PALM", "https://palm.grand-challenge.org", 320, 80, 2),
}
"""By the word before the colon of --data; docs/data.md says how each has to lie."""


def chosen_items(words: Sequence[str]) -> dict[str, Item]:
    """The items of these names, `all` and none being all, `tables` and `figures` all of a kind."""
    if not words or "all" in words:
        return dict(ITEMS)
    names: list[str] = []
    for word in words:
        kind = [name for name in ITEMS if word in ("tables", "figures") and name.startswith(word[:-1])]
        if not kind and word not in ITEMS:
            close = get_close_matches(word, [*ITEMS, "all", "tables", "figures"], n=1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            raise UserError(
                f"there is no '{word}' to reproduce; {hint}known: all, tables, figures, {', '.join(ITEMS)}"
            )
        names += kind or [word]
    return {name: ITEMS[name] for name in ITEMS if name in names}
