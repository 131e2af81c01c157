"""`dprotonet predict` of a run whose images may have several labels: each label with its probability."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dprotonet.cli.images import complain_if_none, named_images
from dprotonet.errors import UserError
from dprotonet.percent import percent

if TYPE_CHECKING:
    from dprotonet.experiment.model import Model
    from dprotonet.experiment.trained.findings import Findings
    from dprotonet.training.processes import Group


class PredictRun(Protocol):
    """What the command says."""

    @property
    def images(self) -> tuple[Path, ...]: ...
    @property
    def out(self) -> Path | None: ...
    @property
    def top(self) -> int: ...
    @property
    def json(self) -> bool: ...
    @property
    def batch_size(self) -> int: ...


def predict_several(arguments: PredictRun, model: "Model", group: "Group") -> None:
    """On stdout; pictures of several labels are made by `dprotonet explain`."""
    if arguments.out is not None:
        raise UserError(
            "this run knows several labels per image: dprotonet explain makes their pictures, and "
            "--out FILE.csv a table of probabilities"
        )
    found, skipped = _found(arguments, model, group)
    if not group.is_main:
        return
    if arguments.json:
        content = {"predictions": [as_json(item, arguments.top) for item in found], "skipped": skipped}
        json.dump(content, sys.stdout, ensure_ascii=False)
        print()
    else:
        _show(found, arguments.top)
    complain_if_none(found, skipped)


def _found(arguments: PredictRun, model: "Model", group: "Group") -> tuple[list["Findings"], dict[str, str]]:
    from dprotonet.experiment.trained.answered_files import AnsweredFile, answered_together, batches_of
    from dprotonet.experiment.trained.findings import findings_of

    def said(item: AnsweredFile) -> "tuple[str, Findings | None, str]":
        path = str(item.path)
        return path, None if item.answer is None else findings_of(item.answer, path), str(item.error)

    good, skipped = [], {}
    batches = batches_of(named_images(arguments.images), arguments.batch_size)
    for batch in answered_together(model, batches, group, said):
        for path, findings, error in batch:
            if findings is not None:
                good.append(findings)
            else:
                skipped[path] = error
                print(f"dprotonet: skipped: {error}", file=sys.stderr)
    return good, skipped


def as_json(found: "Findings", top: int) -> dict[str, Any]:
    """Every label with its `top` evidence; `rest` is what the other prototypes contribute."""
    labels = []
    for one in found.labels:
        shown = one.evidence[:top]
        rest = one.logit - one.bias - sum(item.contribution for item in shown)
        said = {"name": one.name, "present": one.present, "probability": one.probability}
        said |= {"logit": one.logit, "bias": one.bias, "rest": rest}
        labels.append({**said, "evidence": [asdict(item) for item in shown]})
    return {"name": found.name, "familiar": found.familiar, "distance": found.distance, "labels": labels}


def _show(found: Sequence["Findings"], top: int) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from dprotonet.experiment.runs.familiarity import warning_of

    console = Console()
    for item in found:
        if said := warning_of(item.distance):
            console.print(escape(f"{item.name}: {said}"), style="bold yellow", soft_wrap=True)
        names = ", ".join(one.name for one in item.present) or "none of the labels"
        console.print(escape(f"{item.name}: {names}"), style="italic", highlight=False, soft_wrap=True)
        table = Table("label", "probability", "bias", "evidence", "= logit", "most by")
        for one in item.labels:
            most = ", ".join(f"#{row.prototype} {row.contribution:+.2f}" for row in one.evidence[:top])
            sums = (f"{one.bias:+.2f}", f"{one.logit - one.bias:+.2f}", f"{one.logit:.2f}")
            table.add_row(escape(one.name), percent(one.probability), *sums, most)
        console.print(table)
