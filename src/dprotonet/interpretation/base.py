"""What every explainer gives: a frozen explanation of each image, with all that is known of how it was made.

How it is asked for, `explainer` says; what is explained, the nodes say; `borrowed` hands the network back as
it was.
"""

import base64
import html
import io
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.figures import binary_image, heatmap_blend, masked_image, overlay, picture, slice_sheet
from dprotonet.files import whole, write_text
from dprotonet.interpretation.masks import Size, places
from dprotonet.ops import upsample

logger = logging.getLogger(__name__)

_SHARE = 0.2  # of the pixels, that a box goes round


class Passes(NamedTuple):
    """How often the network was asked about this image, masked or not, forwards and backwards.

    Also an answer for which only its last layers had to run, the others' values being known, is a pass.
    """

    forward: int
    backward: int


class Box(NamedTuple):
    """The smallest rectangle of pixels; right and bottom are not part of it."""

    left: int
    top: int
    right: int
    bottom: int

    def stretched(self, size: Sequence[int], onto: Sequence[int]) -> "Box":
        """The same place where a map of one height and width is stretched onto another, rounded outwards."""
        (height, width), (new_height, new_width) = size, onto
        return Box(
            self.left * new_width // width,
            self.top * new_height // height,
            -(-self.right * new_width // width),
            -(-self.bottom * new_height // height),
        )


class Cuboid(NamedTuple):
    """The smallest cuboid of a volume's places; the last three are not part of it."""

    front: int
    top: int
    left: int
    back: int
    bottom: int
    right: int


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a node was active on one image: all that Algorithm 1 returns, and how it came about.

    `heatmap` (H, W) in [0, 1] is the finished map M^h; `raw` (H, W) is the summed map before threshold and
    scaling, which every metric that ranks pixels should take. `masks` holds the learned mask of each size,
    `loss` its trace, `image` the input (C, H, W), `facts` what made the result: preset with all its values,
    seed, versions. `above` (H, W) bool is where the explainer's own threshold is reached, if it has one;
    `side` (H, W) what a place adds for the node, or below 0 against it, if heat tells both. Of a volume
    (C, D, H, W) maps are (D, H, W), and pictures show up to a dozen of its slices.
    """

    heatmap: Tensor
    raw: Tensor
    masks: Mapping[Size, Tensor]
    loss: tuple[float, ...]
    passes: Passes
    node: str
    image: Tensor
    facts: Mapping[str, Any]
    above: Tensor | None = None
    side: Tensor | None = None

    @property
    def binary_mask(self) -> Tensor:
        """M^b (H, W) bool, Algorithm 1, line 17: {raw >= γ} by the `paper` preset.

        Deviation: γ is a threshold of the paper's sum of masks. An explainer that has no such sum (presets
        other than `paper`, CAMs, RISE, similarity maps) has for M^b the hottest fifth of its raw map, the
        share that `box` goes round, but never a place that is as cold as the coldest.
        """
        return (
            hottest_pixels(self.raw, _SHARE) & (self.raw > self.raw.min())
            if self.above is None
            else self.above
        )

    @property
    def kept(self) -> float:
        """The share of the pixels that the binary mask keeps."""
        return round(float(self.binary_mask.float().mean()), 6)

    def box(self, *, share: float = _SHARE) -> Box:
        """Round the hottest `share` of the pixels."""
        if self.raw.ndim == 3:
            raise UserError("a volume has no box; cuboid() goes round its hottest places")
        rows, columns = hottest_pixels(self.raw, share).nonzero().unbind(dim=1)
        return Box(int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1)

    def cuboid(self, *, share: float = _SHARE) -> Cuboid:
        """Round the hottest `share` of a volume."""
        if self.raw.ndim == 2:
            raise UserError("an image has no cuboid; box() goes round its hottest pixels")
        found = hottest_pixels(self.raw, share).nonzero()
        return Cuboid(*found.amin(dim=0).tolist(), *(found.amax(dim=0) + 1).tolist())

    def overlay(self, image: Tensor | None = None) -> Image.Image:
        """The heatmap over `image` (3, H, W) uint8, or over the input with its contrast stretched.

        In all pictures the image may be of another size; the map is stretched onto it.
        """
        shown = self._shown(image)
        return _drawn(overlay, shown, self._heat(shown))

    def heatmap_image(
        self, image: Tensor | None = None, *, alpha: float = 0.5, beta: float = 0.3
    ) -> Image.Image:
        """The paper's heatmap image, Eq. (18) and Algorithm 1, line 20: α·X0 + β·M^h."""
        shown = self._shown(image)
        return _drawn(partial(heatmap_blend, alpha=alpha, beta=beta), shown, self._heat(shown))

    def binary_image(self, image: Tensor | None = None) -> Image.Image:
        """The paper's binary-mask image, Algorithm 1, line 21: M^b·X0."""
        shown = self._shown(image)
        kept = self.binary_mask.cpu()[None, None].float()
        stretched = torch.nn.functional.interpolate(kept, size=shown.shape[1:], mode="nearest-exact")
        return _drawn(binary_image, shown, stretched[0, 0] > 0)

    def masked(self, image: Tensor | None = None) -> Image.Image:
        """The paper's other binary-mask image, Eq. (19): the image times the heatmap."""
        shown = self._shown(image)
        return _drawn(masked_image, shown, self._heat(shown))

    def maps(self) -> dict[str, Tensor]:
        """What is saved as .npy, by name; the learned masks are not among them."""
        sides = {} if self.side is None else {"side": self.side}
        return {"heatmap": self.heatmap, "raw": self.raw, "binary_mask": self.binary_mask, **sides}

    def pictures(self, image: Tensor | None = None) -> dict[str, Image.Image]:
        """What is saved as .png, by name: the overlay, Eq. (18), Eq. (19), and Algorithm 1, line 21."""
        return {
            "overlay": self.overlay(image),
            "blend": self.heatmap_image(image),
            "masked": self.masked(image),
            "binary": self.binary_image(image),
        }

    def summary(self) -> dict[str, Any]:
        """All but the maps, fit for JSON."""
        return {
            "node": self.node,
            "size": list(self.heatmap.shape),
            "kept": self.kept,
            "passes": self.passes._asdict(),
            **({"box": self.box()._asdict()} if self.raw.ndim == 2 else {"cuboid": self.cuboid()._asdict()}),
            "loss": [round(value, 6) for value in self.loss],
            **self.facts,
        }

    def save(self, folder: str | PathLike[str], *, image: Tensor | None = None, stem: str = "") -> Path:
        """Maps as .npy, pictures as .png, the rest, with the names of these files, as explanation.json."""
        place, prefix = Path(folder), f"{stem}-" if stem else ""
        arrays = self.maps() | {_file_of(size): mask for size, mask in self.masks.items()}
        for name, values in arrays.items():
            with whole(place / f"{prefix}{name}.npy") as temporary, temporary.open("wb") as file:
                np.save(file, values.cpu().numpy())
        pictures = self.pictures(image)
        for name, drawn in pictures.items():
            with whole(place / f"{prefix}{name}.png") as temporary:
                drawn.save(temporary, format="PNG")
        files = {name: f"{prefix}{name}.npy" for name in arrays} | {n: f"{prefix}{n}.png" for n in pictures}
        content = {**self.summary(), "files": files}
        write_text(place / f"{prefix}explanation.json", json.dumps(content, ensure_ascii=False, indent=1))
        return place

    def _shown(self, image: Tensor | None) -> Tensor:
        if image is not None:
            return image.cpu()
        values = self.image.cpu().float()
        low, high = values.min(), values.max()
        stretched = ((values - low) / (high - low).clamp_min(1e-12) * 255).round().to(torch.uint8)
        return stretched[:1].expand(3, *values.shape[1:]) if len(stretched) != 3 else stretched

    def _heat(self, shown: Tensor) -> Tensor:
        """The heatmap at the size of what is shown."""
        return upsample(self.heatmap.cpu(), tuple(shown.shape[1:])).clamp(0, 1)

    def _repr_html_(self) -> str:
        """As a notebook shows it: the overlay, and what it is an overlay of."""
        stream = io.BytesIO()
        self.overlay().save(stream, format="PNG")
        data, node = base64.b64encode(stream.getvalue()).decode(), html.escape(self.node)
        return (
            f'<figure style="margin:0"><img src="data:image/png;base64,{data}" style="max-width:100%" '
            f'alt="heatmap over the image: where {node} was decided"/>'
            f"<figcaption>{node}: {self.passes.forward} forward and "
            f"{self.passes.backward} backward passes</figcaption></figure>"
        )

    def __repr__(self) -> str:
        size = "×".join(map(str, self.heatmap.shape))
        return f"Explanation({self.node}, {size}, {self.passes.forward} forward passes)"


def _drawn(draw: Callable[[Tensor, Tensor], Tensor], shown: Tensor, values: Tensor) -> Image.Image:
    """A picture of an image with its map; of a volume a sheet of slices."""
    return picture(draw(shown, values)) if values.ndim == 2 else slice_sheet(draw, shown, values)


def _file_of(size: Size) -> str:
    """What a mask of that size is saved as: mask06, or mask04x06x06."""
    return "mask" + "x".join(f"{n:02d}" for n in ((size,) if isinstance(size, int) else size))


def warn_of_empty(heatmaps: Tensor, name: Callable[[int], str]) -> None:
    """Say which maps (N, H, W) show nothing, and why that can be."""
    for row in (heatmaps.amax(dim=places(heatmaps)) <= 0).nonzero().flatten().tolist():
        logger.warning(
            "the heatmap of image %d (%s) is empty: the node does not depend on what the image shows, or no "
            "place reached the threshold; the raw map is kept",
            row,
            name(row),
        )


def hottest_pixels(raw: Tensor, share: float) -> Tensor:
    """Which of the pixels (H, W) or (D, H, W) are the hottest `share`, at least one; of equals the first."""
    if not 0 < share <= 1:
        raise ValueError(f"a share of the pixels lies in (0, 1], not {share}")
    values = raw.flatten()
    hottest = values.sort(descending=True, stable=True).indices[: max(1, round(share * len(values)))]
    chosen = torch.zeros_like(values, dtype=torch.bool)
    chosen[hottest] = True
    return chosen.view_as(raw)
