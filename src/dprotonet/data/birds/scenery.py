"""What stands near the bird: its perch, things that draw the eye for no reason, leaves in front of it.

Like the backdrop it is drawn from the scene's own random numbers; the perch also follows the pose, never the
species.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dprotonet.data.birds.backdrop import SEASONS
from dprotonet.data.birds.canvas import Array, Canvas, Colour, Patch, pigment
from dprotonet.data.birds.outline import joined, leaf, oval, smooth, stroke, turned
from dprotonet.data.birds.pose import FEET, Pose
from dprotonet.data.birds.species import COLOURS

BARKS: tuple[Colour, ...] = ((0.36, 0.28, 0.21), (0.47, 0.42, 0.36), (0.30, 0.25, 0.22), (0.52, 0.40, 0.29))
STONES: tuple[Colour, ...] = ((0.50, 0.50, 0.49), (0.42, 0.40, 0.38), (0.60, 0.56, 0.50))
GREENERY = SEASONS[:4]  # leaves close by; the winter season is for what lies far off
# Distractors wear the colours of the birds' own parts, so that a colour alone proves nothing.
LURES = ("crimson", "gold", "coral", "azure", "white", "rust", "ink", "rose", "ember", "sky", "lemon", "plum")


def rounded(
    canvas: Canvas, outline: Array, colour: Colour, *, depth: float = 0.35, soft: float = 0.0
) -> Patch:
    """Paint an outline as if lit from above: bright at its upper edge, dark at its lower one."""
    patch = canvas.cover(outline, soft=soft)
    y = canvas.grid(patch)[..., 1]
    low, high = outline[:, 1].min(), outline[:, 1].max()
    light = 1 + np.float32(depth) * (np.float32(0.45) - (y - low) / max(high - low, np.float32(1e-3)))
    canvas.paint(patch, pigment(colour) * light)
    return patch


def draw_perch(rng: np.random.Generator, canvas: Canvas, pose: Pose) -> None:
    """Something to stand on, under the feet: mostly a branch, at times a stone."""
    kinds: tuple[Callable[[np.random.Generator, Canvas, Array], None], ...] = (branch, branch, branch, stone)
    feet = pose.to_frame(np.array(FEET, dtype=np.float32))
    kinds[rng.integers(len(kinds))](rng, canvas, feet)


def branch(rng: np.random.Generator, canvas: Canvas, feet: Array) -> None:
    """A branch through the feet, with bark, twigs and leaves."""
    wide, lean, bow = rng.uniform(0.040, 0.085), rng.normal(0, 0.10), rng.normal(0, 0.03)
    x = np.linspace(-0.9, 0.9, 13, dtype=np.float32)
    y = x * np.float32(lean) + np.float32(bow) * x * x + np.float32(wide * 0.42)
    y = y + 0.004 * rng.standard_normal(13).astype(np.float32)
    line = np.stack([x, y], axis=1) + feet
    widths = wide * np.linspace(1.15, 0.75, 13)[:: 1 if rng.random() < 0.5 else -1]
    season = GREENERY[rng.integers(len(GREENERY))]
    for _ in range(int(rng.integers(0, 5))):
        twig(rng, canvas, line[rng.integers(1, 12)], season)
    bark(rng, canvas, line, widths)


def bark(rng: np.random.Generator, canvas: Canvas, line: Array, widths: npt.NDArray[np.floating]) -> None:
    """The branch itself: round, with furrows along it."""
    colour = pigment(BARKS[rng.integers(len(BARKS))])
    patch = canvas.cover(stroke(line, widths))
    place = canvas.grid(patch)
    middle = np.interp(place[..., 0], line[:, 0], line[:, 1]).astype(np.float32)
    half = np.interp(place[..., 0], line[:, 0], widths / 2).astype(np.float32)
    across = (place[..., 1] - middle) / half
    grain = rng.standard_normal((17, 70), dtype=np.float32)
    row = np.clip((across + 1.2) * 7, 0, 16).astype(np.int64)
    furrow = (
        grain[row, (place[..., 0] * 60).astype(np.int64) % 70] * 0.6
        + grain[row, (place[..., 0] * 17).astype(np.int64)]
    )
    light = 1.0 - 0.38 * across - 0.18 * across**2 + 0.055 * furrow
    canvas.paint(patch, colour * light)


def twig(rng: np.random.Generator, canvas: Canvas, root: Array, season: tuple[Colour, ...]) -> None:
    """A thin side shoot with a few leaves."""
    angle = rng.uniform(-2.8, -0.3) if rng.random() < 0.5 else rng.uniform(0.3, 2.8)
    length = rng.uniform(0.10, 0.22)
    end = root + turned(np.array((length, 0), dtype=np.float32), angle)
    canvas.fill(stroke(np.stack([root, (root + end) / 2, end]), (0.014, 0.010, 0.006)), (0.33, 0.27, 0.18))
    for share in rng.uniform(0.4, 1.0, int(rng.integers(1, 4))):
        place = root + (end - root) * np.float32(share)
        draw_leaf(
            rng, canvas, place, angle + rng.normal(0, 0.8), colour=season[rng.integers(1, len(season) - 1)]
        )


def draw_leaf(
    rng: np.random.Generator,
    canvas: Canvas,
    place: Array,
    angle: float,
    *,
    colour: Colour,
    length: float = 0.10,
    soft: float = 0.0,
) -> None:
    """A leaf with its midrib and a brighter half."""
    length = length * rng.uniform(0.8, 1.3)
    shape = leaf(length, length * rng.uniform(0.36, 0.52), bend=length * rng.normal(0, 0.10))
    tint = pigment(colour) * np.float32(rng.uniform(0.85, 1.15))
    patch = canvas.cover(turned(shape, angle) + place, soft=soft)
    local = turned(canvas.grid(patch) - place, -angle)
    rib = np.clip(1 - np.abs(local[..., 1]) / np.float32(0.012 * length / 0.1), 0, 1)
    veins = np.sin((local[..., 0] + np.abs(local[..., 1])) * np.float32(30 / length))
    light = 1 + 0.08 * np.sign(local[..., 1]) + 0.22 * rib + 0.035 * veins + 0.9 * local[..., 0]
    canvas.paint(patch, tint * light)


def stone(rng: np.random.Generator, canvas: Canvas, feet: Array) -> None:
    """A boulder whose top is under the feet."""
    angle = np.linspace(0, 2 * np.pi, 14, endpoint=False)
    wide, tall = rng.uniform(0.30, 0.50), rng.uniform(0.22, 0.4)
    bumps = 1 + 0.05 * rng.standard_normal(14)
    points = np.stack([np.cos(angle) * wide * bumps, np.sin(angle) * tall * bumps], axis=1).astype(np.float32)
    top = points[np.abs(points[:, 0]).argsort()[:4], 1].min()
    outline = smooth(points + feet - np.array((0, top), dtype=np.float32))
    colour = STONES[rng.integers(len(STONES))]
    patch = canvas.cover(outline)
    place = canvas.grid(patch)
    grain = rng.standard_normal((48, 48), dtype=np.float32)
    speck = sum(
        w * grain[(place[..., 1] * k).astype(np.int64) % 48, (place[..., 0] * k).astype(np.int64) % 48]
        for k, w in ((90, 0.035), (40, 0.025), (170, 0.03))
    )
    light = 1.12 - 1.5 * np.clip(place[..., 1] - feet[1], 0, 0.5) + speck
    canvas.paint(patch, pigment(colour) * light)


def draw_distractors(rng: np.random.Generator, canvas: Canvas) -> None:
    """Berries, blossoms and butterflies, anywhere behind the bird."""
    kinds: tuple[Callable[[np.random.Generator, Canvas, Array], None], ...] = (berries, blossom, butterfly)
    for _ in range(int(rng.integers(0, 5))):
        place = rng.uniform(0.03, 0.97, 2).astype(np.float32)
        kinds[rng.integers(len(kinds))](rng, canvas, place)


def lure(rng: np.random.Generator) -> Colour:
    return COLOURS[LURES[rng.integers(len(LURES))]]


def berries(rng: np.random.Generator, canvas: Canvas, place: Array) -> None:
    """A bunch of shining berries on a twig that hangs from above."""
    colour, soft = lure(rng), rng.uniform(0, 0.005)
    root = np.array((place[0] + rng.normal(0, 0.12), -0.02), dtype=np.float32)
    hang = stroke(np.stack([root, (root * 0.4 + place * 0.6) + (0.03, 0), place]), (0.012, 0.008, 0.005))
    centres = (place + rng.normal(0, 0.030, (int(rng.integers(3, 7)), 2))).astype(np.float32)
    stems = [stroke(np.stack([place, c]), (0.005, 0.005)) for c in centres]
    canvas.paint(canvas.cover(joined([hang, *stems]), soft=0.004), (0.34, 0.29, 0.22))
    radii = rng.uniform(0.014, 0.023, len(centres))
    balls = [oval((x, y), (r, r), steps=16) for (x, y), r in zip(centres, radii, strict=True)]
    glints = [
        oval((x - r * 0.3, y - r * 0.35), (r * 0.3,) * 2, steps=8)
        for (x, y), r in zip(centres, radii, strict=True)
    ]
    rounded(canvas, joined(balls), colour, depth=0.7, soft=soft)
    canvas.fill(joined(glints), (1, 1, 1), opacity=0.65)


def blossom(rng: np.random.Generator, canvas: Canvas, place: Array) -> None:
    """A flower of five to eight petals on a stem from below."""
    colour, petals, size, soft = (
        lure(rng),
        int(rng.integers(5, 9)),
        rng.uniform(0.035, 0.07),
        rng.uniform(0, 0.007),
    )
    root = np.array((place[0] + rng.normal(0, 0.10), 1.05), dtype=np.float32)
    stem = stroke(np.stack([place, place * 0.5 + root * 0.5 + (0.015, 0), root]), (0.007, 0.009, 0.012))
    canvas.paint(canvas.cover(stem, soft=0.003), (0.32, 0.43, 0.22))
    angles = rng.uniform(0, 2 * np.pi) + 2 * np.pi * np.arange(petals) / petals
    rounded(
        canvas,
        joined([turned(leaf(size, size * 0.7), a) + place for a in angles]),
        colour,
        depth=0.35,
        soft=soft,
    )
    rounded(canvas, oval((place[0], place[1]), (size * 0.24,) * 2), COLOURS["gold"], soft=soft)


def butterfly(rng: np.random.Generator, canvas: Canvas, place: Array) -> None:
    """Two pairs of wings and a thin body."""
    colour, turn, size, soft = (
        lure(rng),
        rng.uniform(0, 2 * np.pi),
        rng.uniform(0.045, 0.075),
        rng.uniform(0, 0.006),
    )
    spread = ((-0.7, 1.0), (0.7, 1.0), (-2.2, 0.75), (2.2, 0.75))
    wings = [turned(leaf(size * share, size * share * 0.7), turn + angle) + place for angle, share in spread]
    rounded(canvas, joined(wings), colour, depth=0.4, soft=soft)
    body = turned(oval((0, 0), (size * 0.5, size * 0.07)), turn) + place
    canvas.fill(body, (0.15, 0.13, 0.12))


def draw_occluders(rng: np.random.Generator, canvas: Canvas) -> None:
    """Leafy sprigs before the bird, sharp or out of focus, now and then over a part of it."""
    for _ in range(int(rng.choice(4, p=(0.22, 0.38, 0.28, 0.12)))):
        sprig(rng, canvas)


def sprig(rng: np.random.Generator, canvas: Canvas) -> None:
    """A shoot that grows into the frame from its edge, with leaves to both sides."""
    season = GREENERY[rng.integers(len(GREENERY))]
    around = rng.uniform(0, 2 * np.pi)
    inward = np.array((np.cos(around), np.sin(around)), dtype=np.float32)
    root = 0.5 - inward * np.float32(0.72)
    angle, length = around + rng.normal(0, 0.45), rng.uniform(0.22, 0.62)
    end = root + turned(np.array((length, 0), dtype=np.float32), angle)
    sag = np.array((0, rng.normal(0, 0.03)), dtype=np.float32)
    soft = rng.uniform(0.003, 0.008) if rng.random() < 0.45 else 0.0
    stem = canvas.cover(
        stroke(np.stack([root, (root + end) / 2 + sag, end]), (0.013, 0.010, 0.005)), soft=soft
    )
    canvas.paint(stem, season[0])
    colour = season[rng.integers(1, len(season) - 1)]
    for k, share in enumerate(np.linspace(0.35, 1.0, int(2 + length * 9))):
        place = root + (end - root) * np.float32(share) + sag * np.float32(4 * share * (1 - share) * 0.5)
        lean = 0.0 if share == 1.0 else (0.85 if k % 2 else -0.85) + rng.normal(0, 0.15)
        draw_leaf(rng, canvas, place, angle + lean, colour=colour, length=0.105, soft=soft)
