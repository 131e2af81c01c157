"""Superpixels: areas of one colour, of about one size, for explainers that hide whole areas.

SLIC (Achanta et al., 2012): k-means over colour and place, every pixel among the nine nearest centres only.
Areas need not be connected; for what is hidden together that makes no difference.
"""

import torch
from torch import Tensor

_COMPACTNESS = 1.0  # what a distance of one cell counts against one standard deviation of colour


def superpixels(
    image: Tensor, *, grid: int = 7, compactness: float = _COMPACTNESS, iterations: int = 10
) -> Tensor:
    """Numbers from 0 on (H, W) int64 of an image (C, H, W); at most grid × grid of them, none left out.

    The colour counts in standard deviations of the image, so that normalised and plain pixels are cut alike.
    """
    pixels = image.detach().cpu().double()  # the same on every device
    height, width = pixels.shape[1:]
    rows, columns = min(grid, height), min(grid, width)
    down = torch.arange(height).unsqueeze(1).expand(height, width)
    along = torch.arange(width).unsqueeze(0).expand(height, width)
    cell_down, cell_along = down * rows // height, along * columns // width
    place = torch.stack([(down + 0.5) * rows / height, (along + 0.5) * columns / width])
    colour = pixels / pixels.std(dim=(1, 2), correction=0).mean().clamp_min(1e-12) / len(pixels) ** 0.5
    points = torch.cat([colour, compactness**0.5 * place]).flatten(1)  # (C + 2, H·W)
    near = _near(cell_down, cell_along, rows, columns).flatten(1)
    own = (cell_down * columns + cell_along).flatten()
    centres = _means(points, own, points.new_zeros(len(points), rows * columns))
    for _ in range(iterations):
        distance = (points.unsqueeze(1) - centres[:, near]).square().sum(dim=0)  # (9, H·W)
        own = near.gather(0, distance.argmin(dim=0, keepdim=True)).squeeze(0)
        centres = _means(points, own, centres)
    numbered: Tensor = own.unique(return_inverse=True)[1]
    return numbered.view(height, width).to(image.device)


def _near(down: Tensor, along: Tensor, rows: int, columns: int) -> Tensor:
    """Numbers of the cells round that of every pixel, itself first, (9, H, W)."""
    steps = [(0, 0), *((one, two) for one in (-1, 0, 1) for two in (-1, 0, 1) if (one, two) != (0, 0))]
    return torch.stack(
        [
            (down + one).clamp(0, rows - 1) * columns + (along + two).clamp(0, columns - 1)
            for one, two in steps
        ]
    )


def _means(points: Tensor, own: Tensor, before: Tensor) -> Tensor:
    """Of the points of each cell; one that has none stays."""
    sums = torch.zeros_like(before).index_add_(1, own, points)
    counts = torch.bincount(own, minlength=before.shape[1])
    return torch.where(counts > 0, sums / counts.clamp_min(1), before)
