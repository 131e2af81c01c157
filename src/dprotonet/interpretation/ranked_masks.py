"""MDM in forty passes: masks of all sizes mixed into one, learned as a ranking of the places.

The paper's decoder learns ten masks apart, by keeping an activation. Here their mean is one map, and every
step asks of it what a good explanation must answer at *any* size: are the hottest q of the image enough to
keep the node active, and is the image without them not? q runs through the sizes, so no part of the map is
left unranked, and nothing need be tuned between keeping and hiding. The deepest feature map starts the masks;
a node that knows where it looks may do so instead (`own_guess`).
"""

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.interpretation.asked import TOGETHER, Asked, asked_in_turn, check_asks
from dprotonet.interpretation.first_guess import first_guess
from dprotonet.interpretation.kept_activation import KeptActivation
from dprotonet.interpretation.masking_task import MaskingTask, Step
from dprotonet.interpretation.masks import MaskStack, Size, check_sizes, places, resized, spread
from dprotonet.interpretation.shared_descent import SharedDescent
from dprotonet.ops import unit_range

_KERNEL, _SIGMA = 11, 5.0
_UNGUIDED = 0.06  # largest step of masks without a guess: by larger ones all places rise until none differs


@dataclass(frozen=True)
class RankedMasks:
    """The `fast`, `instant` and `best` presets.

    Deviation: the paper learns each size by itself and asks only that the activation be kept; see
    docs/decoder.md for what each change bought.
    """

    sizes: tuple[Size, ...] = tuple(range(6, 16))
    iterations: int = 6
    rate: float = 0.2
    asks: tuple[str, ...] = TOGETHER  # what the steps ask, one after the other (`asked`)
    smallest: float = 0.1  # share of the image that is kept or hidden, q
    largest: float = 0.8
    softness: float = 0.1  # how gradually a place passes from hidden to kept, in units of the mask
    softest: float = 0.25  # the same in the first step, when masks are coarse; it falls from there
    hide: float = 1.0  # weight of "without them it is not active" against "they are enough"
    own_guess: bool = False  # start where the node itself says it looks; less faithful, see docs/parts.md
    zoom: float = 1.7  # enlargement of the parts that the first guess looks at; 1 for the whole image only
    trust: float = 0.2  # how fast a place moves that the guess is silent about, against one it points at
    focus: float = 0.3  # what the finished map keeps of a place that the guess is silent about; 1 for all
    brightness: tuple[float, ...] = (1.0, 0.75, 0.55, 0.4, 0.3)  # exponents that the finished map may take
    start: float = 0.5  # τ, where the network has no map to guess from
    probability: bool = True

    def __post_init__(self) -> None:
        check_sizes(self.sizes, self)
        if self.iterations < 1 or self.rate < 0 or not 0 < self.softness <= self.softest:
            raise UserError(f"{self}: iterations >= 1, rate >= 0 and 0 < softness <= softest are possible")
        check_asks(self.asks)
        if not self.brightness:
            raise UserError(f"{self}: brightness needs an exponent or several")
        if not 0 <= self.focus <= 1 or not 0 <= self.trust <= 1:
            raise UserError(f"{self}: 0 <= focus <= 1 and 0 <= trust <= 1 are possible")
        if not 0 < self.smallest <= self.largest < 1:
            raise UserError(f"{self}: 0 < smallest <= largest < 1 is possible")

    def steps(self, task: MaskingTask) -> Generator[Step]:
        share = self._share(task)
        share.warn(task)
        guess = self._guess(task)
        stack, speeds = self._started(guess)
        weight = torch.where(guess.isnan(), 1.0, self.focus + (1 - self.focus) * guess)
        descent = SharedDescent(stack.parameters, rate=self.rate, speeds=speeds)
        hidden = {"blur": blurred(task.images), "black": torch.zeros_like(task.images)}
        questions = asked_in_turn(
            self.asks,
            self.iterations,
            shares=(self.smallest, self.largest),
            softness=(self.softest, self.softness),
        )
        for number, asked in enumerate(questions, 1):
            loss = self._descend(task, stack, share, asked, hidden[asked.behind])
            descent.step()
            stack.clamp()
            raw = weight * len(self.sizes) * stack.mean(task.size).detach()
            yield Step(number, self.iterations, loss, stack.detached(), raw)

    @torch.no_grad()
    def heatmap(self, task: MaskingTask, raw: Tensor) -> Tensor:
        """The raw map in [0, 1], as dim as it can be while image × heatmap keeps the node; ranks stay.

        A vector is never kept to the last, so there the map is left as it is.
        """
        share, plain = self._share(task), unit_range(raw, axes=len(task.size))
        if share.wanted.shape[1] > 1:
            return plain
        if len(self.brightness) == 1:
            return plain ** self.brightness[0]
        heats = torch.stack([plain**exponent for exponent in self.brightness])
        rows = task.rows.repeat(len(heats))
        shown = torch.cat([task.images] * len(heats)) * heats.flatten(0, 1).unsqueeze(1)
        kept = share(task.activations(shown, rows), rows)
        best, chosen = raw.new_full((len(raw),), -torch.inf), plain
        for heat, now in zip(heats, kept.view(len(heats), -1), strict=True):
            better = (now > best) & (best < 1)
            chosen = torch.where(spread(better, heat), heat, chosen)
            best = torch.where(better, now, best)
        return chosen

    def above(self, raw: Tensor) -> Tensor | None:
        """None: the map is a ranking and has no γ."""
        return None

    def _share(self, task: MaskingTask) -> KeptActivation:
        """Of a node that rises the direction is enough, where no brightness is chosen: no pass."""
        rises = getattr(task.node, "rises", False) and len(self.brightness) == 1
        return KeptActivation.unmeasured(task) if rises else KeptActivation.of(task)

    def _guess(self, task: MaskingTask) -> Tensor:
        """Where the network seems to look (N, H, W), at most 1; all NaN for an image without a guess."""
        guess = task.guess() if self.own_guess else None
        guess = first_guess(task, zoom=self.zoom) if guess is None else guess
        if guess is None:
            return task.images.new_full((task.count, *task.size), torch.nan)
        silent = guess.isnan().any(dim=places(guess), keepdim=True)
        peak = guess.amax(dim=places(guess), keepdim=True).clamp_min(torch.finfo(guess.dtype).tiny)
        return torch.where(silent, torch.nan, guess / peak).detach()

    def _started(self, guess: Tensor) -> tuple[MaskStack, list[Tensor]]:
        """Masks as the guess has them, and how fast each of their places may move."""
        silent = guess.isnan().any(dim=places(guess), keepdim=True)
        seen = {size: resized(guess, size).clamp(0, 1) for size in self.sizes}
        alone = _UNGUIDED / max(self.rate, _UNGUIDED)
        speeds = [torch.where(silent, alone, self.trust + (1 - self.trust) * heat) for heat in seen.values()]
        return MaskStack({size: torch.where(silent, self.start, heat) for size, heat in seen.items()}), speeds

    def _descend(
        self, task: MaskingTask, stack: MaskStack, share: KeptActivation, asked: Asked, reference: Tensor
    ) -> Tensor:
        """Gradients of all masks for what is kept or hidden; the losses (N,)."""

        def loss(masks: Tensor, rows: Tensor) -> Tensor:
            kept = hottest(masks, asked.share, asked.softness).unsqueeze(1)
            shown = {"keep": [kept], "hide": [1 - kept], "both": [kept, 1 - kept]}[asked.what]
            images, blank = task.images[rows], reference[rows]
            masked = torch.cat([images * some + blank * (1 - some) for some in shown])
            again = rows.repeat(len(shown))
            first, *second = share(task.activation(masked, again), again).chunk(len(shown))
            if asked.what == "hide":
                return self.hide * first
            return self.hide * second[0] - first if second else -first

        mean = stack.mean(task.size)
        losses, gradient = task.gradient(mean, task.rows, loss, each=asked.images)
        mean.backward(gradient)
        return losses


def hottest(masks: Tensor, share: float, softness: float) -> Tensor:
    """A soft choice of the hottest `share` of the places of each mask (M, H, W) or (M, D, H, W)."""
    values = masks.detach().flatten(1)
    place = min(values.shape[1], max(1, round((1 - share) * values.shape[1])))
    limit = values.kthvalue(place, dim=1).values
    return torch.sigmoid((masks - spread(limit, masks)) / softness)


def blurred(images: Tensor) -> Tensor:
    """The images without detail: an 11 × 11 Gaussian of 5 pixels, the reference of RISE's insertion.

    Volumes (N, C, D, H, W) lose it along their depth too.
    """
    if images.ndim == 5:
        return torch.stack([_blurred_volume(volume) for volume in images])
    pad = torch.nn.functional.pad(images, [_KERNEL // 2] * 4, mode="replicate")
    across = torch.nn.functional.conv2d(pad, _line(images), groups=images.shape[1])
    return torch.nn.functional.conv2d(across, _line(images).transpose(2, 3), groups=images.shape[1])


def _blurred_volume(volume: Tensor) -> Tensor:
    """(C, D, H, W), slice by slice and then along the depth."""
    slices = blurred(volume.transpose(0, 1)).transpose(0, 1)
    if len(slices[0]) == 1:
        return slices
    pad = torch.nn.functional.pad(slices.flatten(2), [0, 0, *[_KERNEL // 2] * 2], mode="replicate")
    deep = torch.nn.functional.conv2d(pad.unsqueeze(1), _line(pad.unsqueeze(1)).transpose(2, 3))
    return deep.view_as(volume)


def _line(images: Tensor) -> Tensor:
    """The Gaussian along a row for each channel, (C, 1, 1, K)."""
    offsets = torch.arange(_KERNEL, device=images.device, dtype=images.dtype) - _KERNEL // 2
    line = torch.exp(-0.5 * (offsets / _SIGMA).square())
    return (line / line.sum()).expand(images.shape[1], 1, 1, -1)
