"""What lies far behind the bird, out of focus: sky, foliage, water, woodland.

Each backdrop is painted small and enlarged smoothly, which is the depth blur and also the speed. The random
numbers come from the scene alone, so that the backdrop knows nothing of the species.
"""

from collections.abc import Callable

import numpy as np

from dprotonet.data.birds.canvas import Array, Canvas, Colour, enlarged, noise, pigment, wobble
from dprotonet.data.birds.outline import joined, leaf, oval, stroke, turned

FAR, MIDDLE = 36, 80  # pixels of the small canvases: the fewer, the more blur

SKIES: tuple[tuple[Colour, Colour], ...] = (
    ((0.36, 0.58, 0.82), (0.78, 0.88, 0.95)),
    ((0.48, 0.62, 0.80), (0.97, 0.86, 0.72)),
    ((0.58, 0.68, 0.80), (0.90, 0.91, 0.92)),
    ((0.40, 0.46, 0.66), (0.95, 0.72, 0.62)),
    ((0.30, 0.56, 0.70), (0.88, 0.93, 0.86)),
)
SEASONS: tuple[tuple[Colour, ...], ...] = (
    ((0.16, 0.27, 0.13), (0.33, 0.47, 0.20), (0.56, 0.66, 0.31), (0.76, 0.81, 0.48)),
    ((0.10, 0.22, 0.17), (0.20, 0.38, 0.27), (0.40, 0.56, 0.40), (0.66, 0.76, 0.60)),
    ((0.28, 0.18, 0.11), (0.56, 0.33, 0.15), (0.80, 0.55, 0.22), (0.92, 0.77, 0.45)),
    ((0.24, 0.26, 0.20), (0.43, 0.43, 0.30), (0.63, 0.60, 0.44), (0.82, 0.78, 0.66)),
    ((0.27, 0.31, 0.42), (0.46, 0.54, 0.66), (0.69, 0.74, 0.81), (0.93, 0.90, 0.88)),
    ((0.30, 0.22, 0.26), (0.52, 0.47, 0.36), (0.84, 0.62, 0.62), (0.98, 0.86, 0.83)),
)
WATERS: tuple[tuple[Colour, Colour], ...] = (
    ((0.66, 0.84, 0.90), (0.13, 0.42, 0.54)),
    ((0.93, 0.87, 0.72), (0.28, 0.46, 0.48)),
    ((0.62, 0.80, 0.70), (0.13, 0.37, 0.34)),
    ((0.98, 0.80, 0.70), (0.30, 0.37, 0.56)),
)


def draw_backdrop(rng: np.random.Generator, size: int) -> Array:
    """A backdrop at random, (3, S, S) in [0, 1]."""
    kinds: tuple[Callable[[np.random.Generator, int], Array], ...] = (sky, foliage, water, woodland)
    return kinds[rng.integers(len(kinds))](rng, size)


def between(low: Colour, high: Colour, share: Array) -> Array:
    """Colours (3, h, w) on the way from one to another, as far as `share` (h, w) says."""
    return pigment(low) + np.clip(share, 0, 1) * (pigment(high) - pigment(low))


def gradient(low: Colour, high: Colour, cells: int) -> Array:
    """A picture (3, cells, cells) fading downwards."""
    down = np.linspace(0, 1, cells, dtype=np.float32)[:, None]
    return between(low, high, np.broadcast_to(down, (cells, cells)))


def sky(rng: np.random.Generator, size: int) -> Array:
    """Open sky with soft clouds and, often, hills or tree tops low down."""
    top, bottom = SKIES[rng.integers(len(SKIES))]
    air = gradient(top, bottom, size)
    cloud = noise(rng, (5, 4), size) + 0.5 * noise(rng, (12, 9), size) + 0.25 * noise(rng, (26, 20), size)
    amount = np.clip((cloud - rng.uniform(-0.2, 0.7)) / np.float32(1.6), 0, 0.85)
    air = air + amount * (pigment((0.97, 0.96, 0.95)) - air)
    if rng.random() < 0.65:
        season = SEASONS[rng.integers(len(SEASONS))]
        for k, height in enumerate(sorted(rng.uniform(0.55, 0.95, 2))):
            ridge = height + 0.05 * wobble(rng, 6, size) + 0.015 * wobble(rng, 22, size)
            below = np.clip((np.linspace(0, 1, size, dtype=np.float32)[:, None] - ridge) * 18 + 0.5, 0, 1)
            haze = between(bottom, season[1], np.array(0.45 + 0.35 * k, dtype=np.float32))
            air = air + below * (haze - air)
    return air


def foliage(rng: np.random.Generator, size: int) -> Array:
    """Leaves near and far, with discs of light between them."""
    season = SEASONS[rng.integers(len(SEASONS))]
    far = Canvas(mottled(rng, season, FAR))
    scatter_leaves(rng, far, season, count=16, length=(0.15, 0.38))
    middle = Canvas(enlarged(far.image, MIDDLE))
    scatter_leaves(rng, middle, season, count=int(rng.integers(4, 12)), length=(0.10, 0.26))
    scatter_lights(rng, middle, season[-1], count=int(rng.integers(3, 14)))
    return enlarged(middle.image, size) * (1 + 0.03 * noise(rng, (40, 40), size))


def water(rng: np.random.Generator, size: int) -> Array:
    """A water surface: ripples that lie flat and grow nearer, glints, blurred reeds."""
    top, bottom = WATERS[rng.integers(len(WATERS))]
    near = Canvas(gradient(top, bottom, MIDDLE))
    season = SEASONS[rng.integers(len(SEASONS))]
    for _ in range(int(rng.integers(0, 14))):
        x, lean = rng.uniform(0, 1), rng.normal(0, 0.10)
        line = ((x, 1.05), (x + lean / 2, 0.7), (x + lean, rng.uniform(0.1, 0.6)))
        near.fill(stroke(line, (0.022, 0.018, 0.005)), season[rng.integers(3)], opacity=0.75)
    picture = enlarged(near.image, size)
    ripple = (
        0.6 * noise(rng, (15, 4), size) + 0.5 * noise(rng, (32, 8), size) + 0.3 * noise(rng, (64, 14), size)
    )
    picture = picture * (1 + 0.09 * ripple)
    glint = np.clip(ripple - np.float32(1.15), 0, 1) * np.float32(rng.uniform(0.1, 0.7))
    return picture + glint * (np.float32(1) - picture)


def woodland(rng: np.random.Generator, size: int) -> Array:
    """Trunks and boughs one behind the other, the light coming through."""
    season = SEASONS[rng.integers(len(SEASONS))]
    far = Canvas(mottled(rng, season[1:], FAR))
    scatter_trunks(rng, far, season, count=5, width=(0.03, 0.10))
    middle = Canvas(enlarged(far.image, MIDDLE))
    scatter_lights(rng, middle, season[-1], count=int(rng.integers(2, 9)))
    scatter_trunks(rng, middle, season, count=int(rng.integers(1, 5)), width=(0.02, 0.07))
    return enlarged(middle.image, size) * (1 + 0.03 * noise(rng, (50, 24), size))


def mottled(rng: np.random.Generator, season: tuple[Colour, ...], cells: int) -> Array:
    """Patches of shade and light in the colours of a season, brighter towards the top."""
    value = 0.42 + 0.20 * noise(rng, (5, 5), cells) + 0.10 * noise(rng, (12, 12), cells)
    value += np.linspace(rng.uniform(0, 0.3), -0.15, cells, dtype=np.float32)[:, None]
    place = np.clip(value, 0, 0.999) * (len(season) - 1)
    index = place.astype(np.int64)
    colours = np.array(season, dtype=np.float32).T
    return colours[:, index] + (place - index) * (colours[:, index + 1] - colours[:, index])


def scatter_leaves(
    rng: np.random.Generator,
    canvas: Canvas,
    season: tuple[Colour, ...],
    *,
    count: int,
    length: tuple[float, float],
) -> None:
    """Blurred leaves all over the frame, `count` in all, in bunches of one colour."""
    for bunch in range(0, count, 3):
        canvas.fill(
            joined([stray_leaf(rng, rng.uniform(*length)) for _ in range(min(3, count - bunch))]),
            season[rng.integers(len(season))],
            opacity=rng.uniform(0.4, 0.9),
        )


def stray_leaf(rng: np.random.Generator, length: float) -> Array:
    outline = leaf(length, length * rng.uniform(0.3, 0.5), bend=length * 0.08)
    return turned(outline, rng.uniform(0, 2 * np.pi)) + rng.uniform(-0.1, 1.1, 2).astype(np.float32)


def scatter_lights(rng: np.random.Generator, canvas: Canvas, colour: Colour, *, count: int) -> None:
    """Discs of light, as a lens makes them of bright points out of focus."""
    bright = tuple(float(0.45 + 0.55 * c) for c in colour)
    for _ in range(count):
        radius = rng.uniform(0.025, 0.075)
        centre = (rng.uniform(0, 1), rng.uniform(0, 0.9))
        canvas.fill(
            oval(centre, (radius, radius)), (bright[0], bright[1], bright[2]), opacity=rng.uniform(0.12, 0.5)
        )


def scatter_trunks(
    rng: np.random.Generator,
    canvas: Canvas,
    season: tuple[Colour, ...],
    *,
    count: int,
    width: tuple[float, float],
) -> None:
    bark = np.array((0.27, 0.22, 0.18), dtype=np.float32)
    for _ in range(count):
        x, lean, wide = rng.uniform(-0.1, 1.1), rng.normal(0, 0.25), rng.uniform(*width)
        line = ((x, -0.05), (x + lean / 2 + rng.normal(0, 0.03), 0.5), (x + lean, 1.05))
        tint = bark + rng.uniform(0, 0.6) * (
            np.array(season[rng.integers(len(season))], dtype=np.float32) - bark
        )
        colour = (float(tint[0]), float(tint[1]), float(tint[2]))
        canvas.fill(stroke(line, (wide * 0.8, wide * 0.9, wide)), colour, opacity=rng.uniform(0.5, 0.95))
