"""From the painted scene to the photograph: light, blur, grain, and eight bits.

The last step for every picture, and the same for every species.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dprotonet.data.birds.canvas import Array, blurred, enlarged, pigment


@dataclass(frozen=True)
class Lens:
    """One way of taking the picture."""

    light: Array  # (n, n) over the frame, coarse
    tint: Array  # (3, 1, 1)
    lift: float  # brightens the middle tones if positive, darkens them if negative
    blur: float  # in frame units
    grain: float
    grain_seed: int

    def photograph(self, image: Array) -> npt.NDArray[np.uint8]:
        """The scene (3, S, S) in [0, 1] as bytes of the same shape."""
        size = image.shape[-1]
        picture = np.clip(image * (enlarged(self.light, size) * self.tint), 0, 1)
        picture += np.float32(self.lift) * picture * (1 - picture)
        if self.blur * size > 0.3:
            picture = blurred(picture, self.blur * size)
        rng = np.random.Generator(np.random.Philox(self.grain_seed))
        picture += np.float32(self.grain) * rng.standard_normal((size, size), dtype=np.float32)
        return np.clip(picture * 255 + np.float32(0.5), 0, 255).astype(np.uint8)


def draw_lens(rng: np.random.Generator) -> Lens:
    """A lens and a light at random: exposure, warmth, a slope of light across the frame."""
    exposure, warmth = rng.uniform(0.88, 1.10), rng.normal(0.015, 0.045)
    slope = rng.uniform(-0.15, 0.15, 2)
    x = np.linspace(-1, 1, 6)
    light = 1 + slope[0] * x[None, :] + slope[1] * x[:, None] - 0.06 * (x[None, :] ** 2 + x[:, None] ** 2)
    return Lens(
        light=(exposure * light).astype(np.float32),
        tint=pigment((1 + warmth, 1.0, 1 - warmth)),
        lift=rng.uniform(-0.20, 0.36),
        blur=max(0.0, rng.uniform(-0.002, 0.0045)),
        grain=rng.uniform(0.0, 0.014),
        grain_seed=int(rng.integers(2**31)),
    )
