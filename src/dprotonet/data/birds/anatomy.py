"""Draws one bird: species and pose in, painted canvas out.

The parts are painted from the far side to the near one, an absent part not at all: what lies behind it shows,
plumage or background. What is no part, such as the outline of the body,
the light and the texture, depends on the pose alone; so two siblings in one pose differ in their deciding
part and nowhere else.
"""

from dataclasses import dataclass

import numpy as np

from dprotonet.data.birds import shapes
from dprotonet.data.birds.canvas import Array, Canvas, Patch, pigment
from dprotonet.data.birds.markings import breast_pattern, mixed, ramp, wing_bar_pattern, wing_pattern
from dprotonet.data.birds.outline import oval, smooth, stroke
from dprotonet.data.birds.pose import Pose
from dprotonet.data.birds.species import ABSENT, COLOURS, PARTS, Species

BODY = 1  # owner of what is bird but no part
OWNER = {part: BODY + 1 + k for k, part in enumerate(PARTS)}


@dataclass(frozen=True)
class Painter:
    """A canvas, a pose and a species: all that drawing one bird needs."""

    canvas: Canvas
    pose: Pose
    species: Species

    def draw(self) -> None:
        """Paint the whole bird."""
        self.leg(near=False)
        self.tail()
        self.leg(near=True)
        self.crest()
        self.beak()
        body = self.body()
        self.eye_ring(body)
        self.eye()
        self.wing()

    def present(self, part: str) -> bool:
        return self.species.variants[part].form != ABSENT

    def colour(self, part: str) -> Array:
        """The colour (3, 1, 1) of a part on this individual."""
        return self.toned(COLOURS[self.species.variants[part].colour])

    def toned(self, colour: tuple[float, float, float]) -> Array:
        return pigment(colour) * pigment(self.pose.tone)

    def cover(self, outline: Array, *, soft: float = 0.0) -> Patch:
        return self.canvas.cover(self.pose.to_frame(outline), soft=soft * self.pose.scale)

    def space(self, patch: Patch) -> Array:
        """The places (h, w, 2) of a patch's pixels in bird space."""
        return self.pose.to_bird(self.canvas.grid(patch))

    def dome(self, space: Array, centre: tuple[float, float], radius: float) -> Array:
        """Light on a round form (h, w): bright towards the light, dim at the far rim."""
        side = -self.pose.light if self.pose.mirror else self.pose.light
        toward = np.float32(np.sin(side)), np.float32(-np.cos(side))
        x, y = ((space[..., k] - np.float32(centre[k])) / np.float32(radius) for k in (0, 1))
        facing = np.clip(x * toward[0] + y * toward[1], -1.2, 1.2)
        return 1 + np.float32(0.20) * facing - np.float32(0.13) * np.clip(x * x + y * y, 0, 1.5)

    def plain(self, outlines: list[Array], part: str, *, shade: float = 1.0, texture: float = 0.10) -> None:
        """Paint simple shapes of one part: its colour, a soft light from above, a hint of feathers."""
        for outline in outlines:
            patch = self.cover(outline)
            if not patch.alpha.size:
                continue
            space = self.space(patch)
            middle, reach = outline.mean(axis=0), np.ptp(outline, axis=0).max() / 2
            light = self.dome(space, (float(middle[0]), float(middle[1])), float(reach) + 0.01)
            light = light + np.float32(texture) * self.pose.feathers(space)
            self.canvas.paint(patch, self.colour(part) * (light * np.float32(shade)), OWNER[part])

    def leg(self, *, near: bool) -> None:
        if not self.present("legs"):
            return
        outline = shapes.leg(near, self.species.variants["legs"].form)
        self.plain([outline], "legs", shade=1.0 if near else 0.78, texture=0.03)

    def crest(self) -> None:
        if self.present("crest"):
            outlines = [self.pose.head(o) for o in shapes.crest(self.species.variants["crest"].form)]
            self.plain(outlines, "crest", texture=0.16)

    def tail(self) -> None:
        if not self.present("tail"):
            return
        outline = smooth(shapes.TAIL[self.species.variants["tail"].form])
        patch = self.cover(self.pose.tail(outline))
        if not patch.alpha.size:
            return
        space = self.space(patch)
        # Lines that fan out from the rump: the edges of the tail feathers.
        along = self.pose.tail(np.array([(0.0, 0.0), (1.0, 0.0)], dtype=np.float32))
        axis, away = along[1] - along[0], space - along[0]
        length = axis[0] * away[..., 0] + axis[1] * away[..., 1]
        slant = (axis[0] * away[..., 1] - axis[1] * away[..., 0]) / np.maximum(length + 0.12, 0.05)
        edge = np.abs((slant * np.float32(16)) % 1 - np.float32(0.5)) * 2
        light = 0.90 + 0.22 * edge**3 + 0.08 * self.pose.feathers(space) - 0.25 * ramp(-length, -0.10, 0.05)
        self.canvas.paint(patch, self.colour("tail") * light, OWNER["tail"])

    def beak(self) -> None:
        if not self.present("beak"):
            return
        points = np.array(shapes.BEAK[self.species.variants["beak"].form], dtype=np.float32)
        self.plain([self.pose.head(smooth(points))], "beak", texture=0.03)
        tip = points[points[:, 0].argmax()]
        middle = (points[0] + points[-1]) / 2
        bend = (points[1] + points[-2]) / 2
        mouth = stroke(np.stack([middle, bend, bend + (tip - bend) * 0.8]), (0.007, 0.006, 0.002))
        patch = self.cover(self.pose.head(mouth))
        self.canvas.paint(patch, self.colour("beak") * np.float32(0.5), OWNER["beak"])

    def body(self) -> Array:
        """Paint head and trunk with breast and crown; gives the coverage (S, S) of all of it."""
        patch = self.cover(self.pose.body())
        full = np.zeros((self.canvas.size, self.canvas.size), dtype=np.float32)
        full[patch.rows, patch.cols] = patch.alpha
        space = self.space(patch)
        colour = self.toned(COLOURS[self.species.plumage])
        owners = []
        if self.present("breast"):
            breast = self.marking(patch, self.breast_outline(), soft=0.006)
            pattern = breast_pattern(
                self.species.variants["breast"].form, space, self.colour("breast"), self.toned
            )
            colour = mixed(colour, pattern, breast)
            owners.append(("breast", breast))
        if self.present("crown"):
            crown = self.marking(
                patch, self.pose.head(shapes.crown(self.species.variants["crown"].form)), soft=0.004
            )
            colour = mixed(colour, self.colour("crown"), crown)
            owners.append(("crown", crown))
        self.canvas.paint(patch, colour * self.body_light(space), BODY)
        for part, alpha in owners:
            self.canvas.claim(Patch(patch.rows, patch.cols, alpha * patch.alpha), OWNER[part])
        return full

    def breast_outline(self) -> Array:
        points = np.array(shapes.BREAST, dtype=np.float32)
        points[:2] = self.pose.head(points[:2])
        return smooth(points)

    def marking(self, on: Patch, outline: Array, *, soft: float) -> Array:
        """The coverage (h, w) of an outline on the box of another patch."""
        patch = self.cover(outline, soft=soft)
        full = np.zeros((self.canvas.size, self.canvas.size), dtype=np.float32)
        full[patch.rows, patch.cols] = patch.alpha
        return full[on.rows, on.cols]

    def body_light(self, space: Array) -> Array:
        """Light (h, w) on head and trunk, two round forms that meet at the neck, with combed feathers."""
        head = self.pose.head(np.array([(0.13, -0.18)], dtype=np.float32))[0]
        trunk_light = self.dome(space, (0.0, 0.03), 0.22)
        head_light = self.dome(space, (float(head[0]), float(head[1])), 0.10)
        away = np.hypot(space[..., 0] - head[0], space[..., 1] - head[1])
        light = mixed(trunk_light, head_light, ramp(-away, -0.16, -0.07))
        return light + 0.07 * self.pose.feathers(space) + 0.045 * self.pose.feathers(space, fine=(9, 26))

    def eye_ring(self, body: Array) -> None:
        if not self.present("eye_ring"):
            return
        for outline in shapes.eye_ring(self.species.variants["eye_ring"].form):
            patch = self.cover(self.pose.head(outline)).within(body)
            self.canvas.paint(patch, self.colour("eye_ring"), OWNER["eye_ring"])

    def eye(self) -> None:
        x, y = shapes.EYE
        looks = (
            ((x, y), 0.0195, (0.05, 0.04, 0.05)),
            ((x + 0.002, y + 0.004), 0.013, (0.24, 0.14, 0.10)),
            ((x + 0.007, y - 0.007), 0.0055, (1.0, 1.0, 0.98)),
        )
        for centre, radius, colour in looks:
            outline = self.pose.head(oval(centre, (radius, radius)))
            self.canvas.paint(self.cover(outline), colour, BODY)

    def wing(self) -> None:
        """Paint the folded wing and the bars on it; without a wing there are no bars."""
        if not self.present("wing"):
            return
        outline = smooth(shapes.WING, steps=8)
        patch = self.cover(outline)
        space = self.space(patch)
        variant, bar = self.species.variants["wing"], self.species.variants["wing_bar"]
        colour = wing_pattern(variant.form, space, self.colour("wing"))
        light = self.dome(space, (-0.04, 0.02), 0.24) + 0.05 * self.pose.feathers(space, fine=(2, 14))
        if self.present("wing_bar"):
            bars = wing_bar_pattern(bar.form, space)
            colour = mixed(colour, self.colour("wing_bar"), bars)
        self.canvas.paint(patch, colour * light, OWNER["wing"])
        if self.present("wing_bar"):
            self.canvas.claim(Patch(patch.rows, patch.cols, bars * patch.alpha), OWNER["wing_bar"])
