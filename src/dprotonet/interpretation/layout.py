"""How a layer's output holds the places of an image: as a map, channels first or last, or as tokens.

Of a volume: as a map with a depth.
"""

import math
from dataclasses import dataclass

from torch import Tensor

_MIN_SIDE = 4  # below that a map says too little about places
_MAX_PREFIX = 8  # class and register tokens in front of a transformer's patches
_ASPECT = 0.4  # largest difference of log aspect ratio between a map and its image
_TOKEN_ASPECT = 0.1


@dataclass(frozen=True)
class Layout:
    """`kind` is "first" (B, C, h, w), "last" (B, h, w, C) or "tokens" (B, prefix + h·w, C).

    The output of a network for volumes has a depth in front of its height.
    """

    height: int
    width: int
    kind: str
    prefix: int = 0

    def channels_first(self, output: Tensor) -> Tensor:
        """The output as (B, C, h, w), of a volume (B, C, d, h, w)."""
        if self.kind == "tokens":
            output = output[:, self.prefix :].unflatten(1, (self.height, self.width))
        return output if self.kind == "first" else output.movedim(-1, 1)

    def places(self, output: Tensor) -> Tensor:
        """Summed over channels, (B, h, w) or (B, d, h, w)."""
        return self.channels_first(output).sum(dim=1)


def layout_of(output: Tensor, image: tuple[int, ...], batch: int) -> Layout | None:
    """The layout of an output for `batch` images of that size, or None if it has no places.

    Tokens of a volume are not looked for: how many lie along its depth, their number does not tell.
    """
    if len(image) == 3:
        return _of_volume(output, image, batch)
    if output.ndim not in (3, 4) or len(output) != batch or _is_attention(output):
        return None
    if output.ndim == 3:
        return _of_tokens(output.shape[1], image)
    return _of_map(output, image)


def _of_volume(output: Tensor, image: tuple[int, ...], batch: int) -> Layout | None:
    return _of_map(output, image[1:]) if output.ndim == 5 and len(output) == batch else None


def _of_map(output: Tensor, image: tuple[int, ...]) -> Layout | None:
    *_, before, height, width = output.shape
    readings = [Layout(height, width, "first"), Layout(before, height, "last")]
    fitting = [item for item in readings if _fits(item.height, item.width, image, _ASPECT)]
    return min(fitting, key=lambda item: _stretch(item.height, item.width, image), default=None)


def _of_tokens(count: int, image: tuple[int, ...]) -> Layout | None:
    for prefix in range(min(_MAX_PREFIX + 1, count)):
        height = max(1, round(math.sqrt((count - prefix) * image[0] / image[1])))
        width, rest = divmod(count - prefix, height)
        if not rest and _fits(height, width, image, _TOKEN_ASPECT):
            return Layout(height, width, "tokens", prefix)
    return None


def _fits(height: int, width: int, image: tuple[int, ...], tolerance: float) -> bool:
    if min(height, width) < _MIN_SIDE:
        return False
    return _stretch(height, width, image) <= tolerance


def _stretch(height: int, width: int, image: tuple[int, ...]) -> float:
    return abs(math.log(height / width) - math.log(image[0] / image[1]))


def _is_attention(output: Tensor) -> bool:
    """Weights of tokens for tokens (B, heads, N, N) look like a map and are none; each row sums to 1."""
    if output.ndim != 4 or output.shape[2] != output.shape[3]:
        return False
    rows = output.detach().float().sum(dim=-1)
    return bool((rows - 1).abs().max() < 1e-2 and output.min() >= 0)
