"""Do explanations point at the parts that matter? Parts are changed one by one, and the network asked again.

For each image: the parts that are seen are exchanged and removed by the renderer, and the heat of every
explainer on the parts is compared with how far the predicted class's logit falls, and its lead over the
likeliest other class. Parts are exchanged twice: what the second draw knows of the first is what can be asked
of an explainer. The evidence rows, the decoder's heatmaps of the prototypes that say most for the class, are
judged joined and one by one. Siblings show whether evidence moves with the deciding part, and whether the
rows of a confusion name that part.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dprotonet.data.base import ImageData, PartRenderer
from dprotonet.errors import UserError
from dprotonet.experiment.compare.method import Case, Method, MethodMaps, method, preset_of
from dprotonet.experiment.prototypes.split_evidence import check_split, split_evidence
from dprotonet.experiment.quality.intervention.result import (
    AREA,
    CONTROLS,
    EXCHANGE,
    REMOVAL,
    Examined,
    InterventionResult,
    NamedPart,
    gathered,
)
from dprotonet.experiment.quality.intervention.subject import (
    Changes,
    Subject,
    changes_of,
    contrast_of,
    exchange_falls,
    falls,
    joined_rows,
    joins,
    row_falls,
    scores_of,
    subject_maps,
    subject_of,
)
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.interpretation.base import Passes
from dprotonet.interpretation.mdm import Preset
from dprotonet.metrics.controls import centre_gaussian, random_maps
from dprotonet.metrics.intervention import PartHeat, SiblingContrast, part_heat
from dprotonet.progress import NamedProgress

METHODS = ("mdm", "gradcam", "gradcam++", "similarity")


def check_renderer(data: ImageData) -> PartRenderer:
    """The data, where it can draw its images again with a part changed; a UserError for other data."""
    if not isinstance(data, PartRenderer):
        raise UserError(
            "interventions need data that can draw an image again with one part changed, and this has only "
            "finished images; the built-in birds can, any other needs a PartRenderer (dprotonet.data.base)"
        )
    return data


@dataclass(frozen=True)
class InterventionCheck:
    """What to look at: `images` spread over the classes, by which explainers, how many exchanges a part."""

    model: TrainedModel
    data: ImageData
    images: int = 24
    methods: Sequence[str] = METHODS
    exchanges: int = 3
    rows: int = 5
    joined: int = 10  # prototypes at most in a joined heatmap, for each is decoded
    decoder: str = "fast"  # of `mdm` and of the rows: a preset, or one with values, fast,iterations=10
    seed: int = 0

    def run(self, on_progress: NamedProgress | None = None) -> InterventionResult:
        """Everything, image by image; `on_progress` hears what is being done, how much of it, of how much."""
        check_split(self.model, self.data)
        check_renderer(self.data)
        for name in ("images", "exchanges", "rows", "joined"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; interventions need at least 1")
        tell = on_progress or (lambda what, done, total: None)
        methods, chosen = self._methods(), spread_over_classes(self.data.labels, self.images)
        examined, confused = [], []
        for done, index in enumerate(chosen, start=1):
            examined.append(self._examined(index, methods))
            tell("changing parts", done, len(chosen))
        mistaken = self._confusions(tell)
        for done, index in enumerate(mistaken, start=1):
            subject = self._subject(index)
            maps = subject_maps(self.model, subject, subject.rows, self._preset)
            confused.append(self._named_part(subject, self._row_heat(subject, maps)))
            tell("confusions of siblings", done, len(mistaken))
        return gathered(examined, confused, facts=self._facts())

    def _facts(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ("exchanges", "rows", "joined", "decoder", "seed")}

    @property
    def _preset(self) -> Preset:
        return preset_of(self.decoder)[1]

    def _methods(self) -> list[Method]:
        """By name, as `compare` has them; a plain `mdm` is by the decoder that the rows have."""
        classifier = Classifier.of_model(self.model)
        full = {name: f"mdm:{self.decoder}" if name == "mdm" else name for name in self.methods}
        full |= {name: name for name in CONTROLS if name != AREA}
        named = {name: method(text, classifier).explain for name, text in full.items()} | {AREA: _area}
        return [Method(name, explain) for name, explain in named.items()]

    def _confusions(self, tell: NamedProgress) -> list[int]:
        """At most `images` of those that are taken for their sibling, spread over the classes."""
        found = split_evidence(self.model, self.data, lambda done, total: tell("predicting", done, total))
        predicted = torch.cat([item.logits.argmax(dim=1).cpu() for item, _ in found]).tolist()
        labels, renderer = self.data.labels, check_renderer(self.data)
        wrong = [index for index, label in enumerate(labels) if predicted[index] != label]
        siblings = {index: renderer.sibling(index) for index in wrong}
        taken = [i for i, other in siblings.items() if other is not None and other.label == predicted[i]]
        return [
            taken[place] for place in spread_over_classes([labels[index] for index in taken], self.images)
        ]

    # ── one image ──

    def _subject(self, index: int) -> Subject:
        return subject_of(self.model, self.data, index, rows=self.rows)

    def _row_maps(self, subject: Subject) -> tuple[Tensor, dict[str, Tensor]]:
        """The heatmap of each row shown (R, H, W), and the joined ones (H, W), by explainer."""
        chosen = joins(subject, most=self.joined)
        wanted = [subject.rows, *(item.prototypes for item in chosen.values())]
        maps = subject_maps(self.model, subject, torch.cat(wanted), self._preset)
        rows, *rest = maps.split([len(prototypes) for prototypes in wanted])
        weights = [item.weight for item in chosen.values()]
        return rows, dict(zip(chosen, map(joined_rows, rest, weights), strict=True))

    def _row_heat(self, subject: Subject, maps: Tensor) -> PartHeat:
        """On each part by each row (R, K); NaN for rows that a class with few prototypes lacks."""
        heat = part_heat(maps, subject.parts.expand(len(maps), -1, -1, -1))
        return PartHeat(*(_padded(values, self.rows) for values in heat))

    def _examined(self, index: int, methods: Sequence[Method]) -> Examined:
        subject = self._subject(index)
        maps, joined = self._row_maps(subject)
        shown = {item.name: self._explained(subject, item) for item in methods} | joined
        renderer = check_renderer(self.data)
        changes = changes_of(self.model, renderer, subject, exchanges=self.exchanges, seed=self.seed)
        row_heat = self._row_heat(subject, maps)
        return Examined(
            name=subject.sample.name,
            parts=tuple(subject.sample.parts),
            heat={name: _heat(subject, heatmap) for name, heatmap in shown.items()},
            row_heat=row_heat,
            falls={
                **exchange_falls(self.model, subject, changes.exchange),
                REMOVAL: falls(self.model, subject, changes.removal),
            },
            falls_again=exchange_falls(self.model, subject, changes.again),
            row_falls={
                form: _padded(row_falls(self.model, subject, after), self.rows)
                for form, after in ((EXCHANGE, changes.exchange), (REMOVAL, changes.removal))
            },
            contrast=self._contrast(subject, changes),
            named=self._named_part(subject, row_heat),
        )

    def _explained(self, subject: Subject, explainer: Method) -> Tensor:
        inputs = self.model.inputs([subject.sample.image])
        label = torch.tensor([subject.predicted], device=inputs.device)
        return explainer.explain(Case(subject.index, subject.sample, inputs, label)).heatmap.cpu()

    def _contrast(self, subject: Subject, changes: Changes) -> dict[str, SiblingContrast]:
        """Of the deciding part as the sibling has it, and, to compare, of exchanges of the other parts."""
        other = check_renderer(self.data).sibling(subject.index)
        if other is None or subject.deciding not in subject.seen:
            return {}
        rest = [part for part in subject.seen if part != subject.deciding]
        changed = {
            "the sibling's part": scores_of(self.model, [other.image]),
            "another part": changes.exchange[rest].flatten(0, 1),
        }
        return {
            what: contrast_of(self.model, subject, scores, other.label) for what, scores in changed.items()
        }

    def _named_part(self, subject: Subject, row_heat: PartHeat) -> NamedPart:
        """The deciding part and the heat of rows on all parts, for controls too: rows that say nothing."""
        size = (subject.parts.shape[-2], subject.parts.shape[-1])
        bells, noise = centre_gaussian(self.rows, size), random_maps(self.rows, size, seed=subject.index)
        heat = {
            "rows by mean": row_heat.mean,
            "rows by sum": row_heat.total,
            "area by sum": self._row_heat(subject, torch.ones_like(bells)).total,
            "centre by mean": self._row_heat(subject, bells).mean,
            "random by mean": self._row_heat(subject, noise).mean,
        }
        return NamedPart(subject.deciding, heat)


def spread_over_classes(labels: Sequence[int], count: int) -> list[int]:
    """At most `count` places, the first of each class before the second of any; more hold those of fewer."""
    met: Counter[int] = Counter()
    turns = []
    for place, label in enumerate(labels):
        turns.append((met[label], label, place))
        met[label] += 1
    return [place for _, _, place in sorted(turns)[:count]]


def _heat(subject: Subject, heatmap: Tensor) -> PartHeat:
    found = part_heat(heatmap[None], subject.parts[None])
    return PartHeat(found.total[0], found.mean[0])


def _padded(values: Tensor, rows: int) -> Tensor:
    """Values (R, K) filled up with NaN to so many rows."""
    lacking = rows - len(values)
    return torch.cat([values, torch.full((lacking, values.shape[1]), torch.nan, dtype=values.dtype)])


def _area(case: Case) -> MethodMaps:
    """A map of ones: its sum on a part is the part's area."""
    ones = torch.ones(case.inputs.shape[-2:])
    return MethodMaps(ones, ones, Passes(0, 0))
