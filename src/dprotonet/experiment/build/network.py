"""The network of a config: backbone, shaping net, regions, prototypes and head."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from dprotonet.config import NetworkConfig
from dprotonet.data.transforms import Normalise
from dprotonet.encoder.backbone import Backbone, BackboneSpec, load_backbone
from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.levels import JoinedLevels, Joining
from dprotonet.encoder.part_maps import PartMaps, WithParts
from dprotonet.encoder.regions import Masks, Occurrence, Parts, Patches, Points, spatial_masks, uniform_masks
from dprotonet.encoder.shaping import Beside, Channels, Shaping
from dprotonet.encoder.two_nets import TwoNets
from dprotonet.errors import UserError
from dprotonet.experiment.build.inference import build_head, build_prototypes, part_regions, prototype_count
from dprotonet.network import BlackBox, DProtoNet, Network


def build_network(
    config: NetworkConfig,
    *,
    classes: int,
    image_size: int,
    pretrained: bool,
    masks: Tensor | None = None,
    owner: Sequence[int] | None = None,
    several: bool = False,
) -> Network:
    """The network of a config; `pretrained=False` leaves the backbone's weights to be loaded.

    `masks` and `owner`, the class of each prototype, are those of a stored network, so that loading needs
    neither the masks' seed nor their file, and knows what pruning left. `several`: an image may have several
    labels.
    """
    spec = BackboneSpec.parse(config.backbone)
    wanted = spec if pretrained else BackboneSpec(spec.name, "none")
    backbone = load_backbone(
        wanted, in_channels=config.channels, image_size=image_size, unstrided=config.unstrided
    )
    if config.levels > 1 or config.feature_channels:
        backbone = JoinedLevels(
            backbone,
            config.levels,
            image_size=image_size,
            channels=config.level_channels if config.levels > 1 else config.feature_channels,
            joining=Joining(power=config.level_power),
        )
    if config.network == "blackbox":
        return _black_box(backbone, backbone.feature_size(image_size), classes)
    count = prototype_count(config, classes)
    shaping = build_shaping(config, backbone.channels, count, fine=backbone.fine_channels)
    size = backbone.feature_size(image_size)
    if isinstance(shaping, TwoNets):
        size = size[0] * shaping.finer, size[1] * shaping.finer
    regions = build_regions(config, size, masks=masks, count=count, channels=backbone.channels)
    prototypes = build_prototypes(config, classes, regions.dimension, owner=owner)
    head = build_head(config, classes, prototypes, several=several)
    return DProtoNet(Encoder(backbone, shaping, regions), prototypes, head)


def _black_box(backbone: Backbone, size: tuple[int, int], classes: int) -> BlackBox:
    average = Masks(torch.ones(1, 1, *size), dimension=backbone.channels)
    return BlackBox(Encoder(backbone, nn.Identity(), average), nn.Linear(backbone.channels, classes))


def build_shaping(
    config: NetworkConfig, in_channels: int, prototypes: int, *, fine: int | None = None
) -> nn.Module:
    """The shaping net; where regions are learned, with a second one beside it that says where they are.

    Parts have shaping nets of their own, in `Parts`; here is only where they are, by the `fine` channels.

    Unstated: what XProtoNet's occurrence net looks like inside; ours is a shaping net with a channel for each
    prototype.
    """
    if config.regions == "parts":
        return WithParts(PartMaps(fine or in_channels, config.parts), whole=config.whole > 0)
    if config.activation == "softmax":
        return Channels(in_channels, config.dimension)
    if config.activation in ("tanh", "unit"):
        return TwoNets(in_channels, config.dimension, unit=config.activation == "unit")
    ending = [nn.Sigmoid()] if config.activation == "sigmoid" else []
    shaping = Shaping(in_channels, config.dimension, ending=ending)
    if config.regions == "occurrence":
        return Beside(shaping, Shaping(in_channels, prototypes))
    return shaping


def build_regions(
    config: NetworkConfig,
    size: tuple[int, int],
    *,
    masks: Tensor | None = None,
    count: int = 1,
    channels: int = 1,
) -> Masks | Points | Patches | Occurrence | Parts:
    """The regions of a config; `count` is that of prototypes, for regions that belong to one each, `channels`
    that of the backbone, for regions that shape its features themselves."""
    if config.regions == "occurrence":
        return Occurrence(config.dimension, count, size)
    if config.regions == "parts":
        return Parts(channels, config.dimension, part_regions(config), size)
    if config.regions == "points":
        return Points(config.dimension, size)
    if config.regions == "patches":
        return Patches(config.dimension, size, patch=config.patch)
    return Masks(_masks(config, size) if masks is None else masks, dimension=config.dimension)


def _masks(config: NetworkConfig, size: tuple[int, int]) -> Tensor:
    if config.mask_style == "uniform":
        return uniform_masks(config.masks, config.dimension, size, seed=config.mask_seed)
    if config.mask_style == "spatial":
        return spatial_masks(
            config.masks,
            size,
            seed=config.mask_seed,
            grid=config.mask_grid,
            contrast=config.mask_contrast,
        )
    return _masks_from_file(Path(config.mask_file).expanduser(), size)


def _masks_from_file(path: Path, size: tuple[int, int]) -> Tensor:
    try:
        masks = torch.from_numpy(np.load(path, allow_pickle=False)).float()
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"--mask-file {path} cannot be read as an .npy array: {error}") from None
    if masks.ndim != 4 or masks.shape[-2:] != size:
        raise UserError(
            f"--mask-file {path} has shape {tuple(masks.shape)}; "
            f"the feature map needs (R, D or 1, {size[0]}, {size[1]})"
        )
    return masks


def build_normalise(backbone: nn.Module, channels: int) -> Normalise:
    assert isinstance(backbone, Backbone)
    return Normalise(tuple(backbone.mean), tuple(backbone.std), channels=channels)
