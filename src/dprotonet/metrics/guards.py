"""What images, maps and probabilities must be before anything is measured, said so that it can be mended."""

import torch
from torch import Tensor

_ROUNDING = 1e-3  # by which a heatmap or probability in half precision may leave [0, 1]; it is clamped


def check_pair(images: Tensor, maps: Tensor) -> None:
    """Images are (N, C, H, W) of floats and maps (N, H, W)."""
    fits = images.ndim == 4 and maps.shape == (len(images), *images.shape[2:])
    if not fits or not images.is_floating_point():
        shapes = f"images {tuple(images.shape)} {images.dtype} against maps {tuple(maps.shape)}"
        raise ValueError(f"{shapes}; they must be (N, C, H, W) of floats and (N, H, W)")


def check_maps(maps: Tensor, what: str = "maps") -> None:
    """Maps are (N, H, W), none of these 0, and numbers."""
    if maps.ndim != 3 or not maps.numel():
        raise ValueError(f"{what} have shape {tuple(maps.shape)}; they must be (N, H, W), none of them 0")
    check_numbers(maps, what)


def check_heat(heatmaps: Tensor, purpose: str) -> None:
    """No value is negative, infinite or NaN."""
    if not (heatmaps.isfinite() & (heatmaps >= 0)).all():
        raise ValueError(
            f"heatmaps are negative, infinite or NaN somewhere; {purpose} needs finite heat, 0 or more"
        )


def check_numbers(values: Tensor, what: str) -> None:
    """No value is NaN; the first axis counts images."""
    broken = values.isnan().nonzero()
    if len(broken):
        raise ValueError(f"{what} of image {int(broken[0, 0])} contain NaN")


def within_unit(values: Tensor, what: str) -> Tensor:
    """The values, clamped where only rounding took them out of [0, 1]."""
    check_numbers(values, what)
    if ((values < -_ROUNDING) | (values > 1 + _ROUNDING)).any():
        raise ValueError(
            f"{what} reach from {values.min():.4g} to {values.max():.4g}; they must be in [0, 1]"
        )
    return values.clamp(0, 1)


def class_numbers(values: Tensor, what: str, classes: int) -> Tensor:
    """The values (N,) as int64, in which no product overflows; each is one of the classes."""
    if values.is_floating_point() or values.is_complex():
        raise ValueError(f"the {what} of images is {values.dtype}; it must be an integer")
    numbers = values.long()
    wrong = ((numbers < 0) | (numbers >= classes)).nonzero().flatten().tolist()
    if wrong:
        raise ValueError(
            f"the {what} of image {wrong[0]} is {int(numbers[wrong[0]])}; the classes are 0 to {classes - 1}"
        )
    return numbers


def scores_of_two_kinds(scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (N,) in float64 and which are of positives (N,), of bool or the integers 0 and 1, as bool.

    On the CPU: not every device has double precision.
    """
    if scores.ndim != 1 or scores.shape != positive.shape:
        shapes = f"scores {tuple(scores.shape)} against positive {tuple(positive.shape)}"
        raise ValueError(f"{shapes}; both must be (N,), one per image")
    check_numbers(scores, "scores")
    kinds = positive.cpu()
    odd = kinds[(kinds != 0) & (kinds != 1)]
    if kinds.is_floating_point() or kinds.is_complex() or len(odd):
        found = f"contains {odd[0].item()}" if len(odd) else f"is {kinds.dtype}"
        raise ValueError(f"positive {found}; it must be bool or the integers 0 and 1")
    return scores.detach().cpu().double(), kinds.bool()


def widened(values: Tensor) -> Tensor:
    """At least single precision: sums of half precision overflow."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
