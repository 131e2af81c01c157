"""How one bird stands in one picture: nuisance only, drawn without any knowledge of the species.

Bird space: the bird faces right, y points down, one unit is the width of the frame at scale 1, the origin
lies in the middle of the body. A pose bends the bird (head, tail, belly) and then places it in the frame.
"""

from dataclasses import dataclass

import numpy as np

from dprotonet.data.birds.canvas import Array, noise
from dprotonet.data.birds.outline import smooth, turned

NECK = (0.10, -0.11)
RUMP = (-0.18, 0.085)
FEET = (0.012, 0.262)
TEXTURE = 192  # side of the feather texture
BUMP = 6  # its pixels for each bump

HEAD_POINTS = (
    (0.045, -0.165),
    (0.072, -0.225),
    (0.125, -0.262),
    (0.180, -0.250),
    (0.214, -0.207),
    (0.214, -0.160),
    (0.193, -0.115),
)
TRUNK_POINTS = (
    (0.188, -0.060),
    (0.200, 0.000),
    (0.180, 0.070),
    (0.120, 0.130),
    (0.030, 0.166),
    (-0.070, 0.165),
    (-0.150, 0.145),
    (-0.215, 0.128),
    (-0.215, 0.085),
    (-0.155, 0.020),
    (-0.080, -0.055),
    (-0.005, -0.115),
)


@dataclass(frozen=True)
class Pose:
    """Where and how a bird stands, and the light on it."""

    mirror: bool
    turn: float  # the whole bird, radians
    scale: float
    place: tuple[float, float]  # of the origin, in frame units
    head_turn: float
    tail_turn: float
    plump: float
    light: float  # direction the light comes from, radians away from straight above
    tone: tuple[float, float, float]  # this individual's colours against those of its species
    texture: Array  # (TEXTURE, TEXTURE) noise for feathers

    def to_frame(self, points: Array) -> Array:
        """Bird space to frame units, (..., 2)."""
        flip = np.array([-1 if self.mirror else 1, 1], dtype=np.float32)
        return turned(points * flip, self.turn) * np.float32(self.scale) + np.array(
            self.place, dtype=np.float32
        )

    def to_bird(self, points: Array) -> Array:
        """Frame units to bird space, (..., 2)."""
        flip = np.array([-1 if self.mirror else 1, 1], dtype=np.float32)
        back = (points - np.array(self.place, dtype=np.float32)) / np.float32(self.scale)
        return turned(back, -self.turn) * flip

    def head(self, points: Array) -> Array:
        """Points of the head, moved as the head is."""
        return turned(np.asarray(points, dtype=np.float32), self.head_turn, NECK)

    def tail(self, points: Array) -> Array:
        """Points given along the tail (x from the rump outwards), put in their place."""
        rump = np.array(RUMP, dtype=np.float32)
        return turned(np.asarray(points, dtype=np.float32), np.pi - 0.52 + self.tail_turn) + rump

    def body(self) -> Array:
        """The outline of head and trunk in bird space, its edge a little ragged with feathers."""
        trunk = np.array(TRUNK_POINTS, dtype=np.float32)
        trunk[:, 1] *= np.where(trunk[:, 1] > 0.05, np.float32(self.plump), np.float32(1))
        curve = smooth(np.concatenate([self.head(np.array(HEAD_POINTS)), trunk]), steps=8)
        ragged = 1 + 0.006 * self.texture[0, np.arange(len(curve)) * BUMP % TEXTURE]
        return curve * ragged[:, None].astype(np.float32)

    def feathers(self, space: Array, *, fine: tuple[float, float] = (3.0, 9.0), along: float = 0.6) -> Array:
        """Feather texture about zero at places (..., 2) of bird space, combed in the direction `along`."""
        combed = turned(space, -along) * (np.array(fine, dtype=np.float32) * np.float32(16 * BUMP / 2))
        index = np.floor(combed).astype(np.int64) % TEXTURE
        return self.texture[index[..., 1], index[..., 0]]


def draw_pose(rng: np.random.Generator) -> Pose:
    """A pose at random."""
    scale = rng.uniform(0.88, 1.24)
    slack = max(0.03, 0.50 - 0.40 * scale)
    mirror = bool(rng.random() < 0.5)
    shift = -0.05 if mirror else 0.05  # the origin lies before the middle between beak and tail
    place = (0.5 + shift + rng.uniform(-slack, slack), 0.515 + rng.uniform(-slack, slack) * 0.8)
    tone = rng.uniform(0.93, 1.07) * rng.uniform(0.965, 1.035, 3)
    return Pose(
        mirror=mirror,
        turn=float(np.clip(rng.normal(0, 0.17), -0.42, 0.42)),
        scale=scale,
        place=place,
        head_turn=rng.uniform(-0.38, 0.34),
        tail_turn=rng.uniform(-0.38, 0.32),
        plump=rng.uniform(0.88, 1.14),
        light=rng.uniform(-0.9, 0.9),
        tone=(float(tone[0]), float(tone[1]), float(tone[2])),
        texture=noise(rng, (TEXTURE // BUMP, TEXTURE // BUMP), TEXTURE),
    )
