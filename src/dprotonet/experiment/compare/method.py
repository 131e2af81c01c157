"""An explainer by the name that a user gives it: `mdm`, `mdm:best`, `mdm:fast,zoom=1`, `gradcam`, `file:DIR`.

`mdm` watches the class, `mdm-prototype` the region of the prototype that speaks loudest for it.

Every method gets one case, an image with the class to be explained, and gives its maps. What decides the maps
is in `settings`, so that stored results are never mixed with those of other settings.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dprotonet.data.base import Sample
from dprotonet.errors import UserError
from dprotonet.experiment.explaining.explainers import class_node, explainer, prototyped, strongest_prototype
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.interpretation.base import Explanation, Passes
from dprotonet.interpretation.explainers import EXPLAINERS
from dprotonet.interpretation.mdm import MDM, Preset, preset
from dprotonet.metrics.controls import all_but_one, centre_gaussian, random_maps
from dprotonet.ops import unit_range, upsample

CONTROLS = ("random", "centre", "fake")
DECODERS = ("mdm", "mdm-prototype")


class Case(NamedTuple):
    """One image to be explained, as the network sees it (1, C, H, W), and the label (1,)."""

    place: int  # in the data
    sample: Sample
    inputs: Tensor
    label: Tensor


class MethodMaps(NamedTuple):
    """Maps (H, W) of one case: `raw` ranks the pixels, `heatmap` is in [0, 1]."""

    raw: Tensor
    heatmap: Tensor
    passes: Passes


@dataclass(frozen=True)
class Method:
    """A way of explaining, under the name that was asked for."""

    name: str
    explain: Callable[[Case], MethodMaps]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def control(self) -> bool:
        """Whether it only shows what luck or habit would score."""
        return self.name in CONTROLS


def check_method(name: str) -> None:
    """A UserError unless a method has that name, before there is a network."""
    kind, _, rest = name.partition(":")
    if kind in DECODERS:
        preset_of(rest)
    elif not (kind == "file" and rest) and (kind not in (*EXPLAINERS, *CONTROLS) or rest):
        names = dict.fromkeys([*DECODERS, *EXPLAINERS, *CONTROLS])
        known = f"{', '.join(names)}, mdm:PRESET[,VALUE=…], mdm-prototype:PRESET[,VALUE=…], file:FOLDER"
        raise UserError(f"unknown method '{name}'; known: {known}")


def needs_prototypes(name: str) -> bool:
    """Whether it explains prototype networks only."""
    kind = name.partition(":")[0]
    return kind == "mdm-prototype" or (kind in EXPLAINERS and "prototypes" in EXPLAINERS[kind].needs)


def method(name: str, classifier: Classifier) -> Method:
    """The method of that name for that network."""
    check_method(name)
    kind, _, rest = name.partition(":")
    if kind == "mdm-prototype":
        return _mdm_prototype(name, preset_of(rest), classifier)
    if kind == "file":
        stored = _Stored(Path(rest).expanduser().resolve())
        return Method(name, stored, {"maps": str(stored.folder), "content": stored.content()})
    if kind in CONTROLS:
        return Method(name, _CONTROL[kind])
    return _of_table(name, preset_of(rest), classifier)


def preset_of(text: str) -> tuple[str, Preset]:
    """`best`, `fast,iterations=10`, or nothing for `fast`."""
    name, *changes = text.split(",") if text else ["fast"]
    pairs = dict(_value(name, change) for change in changes)
    return name, preset(name, **pairs)


def _value(preset_name: str, change: str) -> tuple[str, Any]:
    key, equals, value = change.partition("=")
    try:
        if not equals:
            raise ValueError
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        raise UserError(
            f"{preset_name},{change}: after the preset come values, such as iterations=10"
        ) from None


def _mdm_prototype(name: str, chosen: tuple[str, Preset], classifier: Classifier) -> Method:
    preset_name, numbers = chosen
    network = prototyped(classifier, name)
    decoder = MDM(network, preset=numbers)

    def explain(case: Case) -> MethodMaps:
        node = strongest_prototype(network, case.inputs, case.label)
        (found,) = decoder.explain(case.inputs, node)
        passes = Passes(found.passes.forward + 1, found.passes.backward)  # one to find the prototype
        return _found(found)._replace(passes=passes)

    return Method(name, explain, {"preset": preset_name, **asdict(numbers)})  # type: ignore[call-overload]


def _of_table(name: str, chosen: tuple[str, Preset], classifier: Classifier) -> Method:
    """A method that asks an explainer of the table for the class of the case."""
    kind, (preset_name, numbers) = name.partition(":")[0], chosen
    asked = explainer(kind, classifier, preset=numbers)

    def explain(case: Case) -> MethodMaps:
        (found,) = asked.explain(case.inputs, class_node(classifier, case.label, asked))
        return _found(found)

    if isinstance(asked, MDM):
        return Method(name, explain, {"preset": preset_name, **asdict(numbers)})  # type: ignore[call-overload]
    settings = {key: value for key, value in vars(asked).items() if isinstance(value, int | float)}
    return Method(name, explain, settings)


def _found(explanation: Explanation) -> MethodMaps:
    return MethodMaps(explanation.raw.cpu(), explanation.heatmap.cpu(), explanation.passes)


@dataclass(frozen=True)
class _Stored:
    """Maps that somebody else made: FOLDER/NAME.npy for the image NAME.jpg, of any size and number type."""

    folder: Path

    def content(self) -> str:
        """Of the maps that lie there now, by size and date: a map made anew is measured anew."""
        digest = blake2b(digest_size=8)
        for path in sorted(self.folder.rglob("*.npy")):
            facts = path.stat()
            digest.update(f"{path.relative_to(self.folder)}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode())
        return digest.hexdigest()

    def __call__(self, case: Case) -> MethodMaps:
        path = self.folder / Path(case.sample.name).with_suffix(".npy")
        raw = upsample(_read_map(path), (case.inputs.shape[-2], case.inputs.shape[-1]))
        return MethodMaps(raw, unit_range(raw), Passes(0, 0))


def _read_map(path: Path) -> Tensor:
    try:
        values = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UserError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as an .npy array: {error}") from None
    if values.ndim != 2 or values.dtype.kind not in "fiub" or not values.size:
        raise UserError(f"{path} holds {values.dtype} {values.shape}; a map is (H, W) of real numbers")
    if not np.isfinite(values).all():
        raise UserError(f"{path} contains NaN or infinite values")
    return torch.from_numpy(values.astype(np.float32))


def _control(maps: Tensor) -> MethodMaps:
    return MethodMaps(maps[0], unit_range(maps)[0], Passes(0, 0))


def _size(case: Case) -> tuple[int, int]:
    return case.inputs.shape[-2], case.inputs.shape[-1]


_CONTROL: dict[str, Callable[[Case], MethodMaps]] = {
    "random": lambda case: _control(random_maps(1, _size(case), seed=case.place)),
    "centre": lambda case: _control(centre_gaussian(1, _size(case))),
    "fake": lambda case: _control(all_but_one(1, _size(case))),
}
