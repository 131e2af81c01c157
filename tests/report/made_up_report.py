"""Reports made up for tests: every section filled, with pictures from the built-in birds."""

from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

import torch

from dprotonet.data.birds import Birds
from dprotonet.figures import overlay
from dprotonet.report import content
from dprotonet.report.embed import CARD, CASE, ROW, THUMB, colour_key, embedded

STRANGE = "Careful: this image is unlike the training images."
HOSTILE = "<script>alert(1)</script>\"'&"


@cache
def bird(longest: int, *, heated: bool = False) -> content.Picture:
    image = Birds(species=2, per_species=1, split="train", seed=0, size=224)[0].image
    ramp = torch.linspace(0, 1, 224).expand(224, -1)
    return embedded(overlay(image, ramp) if heated else image, "A bird on a branch.", longest=longest)


def made_up(classes: int = 3, per_class: int = 2) -> content.Report:
    """A report of a prototype network on so many classes."""
    names = [f"class {number}" for number in range(classes)]
    return content.Report(
        about=about(),
        made="1 May 2030",
        prototyped=True,
        key=colour_key(),
        performance=performance(names),
        curve=content.Curve(
            (1, 2, 3), (0.4, 0.6, 0.9), (0.3, 0.5, 0.8), (content.PushMark(2, 0.5, 0.45),), 3
        ),
        classes=tuple(
            content.ClassCards(
                name,
                tuple(card(number * per_class + place, classes * per_class) for place in range(per_class)),
            )
            for number, name in enumerate(names)
        ),
        groups=(
            content.CaseGroup("sure", "Sure", "Surest first.", (case(names, right=True),)),
            content.CaseGroup("mistakes", "Mistakes", "Wrong.", (case(names, right=False),)),
        ),
        mistakes=content.Mistakes(
            (content.Mistake("test/9.png", names[0], names[1], 0.8, bird(THUMB), compared(names)),) * 36, 40
        ),
        comparison=comparison(),
        missing=("Something is missing.",),
    )


def compared(names: list[str]) -> content.ComparedClasses:
    """Class 1 was said, class 0 is the truth."""
    return content.ComparedClasses(
        said=names[1],
        truth=names[0],
        logits=(8.0, 7.4),
        sentence=f"The beak decided: 1.90 points for {names[1]} and 0.70 for {names[0]}.",
        differing=(content.ComparedRow("crown", 1.0, 1.4), content.ComparedRow("beak", 1.9, 0.7)),
        others=2,
        others_for=0.1,
        others_against=-0.3,
        agreeing=(content.ComparedRow("wing", 1.5, 1.5),),
        nearest=tuple(
            content.NearestImage(name, f"train/{name}.png", bird(THUMB)) for name in (names[1], names[0])
        ),
        told_apart=bird(THUMB),
    )


def black_box() -> content.Report:
    """A report without anything that has to do with prototypes, and without data."""
    return replace(
        made_up(), prototyped=False, performance=None, classes=(), groups=(), mistakes=None, comparison=None
    )


def about() -> content.About:
    facts = (content.Fact("Network", "DProtoNet"), content.Fact("Random seed", "0"))
    return content.About("my run", "This model is one.", facts, facts, facts, "dprotonet train --out run")


def performance(names: list[str]) -> content.Performance:
    count = len(names)
    confusion = [[9 if row == column else 0 for column in range(count)] for row in range(count)]
    confusion[0][1] = 1
    scores = [
        content.ClassScore(name, sum(row), 9, names[1] if not place else None, 1 if not place else 0)
        for place, (name, row) in enumerate(zip(names, confusion, strict=True))
    ]
    figure = content.Figure("Accuracy", "90.0 %", "right on most")
    return content.Performance(
        "test", "birds", "measured", 0.9, 0.9, None, (figure,), tuple(scores), tuple(map(tuple, confusion))
    )


def card(number: int, total: int) -> content.PrototypeCard:
    return content.PrototypeCard(
        number=number,
        source=f"train/{number}.png",
        picture=bird(CARD),
        heatmap=bird(CARD, heated=True),
        weight=1.2,
        purity=0.3 if number == 0 else 1.0,
        among=10,
        fires=0 if number == 1 else 5,
        fires_share=1 / total,
        twins=(number + 1,) if number == 0 else (),
    )


def case(names: list[str], *, right: bool) -> content.ReportCase:
    said = names[0] if right else names[1]
    row = content.CaseRow(
        4, said, "train/4.png", bird(ROW, heated=True), bird(ROW, heated=True), True, 2.004, 1.0, 2.004
    )
    bare = replace(row, place=None, source_placed=False, points=-1.0, weight=-0.499)
    argument = content.Argument(said, "what the model said", (row, bare), 5, 3.333)
    arguments = (argument,) if right else (argument, replace(argument, class_name=names[0]))
    likely = tuple(content.Likely(name, 1 / len(names), name == names[0]) for name in names)
    warning = "" if right else STRANGE
    missed = None if right else compared(names)
    return content.ReportCase(
        "test/1.png", names[0], said, 0.9, bird(CASE), likely, arguments, warning, compared=missed
    )


def comparison() -> content.ComparisonSection:
    column = content.MeasureColumn("deletion", "lower", "mean probability")
    row = content.MeasureRow("mdm", False, (content.MeasureCell("0.123 ± 0.010", True),), "0.50")
    table = content.MeasureTable(
        "Faithfulness", (column,), (row, replace(row, method="random", control=True))
    )
    return content.ComparisonSection(
        "compare", 12, (table,), (content.Fact("class", "predicted"),), (bird(CASE),)
    )


def with_hostile_words(value: Any) -> Any:
    """The same, with every word that could come from a user replaced by one that tries to break out."""
    if isinstance(value, content.Picture):
        return replace(value, alt=HOSTILE)
    if isinstance(value, content.CaseGroup):  # its key is ours
        return replace(value, title=HOSTILE, introduction=HOSTILE, cases=with_hostile_words(value.cases))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{item.name: with_hostile_words(getattr(value, item.name)) for item in fields(value)}
        )
    if isinstance(value, tuple):
        return tuple(map(with_hostile_words, value))
    return HOSTILE if isinstance(value, str) and value else value
