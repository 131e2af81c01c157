"""Pictures of a plan's runs: where one of its networks decided, and how it came to decide.

    [figures]
    row = "DProtoNet"
    regions = 12                       # images beside their decision regions, for every column
    inference = 2                      # images with the prototypes that decided
    decoder = "paper"                  # a preset, with changes as in a method: "paper,iterations=100"
    node = "prototype"                 # what the decision regions are of, or "class"

    OUT/regions-1.png  OUT/inference-1.png …      a number for every column, and .json beside them

What is there, of this plan and of these weights, is not made again.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from dprotonet.config import from_tables
from dprotonet.errors import UserError
from dprotonet.experiment.compare.method import preset_of
from dprotonet.experiment.explaining.decision_regions import decision_regions, images_in_turn
from dprotonet.experiment.explaining.explain import explain
from dprotonet.experiment.explaining.pictures import save_picture
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.figures import stack
from dprotonet.files import read_json, write_text
from dprotonet.training.checkpoint import weights_digest

KINDS = ("regions", "inference")


@dataclass(frozen=True)
class FiguresPlan:
    """Which network is shown, on how many test images, explained how."""

    row: str = ""
    regions: int = 0
    inference: int = 0
    decoder: str = "fast"
    node: Literal["prototype", "class"] = "prototype"
    seed: int = 0  # of the draw of images


def figures_plan(given: Any, networks: Mapping[str, str], *, where: str) -> FiguresPlan | None:
    """The section of a plan, None if there is none; `networks` are the plan's rows with their words."""
    if given is None:
        return None
    if not isinstance(given, dict):
        raise UserError(f"{where}: figures must be a table, not {given!r}")
    prototyped = [row for row, word in networks.items() if word != "blackbox"]
    plan = from_tables(FiguresPlan, {"row": prototyped[0] if prototyped else "", **given}, where="figures")
    if plan.row not in prototyped:
        known = ", ".join(prototyped)
        raise UserError(f"{where}: figures.row is '{plan.row}'; rows with prototypes: {known or 'none'}")
    if min(plan.regions, plan.inference) < 0 or not plan.regions + plan.inference:
        raise UserError(f"{where}: figures wants regions or inference, numbers of images from 1 on")
    preset_of(plan.decoder)
    return plan


@dataclass(frozen=True)
class RunPictures:
    """The pictures of one run: `place` names them, `folder` holds them."""

    plan: FiguresPlan
    run: Path
    folder: Path
    place: int
    column: str

    def wanted(self) -> list[str]:
        """The kinds that are asked for."""
        return [kind for kind in KINDS if getattr(self.plan, kind)]

    def path(self, kind: str) -> Path:
        return self.folder / f"{kind}-{self.place}.png"

    def make(self, test: Any) -> Iterator[str]:
        """Draw what is missing, telling what is under way."""
        model = TrainedModel.load(self.run)
        facts = {"column": self.column, **asdict(self.plan), "weights": weights_digest(model.network)}
        for kind in self.wanted():
            yield f"{kind} on {self.column}"
            if _made(self.path(kind), facts):
                continue
            found = self._regions(model, test) if kind == "regions" else self._inference(model, test)
            write_text(
                self.path(kind).with_suffix(".json"),
                json.dumps({"made of": facts, **found}, ensure_ascii=False, indent=1),
            )

    def _regions(self, model: TrainedModel, test: Any) -> dict[str, Any]:
        found = decision_regions(
            model,
            test,
            images=self.plan.regions,
            preset=preset_of(self.plan.decoder)[1],
            node=self.plan.node,
            seed=self.plan.seed,
        )
        save_picture(found.picture(title=f"Decision regions, {self.column}"), self.path("regions"))
        return found.summary()

    def _inference(self, model: TrainedModel, test: Any) -> dict[str, Any]:
        indices = images_in_turn(test, seed=self.plan.seed)[: self.plan.inference]  # no truth is drawn here
        samples = [test[index] for index in indices]
        preset = preset_of(self.plan.decoder)[1]
        explained = explain(model, [sample.image for sample in samples], preset=preset)
        titles = [f"{test.classes[sample.label]} · {Path(sample.name).name}" for sample in samples]
        sheets = [item.picture(title) for item, title in zip(explained, titles, strict=True)]
        save_picture(stack(sheets), self.path("inference"))
        return {"images": [sample.name for sample in samples]}


def _made(path: Path, facts: Mapping[str, Any]) -> bool:
    try:
        kept = read_json(path.with_suffix(".json"))
    except (OSError, ValueError):
        return False
    return path.is_file() and kept.get("made of") == json.loads(json.dumps(facts))
