"""All measures of an explanation at once, by name, one value per image: the columns of a comparison.

Faithfulness needs the classifier, localisation the truth, so an image without truth has NaN there. Every
number depends on its protocol; `Protocol.facts` says it in full and belongs beside every table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dprotonet.metrics.faithfulness import (
    DropProtocol,
    RiseProtocol,
    Score,
    area_under,
    average_drop,
    average_gain,
    average_increase,
    deletion_curves,
    explained_images,
    insertion_curves,
)
from dprotonet.metrics.judges import Measure, columns
from dprotonet.metrics.localization import SHARES, Overlap, energy_share, overlap, pointing, sweep, top_share
from dprotonet.metrics.space import blank

OVERLAPS = ("DICE", "IOU", "PPV", "sensitivity")


PREDICTED = "predicted"
OF_VALUE = "the value, 0 on a blank image and 1 on the whole one; AD, AI and AG need a probability"
_NOTHING = 1e-6  # a smaller difference of whole and blank image, relative to the values, is rounding


@dataclass(frozen=True)
class Protocol:
    """How the numbers come about; two tables compare only if this is the same.

    `keep` is the share of the pixels that AD and AI of the percentile form leave (the paper's), `top` the
    share that is compared with the truth: a fifth for birds, half for medical images in the paper. What
    hidden pixels become is `rise.space` for all measures. `asked` is the class that is explained: the
    predicted one, or else that of the sample, by what a table should call it. Of a value deletion and
    insertion take its distance from that of the blank image, in units of what lies between blank and whole:
    0 is the blank image, 1 the whole one (-1 if it has less than the blank one). AD, AI and AG are shares of
    a probability and are left out.

    Unstated: which percentile of the pixels AD and AI remove; half of them here (`keep`), as AD50 and AI50.
    The soft form, image times heatmap, is Grad-CAM++'s and stands beside it as AD and AI.
    """

    rise: RiseProtocol = field(default_factory=RiseProtocol)
    keep: float = 0.5
    top: float = 0.2
    asked: str = PREDICTED
    of_value: bool = False  # the score is no probability but a value, such as that of a regression
    judges: tuple[str, ...] = ()  # families of further measures (`judges.FAMILIES`), which others compute

    def __post_init__(self) -> None:
        for name, share in (("keep", self.keep), ("top", self.top)):
            if not 0 < share < 1:
                raise ValueError(f"{name} is {share}; it is a share of the pixels, between 0 and 1")

    @property
    def facts(self) -> dict[str, Any]:
        """What has to be known to repeat the numbers."""
        soft, kept = DropProtocol(None, self.rise.space), DropProtocol(self.keep, self.rise.space)
        return {
            "deletion, insertion": self.rise.name,
            "AD, AI, AG": soft.name,
            f"AD{self._percent}, AI{self._percent}": kept.name,
            "DICE, IOU, PPV, sensitivity": f"top {100 * self.top:.10g} % of the pixels",
            "class": self.asked,
            **({"measured": OF_VALUE} if self.of_value else {}),
            **({"judges": ", ".join(self.judges)} if self.judges else {}),
        }

    @property
    def _percent(self) -> str:
        return f"{100 * self.keep:.10g}"

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Every column in its order."""
        curves = (Measure("deletion", False, 3), Measure("insertion", True, 3))
        drops = (
            Measure("AD", False, 1),
            Measure("AI", True, 1),
            Measure("AG", True, 1),
            Measure(f"AD{self._percent}", False, 1),
            Measure(f"AI{self._percent}", True, 1),
        )
        placed = (*OVERLAPS, "energy", "pointing", "part")
        usual = (*curves, *(() if self.of_value else drops), *(Measure(name, True, 3) for name in placed))
        return (*usual, *columns(self.judges))


class Explained(NamedTuple):
    """Maps (N, H, W) of one method: `raw` is ranked, `heatmaps` in [0, 1] multiplies the image."""

    raw: Tensor
    heatmaps: Tensor


class Truth(NamedTuple):
    """Where the answer lies, bool (N, H, W): the object, and the part that decides where that is known."""

    objects: Tensor | None = None
    part: Tensor | None = None


NO_TRUTH = Truth()


class Measured(NamedTuple):
    """Values (N,) of every measure, the curves (N, steps + 1), and the overlaps (N, 99) of all thresholds."""

    values: Mapping[str, Tensor]
    deletion: Tensor
    insertion: Tensor
    overlaps: Mapping[str, Tensor]


def measured(
    score: Score,
    images: Tensor,
    maps: Explained,
    truth: Truth = NO_TRUTH,
    *,
    protocol: Protocol,
    black: Tensor | None = None,
) -> Measured:
    """Everything there is to know about the maps of one method on images (N, C, H, W).

    `black` is what black pixels are in the space of the images, for a protocol in the space of pixels.
    """
    fill = black if protocol.rise.space == "pixels" else None
    score = relative_score(score, images, protocol, fill) if protocol.of_value else score
    deletion = deletion_curves(score, images, maps.raw, protocol=protocol.rise, fill=fill)
    insertion = insertion_curves(score, images, maps.raw, protocol=protocol.rise, fill=fill)
    values = {
        "deletion": area_under(deletion),
        "insertion": area_under(insertion),
        **({} if protocol.of_value else _drops(score, images, maps, protocol, fill)),
        **_places(maps, truth, protocol),
    }
    overlaps = {} if truth.objects is None else _named(sweep(maps.raw, truth.objects, SHARES))
    return Measured(values, deletion, insertion, overlaps)


def _drops(
    score: Score, images: Tensor, maps: Explained, protocol: Protocol, fill: Tensor | None
) -> dict[str, Tensor]:
    """AD, AI and AG of the soft map, AD and AI of the hottest share."""
    before = _scored(score, images, protocol)
    soft = _scored(score, explained_images(images, maps.heatmaps, keep=None, fill=fill), protocol)
    kept = _scored(score, explained_images(images, maps.raw, keep=protocol.keep, fill=fill), protocol)
    return {
        "AD": average_drop(before, soft),
        "AI": average_increase(before, soft),
        "AG": average_gain(before, soft),
        f"AD{100 * protocol.keep:g}": average_drop(before, kept),
        f"AI{100 * protocol.keep:g}": average_increase(before, kept),
    }


def relative_score(score: Score, images: Tensor, protocol: Protocol, fill: Tensor | None) -> Score:
    """The score as `Protocol.of_value` says; NaN for an image whose value is that of a blank one."""
    hidden = _scored(score, blank(images, fill), protocol)
    gap = (_scored(score, images, protocol) - hidden).abs()
    size = torch.maximum(hidden.abs(), gap)
    gap = gap.where(gap > (_NOTHING * size).clamp_min(torch.finfo(gap.dtype).tiny), torch.nan)

    def relative(pictures: Tensor, rows: Tensor) -> Tensor:
        return (score(pictures, rows) - hidden[rows]) / gap[rows]

    return relative


def _scored(score: Score, pictures: Tensor, protocol: Protocol) -> Tensor:
    """The score of as many pictures as there are images, a batch at a time."""
    rows = torch.arange(len(pictures), device=pictures.device)
    blocks = zip(pictures.split(protocol.rise.batch), rows.split(protocol.rise.batch), strict=True)
    return torch.cat([score(block, row) for block, row in blocks])


def _places(maps: Explained, truth: Truth, protocol: Protocol) -> dict[str, Tensor]:
    unknown = maps.raw.new_full((len(maps.raw),), torch.nan)
    found = dict.fromkeys((*OVERLAPS, "energy", "pointing", "part"), unknown)
    if truth.objects is not None:
        found |= _named(overlap(top_share(maps.raw, protocol.top), truth.objects))
        found["energy"] = energy_share(maps.heatmaps, truth.objects)
        found["pointing"] = pointing(maps.raw, truth.objects)
    if truth.part is not None:
        found["part"] = energy_share(maps.heatmaps, truth.part)
    return found


def _named(found: Overlap) -> dict[str, Tensor]:
    return dict(zip(OVERLAPS, found, strict=True))
