"""Numbers of more than eight bits as the grey levels a person would see."""

from collections.abc import Iterable

import numpy as np


def eight_bits(values: np.ndarray, known_range: tuple[float, float] | None = None) -> np.ndarray:
    """Any finite or infinite numbers as uint8; by the range of the image they are of, or their own."""
    black, white = known_range or grey_range([values])
    known = np.nan_to_num(values, nan=black, posinf=white, neginf=black)
    return ((known - black) / (white - black) * 255).round().clip(0, 255).astype(np.uint8)


def grey_range(parts: Iterable[np.ndarray], *, fractions: bool = False) -> tuple[float, float]:
    """What stands for black and white in an image, given in parts.

    `fractions` says that numbers up to 1 mean black to white. Without a finite number all is black.
    """
    finite = (part[np.isfinite(part)] for part in parts)
    found = [(float(part.min()), float(part.max())) for part in finite if part.size]
    if not found:
        return 0.0, np.inf
    return _range(min(low for low, _ in found), max(high for _, high in found), fractions=fractions)


def _range(low: float, high: float, *, fractions: bool) -> tuple[float, float]:
    """The values that stand for black and white in deep images.

    Non-negative numbers go by the bits in use, at least 8: a 12-bit radiograph in a 16-bit file is divided by
    4095, not by 65535, which would show black. Steps of whole bits are coarse: unlike with a stretch, most
    images of one detector keep their relative brightness. Floats up to 1 keep the range from 0 to 1. Numbers
    below zero (Hounsfield units) have no natural range and are stretched, smallest to largest.
    """
    if low < 0:
        return low, max(high, low + 1e-6)
    if fractions and high <= 1:
        return 0.0, 1.0
    return 0.0, float(2 ** max(8, int(high).bit_length()) - 1)
