"""Unrestricted feature masks: z_i(x) = GAP(M_i F(x)), Eq. (8).

The masks are fixed, drawn once from a seed and kept in the state dict. Points and patches are special cases
(appendix B): a one-hot mask gives F_ij / (hw), the all-ones mask gives the global average.
"""

import torch
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.ops import upsample


def uniform_masks(count: int, dimension: int, size: tuple[int, int], *, seed: int) -> Tensor:
    """The paper's masks (R, D, h, w): every value drawn from U(0, 1) by itself."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, dimension, *size, generator=generator)


def spatial_masks(
    count: int, size: tuple[int, int], *, seed: int, grid: int = 3, contrast: float = 1.0
) -> Tensor:
    """Smooth masks shared by all channels (R, 1, h, w): a random grid × grid, enlarged, all of one mean.

    `contrast` 1 lets a mask go down to nearly 0; with 0 all would be the global average. One mean, because
    the nearest region vector is sought: masks of different weight would differ in length before all else.

    Deviation: the paper draws every value independently; with dozens of positions all such region vectors
    concentrate near half the global average. Smooth masks cover different places ("M_i is versatile, thus
    we can generate prototypes with any custom number and style").
    """
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 1, grid, grid, generator=generator)
    masks = upsample(coarse, size)
    masks = 1 - contrast * (1 - masks / masks.amax(dim=(-2, -1), keepdim=True))
    masks = masks / masks.mean(dim=(-2, -1), keepdim=True)
    return masks / masks.max()


class Masks(nn.Module):
    """Region vectors by masks (R, D, h, w), or (R, 1, h, w) shared by all channels; values in [0, 1]."""

    lies_on_the_image = False  # the next mask is no next place

    masks: Tensor

    def __init__(self, masks: Tensor, *, dimension: int) -> None:
        super().__init__()
        _check(masks, dimension)
        self.register_buffer("masks", masks.float().contiguous())
        self._dimension = dimension

    @property
    def count(self) -> int:
        return len(self.masks)

    @property
    def dimension(self) -> int:
        return self._dimension

    def footprint(self) -> Tensor:
        return self.masks.mean(dim=1)

    def forward(self, feature_map: Tensor) -> Tensor:
        if feature_map.shape[-2:] != self.masks.shape[-2:]:
            raise ValueError(
                f"feature map {tuple(feature_map.shape)} against masks {tuple(self.masks.shape)}"
            )
        features = feature_map.flatten(2) / feature_map[0, 0].numel()  # (B, D, hw)
        masks = self.masks.flatten(2).to(features.dtype)  # (R, D or 1, hw)
        if masks.shape[1] == 1:
            return masks.squeeze(1) @ features.transpose(1, 2)
        by_channel = torch.bmm(features.transpose(0, 1), masks.permute(1, 2, 0))  # (D, B, R)
        if (
            by_channel.requires_grad
        ):  # else the gradient arrives strided, and bmm falls back to D small products
            by_channel.register_hook(Tensor.contiguous)
        return by_channel.permute(1, 2, 0).contiguous()


def _check(masks: Tensor, dimension: int) -> None:
    shape = tuple(masks.shape)
    if masks.ndim != 4 or shape[1] not in (1, dimension) or 0 in shape:
        raise UserError(f"feature masks have shape {shape}; they must be (R, 1 or {dimension}, h, w)")
    if not torch.isfinite(masks).all() or masks.min() < 0 or masks.max() > 1:
        raise UserError("feature masks must be finite and within [0, 1]; rescale the array")
