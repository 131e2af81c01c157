"""A small anti-aliased rasteriser in numpy: outlines in, coverage out, colour laid over colour.

Places are in frame units, x to the right and y down, both from 0 to 1, so that nothing above this file knows
the size in pixels. Besides its colours a canvas remembers the owner of every pixel, from which the part
masks are read. All arithmetic is element by element: no matrix product, whose rounding could depend on the
number of threads.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Colour = tuple[float, float, float]

NOBODY = 0  # the owner of pixels that belong to no bird
SUBROWS = 5  # horizontal sample lines a pixel; along a line the coverage is exact
OWNED = 0.4  # coverage from which a pixel counts as belonging to the shape


@dataclass(frozen=True)
class Patch:
    """The coverage of one shape on its bounding box."""

    rows: slice
    cols: slice
    alpha: Array  # (h, w) in [0, 1]

    def within(self, other: Array) -> "Patch":
        """This patch, kept only where a full-frame coverage (S, S) allows it."""
        return Patch(self.rows, self.cols, self.alpha * other[self.rows, self.cols])


class Canvas:
    """A square picture (3, S, S) in [0, 1] and the owner of each pixel (S, S)."""

    def __init__(self, image: Array) -> None:
        self.image = image
        self.size = image.shape[-1]
        self.owner = np.zeros(image.shape[1:], dtype=np.int8)

    def cover(self, outline: Array, *, soft: float = 0.0) -> Patch:
        """The coverage of a closed outline (N, 2); `soft` widens its edge, in frame units."""
        patch = coverage(outline * np.float32(self.size), self.size, margin=1 + round(2.5 * soft * self.size))
        if soft * self.size < 0.3 or not patch.alpha.size:
            return patch
        return Patch(patch.rows, patch.cols, blurred(patch.alpha, soft * self.size))

    def paint(self, patch: Patch, colour: Array | Colour, owner: int = NOBODY) -> None:
        """Lay a colour, one for all or one for each pixel (3, h, w), over the picture."""
        region = self.image[:, patch.rows, patch.cols]
        region += patch.alpha * ((pigment(colour) if isinstance(colour, tuple) else colour) - region)
        self.claim(patch, owner)

    def claim(self, patch: Patch, owner: int) -> None:
        """Give the well covered pixels to an owner, leaving their colour."""
        self.owner[patch.rows, patch.cols][patch.alpha > OWNED] = owner

    def fill(self, outline: Array, colour: Colour, owner: int = NOBODY, *, opacity: float = 1.0) -> None:
        """Paint a closed outline in one colour."""
        patch = self.cover(outline)
        self.paint(Patch(patch.rows, patch.cols, patch.alpha * np.float32(opacity)), colour, owner)

    def grid(self, patch: Patch) -> Array:
        """The centres (h, w, 2) of the pixels of a patch, in frame units."""
        centres = np.empty((*patch.alpha.shape, 2), dtype=np.float32)
        centres[..., 0] = (np.arange(patch.cols.start, patch.cols.stop) + 0.5) / self.size
        centres[..., 1] = ((np.arange(patch.rows.start, patch.rows.stop) + 0.5) / self.size)[:, None]
        return centres


def pigment(colour: Colour) -> Array:
    """A colour as (3, 1, 1), ready to be multiplied by light (h, w)."""
    return np.array(colour, dtype=np.float32).reshape(3, 1, 1)


def coverage(outline: Array, size: int, *, margin: int = 1) -> Patch:
    """The share of each pixel of a frame of that size inside a closed outline (N, 2), given in pixels."""
    cols, rows = (extent(outline[:, axis], size, margin) for axis in (0, 1))
    left, top, width, height = cols.start, rows.start, cols.stop - cols.start, rows.stop - rows.start
    if width == 0 or height == 0:
        return Patch(rows, cols, np.zeros((height, width), dtype=np.float32))
    line, x, turn = crossings(outline, top + (np.arange(height * SUBROWS) + 0.5) / SUBROWS)
    x = np.minimum(np.maximum(x - left, 0), width)
    column = x.astype(np.int64)
    cell, part = (line // SUBROWS) * (width + 2) + column, x - column
    cells = height * (width + 2)
    steps = np.bincount(cell, turn * (1 - part), cells) + np.bincount(cell + 1, turn * part, cells)
    winding = steps.reshape(height, width + 2).cumsum(axis=1)[:, :width] / SUBROWS
    return Patch(rows, cols, np.minimum(np.abs(winding), 1).astype(np.float32))


def extent(values: Array, size: int, margin: int) -> slice:
    """The pixels along one axis that an outline can touch, cut at the frame."""
    low = min(max(math.floor(values.min()) - margin, 0), size)
    return slice(low, min(max(math.ceil(values.max()) + margin, low), size))


def crossings(outline: Array, lines: npt.NDArray[np.float64]) -> tuple[npt.NDArray, npt.NDArray, npt.NDArray]:
    """Where the edges cross horizontal lines: the line's number, the place x, and the direction (+1 down)."""
    start = outline.astype(np.float64)
    step = np.concatenate([start[1:], start[:1]]) - start
    end_y = start[:, 1] + step[:, 1]
    edge, line = np.nonzero((start[:, 1, None] <= lines) != (end_y[:, None] <= lines))
    share = (lines[line] - start[edge, 1]) / step[edge, 1]
    return line, start[edge, 0] + share * step[edge, 0], np.sign(step[edge, 1])


def blurred(image: Array, sigma: float) -> Array:
    """A Gaussian blur over the last two axes, the edge repeated; sigma in pixels, reach 2.5 sigma."""
    reach = max(1, round(2.5 * sigma))
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    taps = (taps / taps.sum()).astype(np.float32)
    for axis in (-2, -1):
        length = image.shape[axis]
        wide = np.take(image, np.clip(np.arange(-reach, length + reach), 0, length - 1), axis=axis)
        windows = [
            wide[..., k : k + length, :] if axis == -2 else wide[..., k : k + length]
            for k in range(len(taps))
        ]
        image = taps[reach] * windows[reach]
        for k in range(reach):
            image += taps[k] * (windows[k] + windows[-1 - k])
    return image


def enlarged(image: Array, size: int) -> Array:
    """A small picture ([3,] n, m) as a smooth one ([3,] S, S), by cubic B-splines: cheap depth blur."""
    return stretched(stretched(image, size, axis=-2), size, axis=-1)


def stretched(image: Array, size: int, *, axis: int) -> Array:
    """One axis enlarged to `size`."""
    index, weight = spline_taps(image.shape[axis], size)
    shape = [size if a == axis else 1 for a in range(-image.ndim, 0)]
    total = np.take(image, index[0], axis=axis) * weight[0].reshape(shape)
    for k in range(1, 4):
        total += np.take(image, index[k], axis=axis) * weight[k].reshape(shape)
    return total


@lru_cache(maxsize=64)
def spline_taps(cells: int, size: int) -> tuple[npt.NDArray[np.int64], Array]:
    """The four neighbours and weights (4, S) that blend `cells` values into `size` ones."""
    place = (np.arange(size) + 0.5) / size * cells - 0.5
    base = np.floor(place).astype(np.int64)
    t = place - base
    weight = np.stack([(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, 3 * (t**2 - t**3 + t) + 1, t**3]) / 6
    index = np.clip(base + np.arange(-1, 3)[:, None], 0, cells - 1)
    return index, weight.astype(np.float32)


def noise(rng: np.random.Generator, cells: tuple[int, int], size: int) -> Array:
    """Smooth noise (S, S) about zero, with that many bumps down and across."""
    return enlarged(rng.standard_normal(cells, dtype=np.float32), size) * np.float32(1.6)


def wobble(rng: np.random.Generator, cells: int, size: int) -> Array:
    """Smooth noise along a line (S,)."""
    return stretched(rng.standard_normal(cells, dtype=np.float32), size, axis=-1) * np.float32(1.6)
