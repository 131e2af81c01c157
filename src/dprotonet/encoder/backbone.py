"""Any timm model as a feature map: the first third of the encoder (Figure 2, left).

The trunk is whatever timm's `forward_features` runs; its output, channels first, channels last or a sequence
of tokens, leaves here as `feature_map (B, D, h, w)`. Parts that only served the classifier (VGG's fully
connected layers too) are dropped. Where the weights come from is told by `weights.py`; reducing D is the
shaping's business.
"""

import difflib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dprotonet.compat import import_guarded
from dprotonet.encoder import weights as sources
from dprotonet.encoder.weights import WeightsReport
from dprotonet.errors import UserError

Result = TypeVar("Result")

_WORDS = ("none", "imagenet", "packaged")
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_HALF = (0.5, 0.5, 0.5)
_SIZE_MISTAKES = (RuntimeError, AssertionError, ValueError, IndexError)


@dataclass(frozen=True)
class BackboneSpec:
    """A timm model and its weights, written `timm:NAME[:WEIGHTS]`.

    WEIGHTS is `none`, `imagenet` (timm's hub, if omitted), `packaged` (EfficientNet-Lite0 only) or a path.
    """

    name: str
    weights: str = "imagenet"

    def __post_init__(self) -> None:
        if not self.name or not self.weights:
            raise UserError(f"backbone '{self}' is incomplete; write timm:NAME or timm:NAME:WEIGHTS")
        if self.weights == "packaged" and self.name != sources.PACKAGED_FOR:
            raise UserError(
                f"packaged weights exist for timm:{sources.PACKAGED_FOR}:packaged only, not for {self.name}"
            )
        if self.weights not in _WORDS and not any(mark in self.weights for mark in "./\\"):
            raise UserError(
                f"unknown weights '{self.weights}'; write {', '.join(_WORDS)} or a path to a file"
            )

    @classmethod
    def parse(cls, text: str) -> "BackboneSpec":
        """Read `timm:NAME[:WEIGHTS]`; the path may contain colons."""
        library, *rest = text.strip().split(":", 2)
        if library != "timm" or not rest:
            # A bare name, or torchvision's: its names (resnet50, vgg19, densenet121) are timm's too.
            words = [word for word in (library, *rest) if word not in ("timm", "torchvision")]
            spelling = ":".join(words) or "NAME"
            raise UserError(f"backbone '{text}' lacks its library; write timm:{spelling}")
        return cls(*rest)

    def __str__(self) -> str:
        return f"timm:{self.name}:{self.weights}"


class Backbone(nn.Module):
    """A timm trunk: `images (B, C, H, W)` → `feature_map (B, D, h, w)`, D being `channels`.

    `mean` and `std` are what the weights expect of the images, one number for each input channel. `report`
    tells how local or packaged weights matched; it is None for `none` and for the hub.
    """

    def __init__(
        self,
        trunk: nn.Module,
        spec: BackboneSpec,
        *,
        in_channels: int = 3,
        report: WeightsReport | None = None,
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.spec = spec
        self.in_channels = in_channels
        self.report = report
        self.channels = int(_described(trunk).num_features)
        self.fine_channels = self.channels  # the first so many are of the finest level: here the only one
        self.mean, self.std = _normalisation(trunk, spec, in_channels)

    def forward(self, images: Tensor) -> Tensor:
        return self.last_map(images)

    def last_map(self, images: Tensor) -> Tensor:
        """What the trunk itself gives."""
        return _as_map(self.trunk, images)

    @torch.no_grad()
    def feature_size(self, image_size: int) -> tuple[int, int]:
        """Height and width of the feature map of square images; modes and statistics stay as they were."""
        with resting(self):
            height, width = dry_run(self, self.trunk, self.in_channels, image_size).shape[-2:]
        return height, width


def load_backbone(
    spec: BackboneSpec | str, *, in_channels: int = 3, image_size: int = 224, unstrided: int = 0
) -> Backbone:
    """Build the trunk for square images of `image_size` pixels and fill it with the weights of `spec`.

    With `unstrided` its last so many stages have stride 1, as PIP-Net's have; weights stay as they are.
    """
    spec = BackboneSpec.parse(spec) if isinstance(spec, str) else spec
    if in_channels not in (1, 3):
        raise UserError(f"a backbone takes images of 1 or 3 channels, not {in_channels}")
    check_name(spec.name)
    trunk = _built(spec, in_channels, image_size)
    if unstrided:
        remove_strides(trunk, unstrided)
    with torch.enable_grad(), resting(trunk):
        _drop_unused(trunk, dry_run(partial(_as_map, trunk), trunk, in_channels, image_size))
    return Backbone(trunk, spec, in_channels=in_channels, report=_filled(trunk, spec, in_channels))


# ── building ─────────────────────────────────────────────────────────────────────────────────────────


def check_name(name: str) -> None:
    """A UserError, with the names that come near, unless timm has this model."""
    timm = import_guarded("timm")
    if not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models(), n=4, cutoff=0.5)
        hint = f"did you mean {', '.join(close)}?" if close else "timm.list_models() lists them"
        raise UserError(f"timm has no model '{name}'; {hint}")
    architecture, _, tag = name.partition(".")
    if tag and name not in (known := timm.list_pretrained(f"{architecture}.*")):
        raise UserError(
            f"timm has no weights '{tag}' for {architecture}; known: {', '.join(known) or 'none'}"
        )


def _built(spec: BackboneSpec, in_channels: int, image_size: int) -> nn.Module:
    hub = spec.weights == "imagenet"
    settings: dict[str, Any] = {"pretrained": hub, "num_classes": 0, "in_chans": in_channels}
    if hub and (overlay := sources.hub_source(spec.name)):
        settings["pretrained_cfg_overlay"] = overlay
    try:
        return _sized(spec.name, settings, image_size)
    except Exception as error:  # by the hub's library: any kind; by timm's constructors: size mistakes
        if isinstance(error, _SIZE_MISTAKES) and not isinstance(error, OSError):
            raise _size_error(spec.name, image_size, error) from error
        if hub:
            raise sources.hub_error(spec.name, error) from error
        raise


def _sized(name: str, settings: dict[str, Any], image_size: int) -> nn.Module:
    """Create the model for this image size, with as much freedom of size as its constructor knows of."""
    create = import_guarded("timm").create_model
    for sizing in ({"img_size": image_size, "dynamic_img_size": True}, {"img_size": image_size}):
        try:
            return create(name, **settings, **sizing)
        except TypeError as error:
            if "img_size" not in str(error):
                raise
    return create(name, **settings)


def remove_strides(trunk: nn.Module, count: int) -> None:
    """Stride 1 instead of 2 in the convolutions of the last `count` stages that have some."""
    strided = strided_stages(trunk)
    if count > len(strided):
        raise UserError(
            f"{trunk_name(trunk)} has {len(strided)} stages whose convolutions have stride 2, "
            f"so --unstrided {count} is too many"
        )
    for convolution in (one for stage in strided[len(strided) - count :] for one in stage):
        convolution.stride = (1, 1)


def strided_stages(trunk: nn.Module) -> list[list[nn.Conv2d]]:
    """Convolutions of stride 2 by stage, of the stages that have some; what comes before them is left out."""
    described = getattr(trunk, "feature_info", [])
    names = dict.fromkeys(info["module"] for info in described)
    stages = [dict(trunk.named_modules()).get(name) for name in names]
    found = [
        [part for part in stage.modules() if isinstance(part, nn.Conv2d) and part.stride == (2, 2)]
        for stage in stages
        if stage is not None
    ]
    return [convolutions for convolutions in found if convolutions]


def _filled(trunk: nn.Module, spec: BackboneSpec, in_channels: int) -> WeightsReport | None:
    if spec.weights in ("none", "imagenet"):
        return None
    state = sources.packaged_state() if spec.weights == "packaged" else sources.read_state(spec.weights)
    return sources.load_state(trunk, state, in_channels=in_channels, source=str(spec))


def _drop_unused(trunk: nn.Module, feature_map: Tensor) -> None:
    """Replace children whose parameters do not reach the feature map: remains of the classifier.

    Left in place they would count as parameters, be decayed, and stop distributed training.
    """
    used = _leaves(feature_map)
    for name, child in list(trunk.named_children()):
        parameters = list(child.parameters())
        if parameters and not any(parameter in used for parameter in parameters):
            setattr(trunk, name, nn.Identity())


def _leaves(output: Tensor) -> set[Any]:
    """Parameters that `output` was computed from, read off its autograd graph without a backward pass."""
    seen: set[Any] = set()
    waiting: list[Any] = [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(following for following, _ in node.next_functions)
    return {node.variable for node in seen if hasattr(node, "variable")}


def _normalisation(trunk: nn.Module, spec: BackboneSpec, in_channels: int) -> tuple[tuple[float, ...], ...]:
    settings = getattr(trunk, "pretrained_cfg", {})
    mean, std = settings.get("mean") or _IMAGENET_MEAN, settings.get("std") or _IMAGENET_STD
    if spec.weights == "packaged":
        mean, std = _HALF, _HALF
    if in_channels == 1:
        mean, std = (sum(mean) / len(mean),), (sum(std) / len(std),)
    return tuple(mean), tuple(std)


# ── running ──────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def resting(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; every part gets its own mode back."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def dry_run(run: Callable[[Tensor], Result], trunk: nn.Module, in_channels: int, image_size: int) -> Result:
    """What `run` makes of one black image, in the trunk's precision and on its device."""
    like = next(trunk.parameters())
    images = torch.zeros(1, in_channels, image_size, image_size, device=like.device, dtype=like.dtype)
    try:
        return run(images)
    except UserError:
        raise
    except _SIZE_MISTAKES as error:
        raise _size_error(trunk_name(trunk), image_size, error) from error


def _as_map(trunk: nn.Module, images: Tensor) -> Tensor:
    return as_map(trunk, _described(trunk).forward_features(images), images)


def as_map(trunk: nn.Module, features: object, images: Tensor) -> Tensor:
    """The trunk's features as (B, D, h, w), whichever of the three layouts it speaks."""
    channels = _described(trunk).num_features
    if isinstance(features, Tensor) and features.ndim == 4:
        last = str(getattr(trunk, "output_fmt", "")).endswith("NHWC")
        if features.shape[1] == channels and not last:
            return features
        if features.shape[-1] == channels:
            return features.permute(0, 3, 1, 2)
    if isinstance(features, Tensor) and features.ndim == 3 and features.shape[-1] == channels:
        height, width = _token_grid(trunk, features.shape[1], (images.shape[-2], images.shape[-1]))
        # Prefix tokens (class, distillation, registers) stand first in all of timm.
        return features[:, -height * width :].transpose(1, 2).unflatten(2, (height, width))
    raise UserError(
        f"{trunk_name(trunk)} gives no feature map but {_shape(features)}; choose another backbone"
    )


def _token_grid(trunk: nn.Module, tokens: int, size: tuple[int, int]) -> tuple[int, int]:
    """Height and width of the grid of patches among `tokens`, for images of `size`."""
    prefix = getattr(trunk, "num_prefix_tokens", None)
    counts = [tokens - extra for extra in ((0, 1, 2) if prefix is None else (prefix,))]
    for height, width in (*_patch_grids(trunk, size), *(_alike(count, size) for count in counts)):
        if height * width in counts:
            return height, width
    raise UserError(f"{trunk_name(trunk)} gives {tokens} tokens, which form no grid; choose another backbone")


def _patch_grids(trunk: nn.Module, size: tuple[int, int]) -> Iterator[tuple[int, int]]:
    patches: Any = getattr(trunk, "patch_embed", None)
    if hasattr(patches, "dynamic_feat_size"):
        yield patches.dynamic_feat_size(size)
    elif isinstance(getattr(patches, "grid_size", None), tuple):
        yield patches.grid_size


def _alike(count: int, size: tuple[int, int]) -> tuple[int, int]:
    """A grid of about `count` cells with the proportions of the image, for trunks that merge patches."""
    height = max(round(math.sqrt(max(count, 1) * size[0] / size[1])), 1)
    return height, count // height


def _described(trunk: nn.Module) -> Any:
    if not hasattr(trunk, "forward_features") or not hasattr(trunk, "num_features"):
        raise UserError(f"{trunk_name(trunk)} has no features to show; choose another backbone")
    return trunk


def trunk_name(trunk: nn.Module) -> str:
    """timm's name of the trunk."""
    return str(getattr(trunk, "pretrained_cfg", {}).get("architecture") or type(trunk).__name__)


def _shape(features: object) -> str:
    return (
        f"a tensor of {tuple(features.shape)}"
        if isinstance(features, Tensor)
        else f"a {type(features).__name__}"
    )


def _size_error(name: str, image_size: int, error: Exception) -> UserError:
    settings = import_guarded("timm.models").get_pretrained_cfg(name)
    native = settings.input_size[-1] if settings else "unknown"
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return UserError(f"{name} cannot take images of {image_size} pixels (its own size: {native}): {reason}")
