"""The further judges of a comparison (`--judges`), for one method on one image at a time.

The measures themselves are pure functions in metrics; here is what they need besides maps: another image of
the data, a network that has forgotten everything, and the method once more.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from dprotonet.data.base import ImageData
from dprotonet.experiment.compare.method import DECODERS, Case, Method, method
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.interpretation.explainers import EXPLAINERS
from dprotonet.interpretation.randomised import cascade
from dprotonet.metrics.amounts import infidelity, saco
from dprotonet.metrics.complexity import entropy, sparseness
from dprotonet.metrics.curves import Score
from dprotonet.metrics.judges import probe
from dprotonet.metrics.localization import pointing
from dprotonet.metrics.measures import Explained, Measure, Protocol, Truth, relative_score
from dprotonet.metrics.randomisation import rank_correlation
from dprotonet.metrics.references import mean_colour, noise, towards
from dprotonet.metrics.road import road
from dprotonet.metrics.steadiness import efficient_mprt, max_sensitivity

DISTURBANCES = 3  # of max-sensitivity: each is an explanation; captum takes 10
_STATISTICS = 16  # images from which the statistics of forgotten BatchNorm layers are measured
_SEED = 0


@dataclass(frozen=True)
class Question:
    """One method's maps of one image, and all that a judge may ask about them."""

    method: Method
    case: Case
    score: Score
    maps: Explained
    truth: Truth
    fill: Tensor | None  # what hidden pixels become; None for zeros

    @property
    def images(self) -> Tensor:
        return self.case.inputs


@dataclass(frozen=True)
class Judges:
    """The families that a protocol asks for; everything they share is made once."""

    classifier: Classifier
    data: ImageData
    protocol: Protocol
    indices: Sequence[int]  # of the comparison, for statistics
    _random: dict[str, Method] = field(default_factory=dict, init=False, repr=False)

    def values(self, asked: Question) -> dict[str, float]:
        """By the name of the column; NaN where a judge has nothing to say."""
        protocol = self.protocol
        if protocol.of_value and protocol.judges:
            asked = replace(asked, score=relative_score(asked.score, asked.images, protocol, asked.fill))
        found: dict[str, Tensor] = {}
        for name in protocol.judges:
            found |= _FAMILIES[name](self, asked)
        return {name: float(value[0]) for name, value in found.items()}

    def road(self, asked: Question) -> dict[str, Tensor]:
        found = road(asked.score, asked.images, asked.maps.raw)
        return {"ROAD hot": found.hottest, "ROAD cold": found.coldest, "ROAD": found.combined}

    def references(self, asked: Question) -> dict[str, Tensor]:
        images, found = asked.images, dict[str, Tensor]()
        shown = {"mean": mean_colour(images), "noise": noise(images), "image": self._another(asked.case)}
        for name, reference in shown.items():
            areas = towards(asked.score, images, reference, asked.maps.raw, protocol=self.protocol.rise)
            found |= {f"del {name}": areas.deletion, f"ins {name}": areas.insertion}
        return found

    def saco(self, asked: Question) -> dict[str, Tensor]:
        return {"SaCo": saco(asked.score, asked.images, asked.maps.raw, asked.maps.heatmaps)}

    def infidelity(self, asked: Question) -> dict[str, Tensor]:
        return {"infidelity": infidelity(asked.score, asked.images, asked.maps.raw, fill=asked.fill)}

    def randomised(self, asked: Question) -> dict[str, Tensor]:
        """The same class by a network that has forgotten everything; not for maps that lie in files."""
        raw = asked.maps.raw
        if _stored(asked.method):
            return dict.fromkeys(("alike", "eMPRT"), _unknown(raw))
        name = asked.method.name
        if name not in self._random:
            self._random[name] = method(name, replace(self.classifier, module=self._forgetful))
        other = self._random[name].explain(asked.case).raw.to(raw).unsqueeze(0)
        alike = rank_correlation(raw.cpu(), other.cpu())
        return {"alike": alike, "eMPRT": efficient_mprt(raw, other)}

    def sensitivity(self, asked: Question) -> dict[str, Tensor]:
        if _stored(asked.method):
            return {"max-sensitivity": _unknown(asked.maps.raw)}

        def explain(images: Tensor) -> Tensor:
            heat = asked.method.explain(asked.case._replace(inputs=images)).heatmap
            return heat.to(images).unsqueeze(0)

        heat = asked.maps.heatmaps
        return {"max-sensitivity": max_sensitivity(explain, asked.images, heat, draws=DISTURBANCES)}

    def complexity(self, asked: Question) -> dict[str, Tensor]:
        heat = asked.maps.heatmaps
        return {"entropy": entropy(heat), "sparseness": sparseness(heat)}

    def parts(self, asked: Question) -> dict[str, Tensor]:
        part = asked.truth.part
        raw = asked.maps.raw
        return {"part pointing": _unknown(raw) if part is None else pointing(raw, part)}

    def _another(self, case: Case) -> Tensor:
        """The image that lies half of the data further on, so hardly of the same class."""
        other = self.data[(case.place + len(self.data) // 2) % len(self.data)].image
        return self.classifier.normalise(other.unsqueeze(0)).to(case.inputs)

    @cached_property
    def _forgetful(self) -> torch.nn.Module:
        """The network with all weights drawn anew."""
        device = next(self.classifier.module.parameters()).device
        shown = [self.data[index].image for index in list(self.indices)[:_STATISTICS]]
        images = torch.cat([self.classifier.normalise(image.unsqueeze(0)) for image in shown]).to(device)
        (stage,) = cascade(self.classifier.module, seed=_SEED, images=images, stages=1)
        return stage.model


_FAMILIES: Mapping[str, Callable[[Judges, Question], dict[str, Tensor]]] = {
    "road": Judges.road,
    "references": Judges.references,
    "saco": Judges.saco,
    "infidelity": Judges.infidelity,
    "randomised": Judges.randomised,
    "sensitivity": Judges.sensitivity,
    "complexity": Judges.complexity,
    "parts": Judges.parts,
}


def optimised(asked: Method, measures: Sequence[Measure]) -> tuple[str, ...]:
    """The measures that the method was made to be good at: it optimises the same on the same images.

    A decoder's preset says what its steps ask; of the others the table of explainers says it.
    """
    kind = asked.name.partition(":")[0]
    own = asked.settings.get("asks") if kind in DECODERS else None
    kind = "mdm" if kind in DECODERS else kind
    probed = own if own is not None else EXPLAINERS[kind].optimises if kind in EXPLAINERS else ()
    each = {one for probe in probed for one in _each(probe)}
    return tuple(measure.name for measure in measures if probe(measure.name) in each)


def _each(probe: str) -> tuple[str, ...]:
    """`both black` is to keep and to hide."""
    what, _, behind = probe.partition(" ")
    return (f"keep {behind}", f"hide {behind}") if what == "both" else (probe,)


def _stored(asked: Method) -> bool:
    return asked.name.startswith("file:")


def _unknown(maps: Tensor) -> Tensor:
    return maps.new_full((len(maps),), torch.nan)
