"""Patterns of feathers as functions of place: spots, streaks, scales, bars.

Each takes places (h, w, 2) in bird space and gives colours (3, h, w) or a coverage (h, w) in [0, 1].
"""

from collections.abc import Callable

import numpy as np

from dprotonet.data.birds.canvas import Array, Colour, pigment
from dprotonet.data.birds.outline import turned
from dprotonet.data.birds.shapes import SHOULDER, WING_HALF, WING_TIP

PALE: Colour = (0.91, 0.89, 0.83)
EDGE = 0.006  # half the width over which one marking fades into another


def ramp(value: Array, low: float, high: float) -> Array:
    """A smooth step from 0 at `low` to 1 at `high`."""
    t = np.clip((value - np.float32(low)) / np.float32(high - low), 0, 1)
    return t * t * (3 - 2 * t)


def mixed(under: Array, over: Array, alpha: Array) -> Array:
    """One field of colour or of light laid over another, where alpha (h, w) says so."""
    return under + alpha * (over - under)


def dots(space: Array, spacing: tuple[float, float], radii: tuple[float, float], *, turn: float) -> Array:
    """Ovals on a staggered lattice, as coverage (h, w)."""
    lattice = turned(space, -turn)
    x, y = lattice[..., 0] / np.float32(spacing[0]), lattice[..., 1] / np.float32(spacing[1])
    x = x + np.float32(0.5) * (np.floor(y) % 2)
    away = np.hypot((x % 1 - 0.5) * (spacing[0] / radii[0]), (y % 1 - 0.5) * (spacing[1] / radii[1]))
    return ramp(-away.astype(np.float32), -1.25, -0.75)


def breast_pattern(form: str, space: Array, colour: Array, toned: Callable[[Colour], Array]) -> Array:
    """The colours (3, h, w) of a breast, as if it covered everything."""
    pale = toned(PALE)
    if form == "plain":
        return mixed(
            colour,
            pale,
            0.75 * ramp(-space[..., 0] - 0.2 * space[..., 1], 0.03, 0.17),
        )
    if form == "bib":
        away = np.hypot((space[..., 0] - 0.165) / 0.115, (space[..., 1] + 0.035) / 0.095)
        return mixed(pale, colour, ramp(-away, -1.06, -0.92))
    if form == "spotted":
        return mixed(pale, colour * np.float32(0.72), dots(space, (0.040, 0.034), (0.0135, 0.0125), turn=0.5))
    return mixed(pale, colour * np.float32(0.72), dots(space, (0.070, 0.022), (0.031, 0.0065), turn=2.2))


def wing_axes(space: Array) -> tuple[Array, Array]:
    """Along the wing from shoulder (0) to tip (1), and across it from the back (-1) to the belly (1)."""
    axis = np.array(WING_TIP, dtype=np.float32) - np.array(SHOULDER, dtype=np.float32)
    length = np.float32(np.hypot(*axis))
    away = space - np.array(SHOULDER, dtype=np.float32)
    along = (away[..., 0] * axis[0] + away[..., 1] * axis[1]) / length**2
    across = (away[..., 1] * axis[0] - away[..., 0] * axis[1]) / length / np.float32(-WING_HALF)
    return along, across


def scales(along: Array, across: Array, rows: float, columns: float) -> Array:
    """Rows of overlapping rounded feathers: 0 in the middle of one, 1 at its rim."""
    row = np.floor(along * np.float32(rows))
    x = (across * np.float32(columns) + np.float32(0.5) * (row % 2)) % 1 - np.float32(0.5)
    y = along * np.float32(rows) - row
    return ramp(np.hypot(x * np.float32(1.5), y), 0.62, 1.0)


def wing_pattern(form: str, space: Array, colour: Array) -> Array:
    """The colours (3, h, w) of a folded wing: small scales on the shoulder, long feathers to the tip."""
    along, across = wing_axes(space)
    fold = (across * np.float32(2.6) + along * np.float32(0.9) + np.float32(0.15)) % 1
    quills = 0.80 + 0.30 * fold - 0.30 * ramp(fold, 0.86, 1.0)
    rims = scales(along, across, 9.0, 2.6)
    coverts = 1.04 - 0.24 * rims
    light = mixed(coverts, quills, ramp(along, 0.40, 0.47))
    body = colour * light
    if form == "scaled":
        pale = colour + (pigment(PALE) - colour) * np.float32(0.62)
        return mixed(body, pale, scales(along, across, 8.0, 2.2) * 0.95)
    if form == "tipped":
        dark = colour.mean() < 0.25
        tip = pigment(PALE if dark else (0.12, 0.12, 0.14))
        return mixed(body, tip * light, ramp(along, 0.56, 0.64))
    return body


def wing_bar_pattern(form: str, space: Array) -> Array:
    """The coverage (h, w) of the bars of a wing."""
    along, across = wing_axes(space)
    bow = along + np.float32(0.07) * across * across
    if form == "panel":
        inside = np.minimum(ramp(along, 0.44, 0.48), ramp(-along, -0.76, -0.70))
        return inside * ramp(across - along * np.float32(0.2), -0.15, -0.02)
    places = (0.33,) if form == "single" else (0.27, 0.47)
    half = 0.042 if form == "single" else 0.034
    bands = [ramp(-np.abs(bow - np.float32(place)), -half - EDGE, -half + EDGE) for place in places]
    return np.maximum.reduce(bands)
