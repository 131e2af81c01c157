"""Images per second of decoding, against those of the network that waits for them, in one run.

    python benchmarks/decoding.py [--data FOLDER] [--images 32] [--size 224] [--repeats 3]

Decoding in full, at reduced size, from the image cache, and as training loads it with 0 and 2 workers;
forward passes of EfficientNet-Lite0 and ResNet50 (untrained, the time is the same). FOLDER is searched for
images at any depth; without it, built-in birds enlarged to 1600 x 1200 are saved as JPEGs. A ratio above 1 in
`of_network` means that decoding keeps up and the network is the one that is waited for.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from timing import alternating_seconds, say, tell
from torch import Tensor, nn

from dprotonet.compat import keep_freed_memory
from dprotonet.data.birds import Birds
from dprotonet.data.digest import content_digest
from dprotonet.data.image import contents, image_from_pil, probed_extent, read_image
from dprotonet.data.image_cache import ImageCache
from dprotonet.data.listed import ListedImages
from dprotonet.data.scan import ImageFile
from dprotonet.data.suffixes import is_image
from dprotonet.data.transforms import Normalise, Views
from dprotonet.encoder.backbone import load_backbone
from dprotonet.training.views import chunks, load

LARGE = (1600, 1200)
NETWORKS = {"lite0": "timm:tf_efficientnet_lite0:none", "resnet50": "timm:resnet50:none"}
BATCH = 16

Step = tuple[int, Callable[[], None]]  # images, what is done with them


def save_birds(folder: Path, count: int) -> None:
    """Photographs in size and weight: enlarged, with the grain that makes a JPEG large."""
    birds = Birds(species=4, per_species=-(-count // 4), size=224)
    for index in range(count):
        small = Image.fromarray(birds[index].image.permute(1, 2, 0).numpy())
        pixels = np.asarray(small.resize(LARGE, Image.Resampling.BICUBIC)).astype(np.int16)
        grain = np.random.default_rng(index).integers(-6, 7, pixels.shape)
        Image.fromarray((pixels + grain).clip(0, 255).astype(np.uint8)).save(
            folder / f"{index}.jpg", quality=90
        )


def found(folder: Path, count: int) -> list[Path]:
    """`count` images below a folder, spread evenly."""
    paths = sorted(path for path in folder.rglob("*") if is_image(path))
    if not paths:
        raise SystemExit(f"{folder} has no images")
    return [paths[int(number)] for number in np.linspace(0, len(paths) - 1, min(count, len(paths)))]


def listed(root: Path, paths: list[Path], size: int, cache: ImageCache | None = None) -> ListedImages:
    files = []
    for path in paths:
        data = contents(path)
        extent = probed_extent(data, name=path.name)
        name = path.relative_to(root).as_posix()
        files.append(ImageFile(name, "", "any", extent=extent, digest=content_digest(data)))
    return ListedImages(root, files, classes=["any"], size=size, cache=cache)


def in_full(paths: list[Path], size: int) -> None:
    for path in paths:
        with Image.open(path) as image:
            image_from_pil(image, size=size)


def reduced(paths: list[Path], size: int) -> None:
    for path in paths:
        read_image(path, size=size)


def kept(data: ListedImages) -> None:
    for index in range(len(data)):
        data.image(index)


def loaded(data: ListedImages, passes: int, workers: int) -> None:
    views = Views(data, Normalise((0.5,), (0.5,)), augment=None, seed=0)
    keys = [(index, 0) for _ in range(passes) for index in range(len(data))]
    for _ in load(views, chunks(keys, BATCH), workers=workers):
        pass


@torch.inference_mode()
def forward(network: nn.Module, inputs: Tensor) -> None:
    network(inputs)


def steps_of(paths: list[Path], settings: argparse.Namespace, root: Path, folder: Path) -> dict[str, Step]:
    plain = listed(root, paths, settings.size)
    cached = listed(root, paths, settings.size, ImageCache(folder))
    inputs = torch.randn(BATCH, 3, settings.size, settings.size)
    networks = {name: load_backbone(spec, image_size=settings.size).eval() for name, spec in NETWORKS.items()}
    count, passes = len(paths), settings.passes
    return {
        "full": (count, partial(in_full, paths, settings.size)),
        "reduced": (count, partial(reduced, paths, settings.size)),
        "cache": (count, partial(kept, cached)),
        "loader_0_workers": (count * passes, partial(loaded, plain, passes, 0)),
        "loader_2_workers": (count * passes, partial(loaded, plain, passes, 2)),
        "loader_0_workers_cache": (count * passes, partial(loaded, cached, passes, 0)),
        "loader_2_workers_cache": (count * passes, partial(loaded, cached, passes, 2)),
        **{name: (BATCH, partial(forward, network, inputs)) for name, network in networks.items()},
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--passes", type=int, default=2, help="how often the loader goes over the images")
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


def measured(settings: argparse.Namespace, scratch: Path) -> dict[str, object]:
    root = settings.data or scratch
    if settings.data is None:
        say("drawing and saving birds")
        save_birds(root, settings.images)
    paths = found(root, settings.images)
    extents = [probed_extent(contents(path), name=path.name) for path in paths]
    steps = steps_of(paths, settings, root, scratch / "cache")
    seconds = alternating_seconds({name: step for name, (_, step) in steps.items()}, repeats=settings.repeats)
    rates = {name: steps[name][0] / min(taken) for name, taken in seconds.items()}
    ways = [name for name in rates if name not in NETWORKS]
    return {
        "benchmark": "decoding",
        "settings": {
            "data": "birds" if settings.data is None else settings.data.name,
            "images": len(paths),
            "median_extent": np.median(extents, axis=0).tolist(),
            "size": settings.size,
            "batch": BATCH,
            "repeats": settings.repeats,
            "threads": torch.get_num_threads(),
        },
        "images_per_second": {name: round(rate, 1) for name, rate in rates.items()},
        "of_full": {name: round(rates[name] / rates["full"], 2) for name in ways},
        "of_network": {
            network: {name: round(rates[name] / rates[network], 2) for name in ways} for network in NETWORKS
        },
    }


def main() -> None:
    keep_freed_memory()  # as the commands do
    settings = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        tell(measured(settings, Path(scratch)))


if __name__ == "__main__":
    main()
