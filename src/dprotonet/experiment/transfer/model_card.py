"""The model card of a run: what it is, what it was measured at, and what it is not for.

Every number comes from the run folder: `evaluation/test.json`, as `dprotonet evaluate` wrote it for these
very weights, else the validation images of training. What nobody measured is said to be unmeasured.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dprotonet.errors import UserError
from dprotonet.experiment.build.data import UNKNOWN_DATA
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.files import read_json
from dprotonet.metrics.classification import wilson_interval
from dprotonet.network import BlackBox
from dprotonet.percent import percent
from dprotonet.training.checkpoint import weights_digest
from dprotonet.version import __version__

_CLASSES = 30  # named on the card at most
UNKNOWN_LICENCE = "not stated; ask the owner before you use it"


@dataclass(frozen=True)
class CardText:
    """What only a person knows."""

    licence: str = ""  # an identifier of the hub's list, such as apache-2.0
    intended_use: str = ""
    data: str = ""  # what the images are, in a sentence


def model_card(
    model: TrainedModel, run: Path, text: CardText, *, repository: str, pictures: bool = True
) -> str:
    """The card as Markdown, with the metadata that the hub reads at its head."""
    sections = {
        "How to use it": _use(repository),
        "Data": _data(model, text),
        "How good it is": _accuracy(model, run),
        "Probabilities": _calibration(model),
        "Prototypes and parts": _prototypes(model, pictures),
        "Intended use": text.intended_use or "Not stated by its owner.",
        "Limits": _limits(model),
        "Licence": text.licence or f"The licence is {UNKNOWN_LICENCE}.",
    }
    body = "\n\n".join(f"## {title}\n\n{content}" for title, content in sections.items())
    title = f"# {repository.rpartition('/')[2]}"
    return f"{_head(text)}\n{title}\n\n{_lead(model)}\n\n{body}\n"


def _head(text: CardText) -> str:
    """YAML; JSON strings are YAML strings, so that nothing breaks out of them."""
    lines = ["library_name: dprotonet", "pipeline_tag: image-classification"]
    lines += ["tags:", *(f"- {tag}" for tag in ("dprotonet", "interpretability", "prototypes"))]
    if text.licence:
        lines.append(f"license: {json.dumps(text.licence)}")
    return "\n".join(["---", *lines, "---"])


def _lead(model: TrainedModel) -> str:
    network, size = model.config.network, model.config.data.image_size
    what = "image classifier" if isinstance(model.network, BlackBox) else "image classifier with prototypes"
    return (
        f"An {what} ({network.network}, {network.backbone}) of {len(model.classes)} classes, for images of "
        f"{size} × {size} pixels, made with dprotonet {__version__}."
    )


def _use(repository: str) -> str:
    return f"""```python
import dprotonet as dp

model = dp.load("{repository}")
prediction = model.predict("image.png")
print(prediction.class_name, prediction.probability)
(explained,) = model.explain("image.png")
explained.save("why")
```

Loading reads safetensors, JSON and TOML and runs no code."""


def _data(model: TrainedModel, text: CardText) -> str:
    kind, _, path = model.config.data.data.partition(":")
    name = _plain(f"{kind}:{Path(path).name}" if path else kind)
    if kind == UNKNOWN_DATA:
        name = "images that nobody stated"
    named = ", ".join(_plain(name) for name in model.classes[:_CLASSES])
    more = len(model.classes) - _CLASSES
    rest = f" and {more} more" if more > 0 else ""
    return " ".join(filter(None, (f"Trained on {name}.", text.data, f"Classes: {named}{rest}.")))


def _accuracy(model: TrainedModel, run: Path) -> str:
    found = _test(model, run)
    if found is not None:
        right = sum(row[label] for label, row in enumerate(found["confusion"]))
        lines = [_share("Accuracy", right, found["images"], "test images")]
        lines.append(f"Balanced accuracy {percent(found['balanced_accuracy'])}.")
        if found.get("auroc") is not None:
            lines.append(f"AUROC {found['auroc']:.3f}, positive class {_plain(str(found['positive']))}.")
        worst = min(
            ((value, name) for name, value in found["per_class"].items() if value is not None), default=None
        )
        if worst is not None:
            lines.append(f"The class recognised least often is {_plain(worst[1])}, {percent(worst[0])}.")
        if "ece" in found:
            chance = found["ece_by_chance"]["high"]
            lines.append(
                f"Calibration error (ECE) {found['ece']:.3f}; by chance alone it is below {chance:.3f} in "
                "19 of 20 cases."
            )
        return " ".join(lines)
    try:
        labels, predicted = RunFolder(run).read_validation()
    except UserError:
        return "Not measured. `dprotonet evaluate` measures it."
    right = int((labels == predicted).sum())
    said = _share("Accuracy", right, len(labels), "validation images, on which the model was chosen")
    return f"{said} Test images were not measured; `dprotonet evaluate` does it."


def _share(what: str, right: int, total: int, of: str) -> str:
    if not total:
        return f"{what}: no {of}."
    low, high = wilson_interval(right, total)
    return (
        f"{what} {percent(right / total)} (95 % interval {percent(low)} to {percent(high)}) on {total} {of}."
    )


def _test(model: TrainedModel, run: Path) -> dict[str, Any] | None:
    """What `dprotonet evaluate` found of these very weights; None if it found nothing or that of others."""
    try:
        found = read_json(run / "evaluation" / "test.json")
        wanted = found["weights"] == weights_digest(model.network) and found["images"] > 0
        matrix = torch.tensor(found["confusion"])
        fits = matrix.shape == (len(model.classes), len(model.classes))
        return found if wanted and fits and isinstance(found["per_class"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _calibration(model: TrainedModel) -> str:
    found = model.calibration
    if found is None:
        return "Not calibrated: they are the softmax of the logits and may be too sure."
    return (
        f"Calibrated: temperature {found.temperature:.3g}, fitted to {found.images} {found.source}. They are "
        "true on average for images like those, not for others."
    )


def _prototypes(model: TrainedModel, pictures: bool) -> str:
    if isinstance(model.network, BlackBox):
        return "None: this is a plain classifier."
    lines = [f"{len(model.prototypes)} prototypes."]
    if model.part_names:
        names = sorted({_plain(part.words) for part in model.part_names.values()})
        lines.append(f"Names of parts: {', '.join(names)}.")
    if not model.has_sources:
        lines.append("The images that they came from are not known.")
    elif pictures:
        lines.append("The training images that they came from are in this repository, under prototypes/.")
    else:
        lines.append("The training images that they came from were not uploaded.")
    return " ".join(lines)


def _limits(model: TrainedModel) -> str:
    known = model.familiarity is not None
    strange = (
        "It warns of images that are unlike its training images, but not of all."
        if known
        else "It does not notice images that are unlike its training images."
    )
    return (
        f"It knows its {len(model.classes)} classes and answers with one of them, whatever the image shows. "
        f"{strange} Heatmaps show what the network responds to, which need not be the cause of the truth. "
        "Not a medical device."
    )


def _plain(text: str) -> str:
    """A name as text, not as Markdown or HTML."""
    tidy = " ".join(text.split())
    return "".join(f"\\{letter}" if letter in "\\`*_[]()<>#|~!" else letter for letter in tidy)
