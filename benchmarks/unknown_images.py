"""Images that a run has not learned from: other data sets, kinds made here, and its own images spoilt."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import conv2d, interpolate, pad

from dprotonet.config import DataConfig
from dprotonet.data.base import ImageData
from dprotonet.data.birds import Birds
from dprotonet.data.birds.species import MOST
from dprotonet.data.folder import loose_images
from dprotonet.experiment.build.data import build_splits


def noise(size: int, random: torch.Generator) -> Tensor:
    return torch.randint(0, 256, (3, size, size), generator=random, dtype=torch.uint8)


def flat(size: int, random: torch.Generator) -> Tensor:
    return noise(1, random).expand(3, size, size).contiguous()


def clouds(size: int, random: torch.Generator) -> Tensor:
    coarse = torch.rand(1, 3, 9, 9, generator=random)
    return (interpolate(coarse, (size, size), mode="bicubic").clamp(0, 1)[0] * 255).to(torch.uint8)


def shuffled(image: Tensor, tiles: int, random: torch.Generator) -> Tensor:
    """The same pixels, cut into tiles × tiles and put together in another order."""
    side = image.shape[-1] // tiles
    cut = image.unfold(1, side, side).unfold(2, side, side).reshape(3, tiles * tiles, side, side)
    mixed = cut[:, torch.randperm(tiles * tiles, generator=random)].reshape(3, tiles, tiles, side, side)
    return mixed.permute(0, 1, 3, 2, 4).reshape(3, tiles * side, tiles * side).contiguous()


def made_up(known: Sequence[Tensor], count: int) -> dict[str, list[Tensor]]:
    """Images of no kind at all, the size of the known ones."""
    random, size = torch.Generator().manual_seed(0), known[0].shape[-1]
    makers: dict[str, Callable[[int, torch.Generator], Tensor]] = {
        "noise": noise,
        "flat": flat,
        "clouds": clouds,
    }
    made = {name: [make(size, random) for _ in range(count)] for name, make in makers.items()}
    return made | {"known, shuffled 8 × 8": [shuffled(image, 8, random) for image in known[:count]]}


def spread(data: ImageData, count: int) -> list[Tensor]:
    """At most `count` images, evenly spread over the data."""
    step = max(1.0, len(data) / count)
    return [data[int(number * step)].image for number in range(min(count, len(data)))]


def unknown_images(name: str, size: int, count: int) -> list[Tensor]:
    if name == "birds" or ":" in name:
        return spread(build_splits(DataConfig(data=name, image_size=size, allow_leaks=True)).test, count)
    return spread(loose_images(name, size=size), count)


def near_kinds(known: ImageData, count: int) -> dict[str, list[Tensor]]:
    """The hard ones, where the known are built-in birds: their scenes without a bird, other species."""
    if not isinstance(known, Birds):
        return {}
    own = len(known.species)
    more = Birds(
        species=min(2 * own, MOST), per_species=count, split="test", seed=known.seed, size=known.size
    )
    others = range(own, len(more.species))
    return {
        "known scenes, no bird": [known.background(index) for index in range(min(count, len(known)))],
        "birds of other species": [
            more.render(number, species=others[number % len(others)]).image for number in range(count)
        ],
    }


def spoilt(known: Sequence[Tensor]) -> dict[str, list[Tensor]]:
    """The known images with noise, blurred, upside down, inverted."""
    random = torch.Generator().manual_seed(1)

    def noisy(image: Tensor, deviation: float) -> Tensor:
        added = torch.randn(image.shape, generator=random) * deviation
        return (image + added).round().clamp(0, 255).to(torch.uint8)

    made = {
        f"noise of {deviation}": [noisy(image, deviation) for image in known] for deviation in (8, 16, 32, 64)
    }
    made |= {f"blur of {sigma} pixels": [blurred(image, sigma) for image in known] for sigma in (1, 2, 4)}
    return made | {
        "upside down": [image.flip(1) for image in known],
        "inverted": [255 - image for image in known],
    }


def blurred(image: Tensor, sigma: int) -> Tensor:
    """By a Gaussian of `sigma` pixels."""
    reach = torch.arange(-3 * sigma, 3 * sigma + 1)
    weights = (-reach.square() / (2 * sigma**2)).exp()
    weights /= weights.sum()
    wide = pad(image.float().unsqueeze(1), (3 * sigma,) * 4, mode="replicate")
    found = conv2d(conv2d(wide, weights.reshape(1, 1, -1, 1)), weights.reshape(1, 1, 1, -1))
    return found.squeeze(1).round().clamp(0, 255).to(torch.uint8)
