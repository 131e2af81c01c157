"""`dprotonet prune`: a run without the prototypes that a rule finds wanting, or that you name."""

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from dprotonet.cli.parse import parsed
from dprotonet.errors import UserError
from dprotonet.percent import percent

if TYPE_CHECKING:
    from dprotonet.cli.progress import Reporter
    from dprotonet.experiment.prototypes.cleaning import Cleaning
    from dprotonet.experiment.prototypes.drop_rule import DropRule


@dataclass(frozen=True)
class PruneArguments:
    """Drop prototypes, retrain the last layer, and report accuracy before and after.

    By ProtoPNet's rule (--nearest, --least) unless --drop or --purity is given.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder; its model is not changed."""
    out: Path
    """The run folder to make."""
    drop: str | None = None
    """Numbers of the prototypes to drop, such as 3,17 (`dprotonet prototypes` lists them)."""
    purity: float | None = None
    """Drop prototypes whose purity is below this value, such as 0.5."""
    nearest: int | None = None
    """Number of nearest training images to examine (default: 6; for --purity 10, or as many as the class
    has)."""
    least: int | None = None
    """How many of them must be of the prototype's class (default: 3)."""
    retrain: bool = True
    """Whether to retrain the last layer on the training images."""
    split: Literal["train", "val", "test"] = "val"
    """An additional split on which to report accuracy before and after, besides train and val."""
    data: str | None = None
    """Where the run's data is now, if it has moved."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""
    device: str | None = None
    """Where to compute, such as cuda (default: the CPU)."""


def main(words: list[str]) -> None:
    arguments = parsed(PruneArguments, words, command="prune")
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.prototypes.cleaning import check_new

    check_new(arguments.out)
    rule = _rule(arguments)
    with Reporter(stderr_console()) as reporter:
        cleaning = _cleaning(arguments, rule, reporter)
    cleaning.save(arguments.out)
    if arguments.json:
        json.dump(_content(cleaning, arguments), sys.stdout, ensure_ascii=False)
        print()
    else:
        _show(cleaning, arguments)


def _rule(arguments: PruneArguments) -> "DropRule":
    from dprotonet.experiment.prototypes.drop_rule import Impure, Named, ProtoPNetRule
    from dprotonet.inference.prune import PruneRule

    drop, purity, nearest, least = arguments.drop, arguments.purity, arguments.nearest, arguments.least
    if drop is not None and purity is not None:
        raise UserError("--drop and --purity exclude each other; give one of them")
    if drop is not None:
        _refuse("--drop", nearest=nearest, least=least)
        return Named(_numbers(drop))
    if purity is not None:
        _refuse("--purity", least=least)
        return Impure(purity) if nearest is None else Impure(purity, nearest)
    default = PruneRule()
    wanted = default.nearest if nearest is None else nearest
    return ProtoPNetRule(PruneRule(wanted, default.least if least is None else least))


def _refuse(choice: str, **others: int | None) -> None:
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise UserError(
            f"--{given[0]} belongs to ProtoPNet's rule and has no meaning with {choice}; leave it out"
        )


def _numbers(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise UserError(f"--drop {text}: give numbers of prototypes with commas between them, such as 3,17")
    return tuple(int(word) for word in words)


def _cleaning(arguments: PruneArguments, rule: "DropRule", reporter: "Reporter") -> "Cleaning":
    from dprotonet.experiment.evaluation.evaluation import choose_split
    from dprotonet.experiment.model import Model
    from dprotonet.experiment.prototypes.cleaning import clean
    from dprotonet.experiment.prototypes.split_evidence import splits_of_run
    from dprotonet.experiment.prototypes.what_if import without

    model = Model.load(arguments.run, device=arguments.device)
    model.check_prototypes()
    without(model, ())  # a network that can drop none is refused before the passes over the images
    splits = splits_of_run(model, partial(reporter.advance, "scan"), moved_to=arguments.data)
    reasons = rule(model, splits.train, partial(reporter.advance, "looking at prototypes"))
    told = dict.fromkeys(("train", "val", arguments.split))
    return clean(
        model,
        reasons,
        {name: choose_split(splits, name) for name in told},
        epochs=None if arguments.retrain else 0,
        on_progress=lambda name, done, total: reporter.advance(f"scores of {name}", done, total),
    )


def _content(cleaning: "Cleaning", arguments: PruneArguments) -> dict[str, Any]:
    headline = cleaning.accuracy[arguments.split]
    return {
        "run": str(arguments.out),
        "kept": list(cleaning.kept),
        "dropped": list(cleaning.dropped),
        "reasons": {str(number): cleaning.reasons[number] for number in cleaning.dropped},
        "last_layer_epochs": cleaning.epochs,
        "accuracy": {name: vars(told) for name, told in cleaning.accuracy.items()},
        "split": arguments.split,
        "accuracy_before": headline.before,
        "accuracy_after": headline.after,
    }


def _show(cleaning: "Cleaning", arguments: PruneArguments) -> None:
    print(f"{len(cleaning.dropped)} prototypes dropped, {len(cleaning.kept)} left", end="")
    print(f"; the last layer learned for {cleaning.epochs} epochs" if cleaning.epochs else "")
    for number, reason in sorted(cleaning.reasons.items()):
        print(f"  {number:4d}  {cleaning.original.prototypes[number].class_name}: {reason}")
    for name, told in cleaning.accuracy.items():
        print(f"{name + ' accuracy':<14} {percent(told.before):>7} → {percent(told.after):>7}")
    print(f"the run is in {arguments.out}")
