"""The outlines of every part variant in bird space, as tables of points.

Those of the head move with the head, those of the tail are given along the tail; `anatomy` sets them in
place.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from dprotonet.data.birds.canvas import Array
from dprotonet.data.birds.outline import Points, joined, leaf, oval, smooth, stroke, turned

EYE = (0.166, -0.196)
SHOULDER = (0.105, -0.035)
WING_TIP = (-0.285, 0.150)
WING_HALF = 0.085  # half the width of the folded wing

BEAK: Mapping[str, Points] = MappingProxyType(
    {
        "cone": (
            (0.19, -0.222),
            (0.25, -0.200),
            (0.300, -0.160),
            (0.302, -0.156),
            (0.25, -0.138),
            (0.19, -0.128),
        ),
        "needle": (
            (0.19, -0.192),
            (0.28, -0.182),
            (0.375, -0.168),
            (0.377, -0.165),
            (0.28, -0.162),
            (0.19, -0.152),
        ),
        "hook": (
            (0.19, -0.216),
            (0.25, -0.217),
            (0.30, -0.190),
            (0.315, -0.130),
            (0.312, -0.128),
            (0.28, -0.157),
            (0.24, -0.145),
            (0.19, -0.140),
        ),
        "dagger": (
            (0.19, -0.212),
            (0.27, -0.198),
            (0.352, -0.162),
            (0.354, -0.158),
            (0.27, -0.143),
            (0.19, -0.134),
        ),
        "sickle": (
            (0.19, -0.205),
            (0.26, -0.205),
            (0.33, -0.170),
            (0.370, -0.105),
            (0.367, -0.103),
            (0.315, -0.150),
            (0.25, -0.175),
            (0.19, -0.150),
        ),
    }
)
CROWN: Mapping[str, Points] = MappingProxyType(
    {
        "cap": (
            (0.235, -0.196),
            (0.190, -0.224),
            (0.130, -0.218),
            (0.070, -0.170),
            (0.020, -0.130),
            (0.000, -0.220),
            (0.070, -0.300),
            (0.170, -0.310),
            (0.250, -0.260),
        ),
        "hood": (
            (0.260, -0.120),
            (0.160, -0.105),
            (0.080, -0.085),
            (0.010, -0.070),
            (-0.020, -0.180),
            (0.060, -0.300),
            (0.180, -0.310),
            (0.270, -0.220),
        ),
    }
)
BREAST: Points = (
    (0.250, -0.120),
    (0.165, -0.110),
    (0.095, -0.060),
    (0.060, 0.010),
    (-0.030, 0.085),
    (-0.130, 0.110),
    (-0.230, 0.135),
    (-0.150, 0.210),
    (0.020, 0.230),
    (0.180, 0.150),
    (0.260, 0.000),
)
WING: Points = (
    (0.112, -0.020),
    (0.085, -0.066),
    (0.020, -0.078),
    (-0.080, -0.022),
    (-0.180, 0.058),
    (-0.285, 0.148),
    (-0.287, 0.152),
    (-0.190, 0.122),
    (-0.090, 0.112),
    (0.010, 0.092),
    (0.085, 0.045),
)
TAIL: Mapping[str, Points] = MappingProxyType(
    {
        "fork": (
            (-0.05, -0.035),
            (0.10, -0.042),
            (0.265, -0.088),
            (0.267, -0.084),
            (0.150, 0.0),
            (0.267, 0.084),
            (0.265, 0.088),
            (0.10, 0.042),
            (-0.05, 0.035),
        ),
        "fan": (
            (-0.05, -0.030),
            (0.08, -0.055),
            (0.185, -0.105),
            (0.222, -0.060),
            (0.235, 0.0),
            (0.222, 0.060),
            (0.185, 0.105),
            (0.08, 0.055),
            (-0.05, 0.030),
        ),
        "spear": (
            (-0.05, -0.032),
            (0.12, -0.036),
            (0.24, -0.020),
            (0.330, -0.001),
            (0.330, 0.001),
            (0.24, 0.020),
            (0.12, 0.036),
            (-0.05, 0.032),
        ),
        "square": (
            (-0.05, -0.035),
            (0.10, -0.040),
            (0.222, -0.052),
            (0.226, -0.048),
            (0.214, 0.0),
            (0.226, 0.048),
            (0.222, 0.052),
            (0.10, 0.040),
            (-0.05, 0.035),
        ),
    }
)
LEG_WIDTH: Mapping[str, float] = MappingProxyType({"slim": 0.013, "sturdy": 0.024})


def crown(form: str) -> Array:
    """The outline of a crown, to be kept within the head."""
    if form == "brow":
        line = ((0.232, -0.200), (0.190, -0.226), (0.140, -0.226), (0.090, -0.200), (0.040, -0.150))
        return stroke(line, (0.016, 0.022, 0.026, 0.024, 0.012))
    return smooth(CROWN[form])


def crest(form: str) -> list[Array]:
    """The feathers of a crest, the hindmost first."""
    if form == "spike":
        return [
            smooth(
                (
                    (0.20, -0.225),
                    (0.155, -0.285),
                    (0.035, -0.365),
                    (0.032, -0.362),
                    (0.07, -0.26),
                    (0.07, -0.2),
                )
            )
        ]
    if form == "plume":
        stem = ((0.135, -0.245), (0.130, -0.300), (0.155, -0.345), (0.195, -0.355))
        return [stroke(stem, (0.018, 0.014, 0.014, 0.014)), oval((0.200, -0.350), (0.036, 0.024), turn=0.35)]
    if form == "fan":
        return [feather((0.125, -0.225), angle, 0.135, 0.046) for angle in np.linspace(-2.75, -1.0, 6)]
    return [
        feather((0.09, -0.215), angle, 0.12 + 0.02 * k, 0.034) for k, angle in enumerate((-2.2, -2.6, -3.0))
    ]


def feather(root: tuple[float, float], angle: float, length: float, width: float) -> Array:
    """One pointed feather."""
    return turned(leaf(length, width, bend=0.006), angle) + np.array(root, dtype=np.float32)


def eye_ring(form: str) -> list[Array]:
    """The pale skin or feathers about the eye; the eye is drawn over it."""
    if form == "tear":
        return [
            oval(EYE, (0.029, 0.029)),
            smooth(((0.150, -0.218), (0.085, -0.186), (0.083, -0.183), (0.150, -0.172))),
        ]
    radius = {"ring": 0.0275, "goggle": 0.036}[form]
    return [oval(EYE, (radius, radius))]


def leg(near: bool, form: str) -> Array:
    """The outline of one leg: shank and toes."""
    x, width = (0.035 if near else -0.012), LEG_WIDTH[form]
    foot = np.array((x, 0.256), dtype=np.float32)
    shank = stroke(((x - 0.012, 0.11), (x - 0.020, 0.195), tuple(foot)), (width * 1.5, width * 1.1, width))
    ends = ((0.045, 0.012), (0.026, 0.022), (-0.034, 0.014))
    toes = [
        stroke(foot + np.array(((0, 0), (0.6 * x, 0.3 * y), (x, y))), np.array((1, 0.9, 0.5)) * width)
        for x, y in ends
    ]
    return joined([shank, *toes])
