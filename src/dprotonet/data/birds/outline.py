"""Closed outlines as arrays of points: smooth curves, ovals, tapered strokes, leaves.

Pure geometry, in whatever unit the caller uses; the canvas turns an outline into coverage.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dprotonet.data.birds.canvas import Array

Points = Sequence[tuple[float, float]] | Array


def smooth(points: Points, *, steps: int = 6) -> Array:
    """A closed Catmull-Rom curve through the points, `steps` places a stretch."""
    here = np.asarray(points, dtype=np.float32)
    before, after, beyond = np.roll(here, 1, 0), np.roll(here, -1, 0), np.roll(here, -2, 0)
    t = np.linspace(0, 1, steps, endpoint=False, dtype=np.float32)[None, :, None]
    a, b, c, d = (p[:, None, :] for p in (before, here, after, beyond))
    curve = 2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3
    return (curve / 2).reshape(-1, 2)


def oval(
    centre: tuple[float, float], radii: tuple[float, float], *, turn: float = 0.0, steps: int = 24
) -> Array:
    """An ellipse; `turn` rotates it, in radians."""
    points = circle(steps) * np.array(radii, dtype=np.float32)
    return (turned(points, turn) if turn else points) + np.array(centre, dtype=np.float32)


@lru_cache(maxsize=8)
def circle(steps: int) -> Array:
    angle = np.linspace(0, 2 * np.pi, steps, endpoint=False)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)


def stroke(points: Points, widths: Sequence[float] | npt.NDArray[np.floating]) -> Array:
    """A line through the points as a shape, of the given full width at each of them."""
    line = np.asarray(points, dtype=np.float32)
    along = np.concatenate([line[1:], line[-1:]]) - np.concatenate([line[:1], line[:-1]])
    along /= np.maximum(np.hypot(along[:, 0], along[:, 1]), 1e-9)[:, None]
    side = (
        along[:, ::-1]
        * np.array((-0.5, 0.5), dtype=np.float32)
        * np.asarray(widths, dtype=np.float32)[:, None]
    )
    return np.concatenate([line + side, (line - side)[::-1]])


def leaf(length: float, width: float, *, bend: float = 0.0) -> Array:
    """A pointed leaf from the origin along x, `bend` lifting its middle."""
    unit = leaf_of_one()
    points = unit[:, :2] * np.array((length, width), dtype=np.float32)
    points[:, 1] -= np.float32(bend) * unit[:, 2]
    return points


@lru_cache(maxsize=1)
def leaf_of_one() -> Array:
    """The outline of a leaf of length and width one, and how much of the bend each point takes, (N, 3)."""
    t = np.linspace(0, 1, 14)
    half, lift = 0.5 * np.maximum(np.sin(np.pi * t**0.8), 0) ** 0.9, np.sin(np.pi * t)
    there, back = np.stack([t, half, lift], axis=1), np.stack([t, -half, lift], axis=1)
    return np.concatenate([there, back[-2:0:-1]]).astype(np.float32)


def joined(outlines: Sequence[Array]) -> Array:
    """Several closed outlines as one, covering what any of them covers.

    The path runs round each in turn and back through their first points, so that the bridges cancel.
    """
    rounds = [one if area(one) > 0 else one[::-1] for one in outlines]
    path = [np.concatenate([one, one[:1]]) for one in rounds]
    back = [one[:1] for one in rounds[-2:0:-1]]
    return np.concatenate(path + back) if len(rounds) > 1 else rounds[0]


def area(outline: Array) -> float:
    """The area inside an outline, negative if it runs the other way."""
    x, y = outline[:, 0] - outline[0, 0], outline[:, 1] - outline[0, 1]
    return float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum()) / 2


def turned(points: Array, angle: float, about: tuple[float, float] = (0.0, 0.0)) -> Array:
    """Points (..., 2) rotated by an angle in radians, clockwise on the screen since y points down."""
    c, s = np.float32(math.cos(angle)), np.float32(math.sin(angle))
    x0, y0 = np.float32(about[0]), np.float32(about[1])
    x, y = points[..., 0] - x0, points[..., 1] - y0
    result = np.empty(points.shape, dtype=np.float32)
    result[..., 0] = c * x - s * y + x0
    result[..., 1] = s * x + c * y + y0
    return result
