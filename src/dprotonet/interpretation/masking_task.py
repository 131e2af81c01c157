"""One explanation task: images, a node, and the count of passes through the network.

Here and only here the network is called. Masked images go through in blocks of bounded size, gradients come
back for the masks alone, and activations that are not finite are refused by the name of their image.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from dprotonet.errors import ComputationError, UserError
from dprotonet.interpretation.base import Passes
from dprotonet.interpretation.folding import Folding
from dprotonet.interpretation.masks import Size, places
from dprotonet.interpretation.nodes import Node, precision
from dprotonet.ops import upsample

Loss = Callable[[Tensor, Tensor], Tensor]  # masks (M, H, W) and rows (M,) to a loss each (M,)
Score = Callable[[Tensor, Tensor], Tensor]  # activations (B, K) and rows (B,) to a number each (B,)
Guess = Callable[[Tensor, Tensor], Tensor | None]  # images (B, C, H, W) and rows (B,) to (B, h, w)

T = TypeVar("T")


class Step(NamedTuple):
    """What an optimisation yields: enough for a progress bar, a preview, early stopping and the result.

    After `number` of `total` steps: losses (N,), masks by size (N, s, s), the summed map (N, H, W).
    Of volumes masks (N, d, h, w) and a map (N, D, H, W).
    """

    number: int
    total: int
    loss: Tensor
    masks: Mapping[Size, Tensor]
    raw: Tensor


class MaskingTask:
    """Images (N, C, H, W) or volumes (N, C, D, H, W) as the network wants them, and the node to watch.

    `before` is how often the network saw each image already, to find the node.
    """

    def __init__(self, images: Tensor, node: Node, *, batch: int, before: int = 0) -> None:
        check_images(images, batch)
        node.check(len(images))
        self.node, self.batch = node, batch
        with torch.inference_mode(False):
            kept = torch.channels_last if images.ndim == 4 else torch.channels_last_3d
            self.images = images.detach().float().clone(memory_format=kept)
            self.rows = torch.arange(len(images), device=images.device)
        self._dtype = precision(node.model)
        self.folding = Folding(None)  # the network as it is, unless its user lets it be folded
        self._forward, self._backward = before * len(images), 0

    @property
    def count(self) -> int:
        return len(self.images)

    @property
    def size(self) -> tuple[int, ...]:
        """(H, W) of images, (D, H, W) of volumes."""
        return tuple(self.images.shape[2:])

    @property
    def passes(self) -> Passes:
        """Per image."""
        return Passes(round(self._forward / self.count), round(self._backward / self.count))

    def count_backward(self, images: int) -> None:
        self._backward += images

    def activation(self, images: Tensor, rows: Tensor) -> Tensor:
        """The node on some masked images, (B, K) float32; fewer than `batch` of them."""
        return self._finite(self._asked(lambda seen: self.node(seen, rows), images).float(), rows)

    def direction(self, images: Tensor, rows: Tensor) -> Tensor:
        """One number per image (B,) that grows with the node."""
        values = self._asked(lambda seen: self.node.direction(seen, rows), images)
        return self._finite(values.float().unsqueeze(1), rows).squeeze(1)

    @torch.no_grad()
    def guess(self) -> Tensor | None:
        """Where the node itself says that it looks, (N, H, W) from 0 on; NaN for an image it is silent about.

        None for a node that has no such thing to say: then the network is not called.
        """
        offer: Guess | None = getattr(self.node, "guess", None)
        if offer is None:
            return None
        blocks = self.blocks(self.rows)
        told = [heat for block in blocks if (heat := self._told(offer, self.rows[block])) is not None]
        if not told:
            return None
        guess = torch.cat(told)[torch.cat(blocks).argsort()]
        low, high = guess.amin(dim=places(guess), keepdim=True), guess.amax(dim=places(guess), keepdim=True)
        return guess.where(low < high, torch.nan)  # the same everywhere is nowhere

    def _told(self, offer: Guess, rows: Tensor) -> Tensor | None:
        heat = self._asked(lambda seen: offer(seen, rows), self.images[rows])
        if heat is None:
            return None
        return self._finite(upsample(heat.float().relu(), self.size), rows, what="guess")

    def _asked(self, ask: Callable[[Tensor], T], images: Tensor) -> T:
        inputs = images.to(self._dtype)
        try:
            answer = self.folding.through(lambda: ask(inputs))
        except RuntimeError as error:
            if "view size is not compatible" not in str(error) or inputs.is_contiguous():
                raise
            self.images = self.images.contiguous()  # a network that flattens by view() wants channels first
            answer = self.folding.through(lambda: ask(inputs.contiguous()))
        self._forward += 0 if answer is None else len(images)
        return answer

    def _finite(self, values: Tensor, rows: Tensor, *, what: str = "activation") -> Tensor:
        if not torch.isfinite(values).all():
            wrong = int(rows[~torch.isfinite(values).flatten(1).all(dim=1)][0])
            raise ComputationError(
                f"the {what} of {self.node.name(wrong)} is not finite for image {wrong}; "
                "check the image's values, or use float32 if the model is in half precision"
            )
        return values

    def blocks(self, rows: Tensor, *, each: int = 1) -> list[Tensor]:
        """Which of the rows (M,) go through the network together, `each` images a row.

        At most `batch` images. On a CPU, where it costs nothing, images never share a call: a network rounds
        otherwise for another number of images, and an optimisation makes much of little differences, so that
        an image in company would get another map than alone.
        """
        size = max(1, self.batch // each)
        places = torch.arange(len(rows), device=rows.device)
        if rows.device.type != "cpu":
            return list(places.split(size))
        return [block for row in rows.unique().tolist() for block in places[rows == row].split(size)]

    @torch.no_grad()
    def activations(self, images: Tensor, rows: Tensor | None = None) -> Tensor:
        """The node on images (M, C, H, W) made of the `rows` (default: one of each), (M, K); no gradient."""
        rows = self.rows if rows is None else rows
        blocks = self.blocks(rows)
        found = torch.cat([self.activation(images[block], rows[block]) for block in blocks])
        return found[torch.cat(blocks).argsort()]

    @torch.no_grad()
    def answers(self, masks: Tensor, score: Score) -> Tensor:
        """The score of the node on every image under every mask (M, H, W), without gradient: (M, N)."""
        rows = self.rows.repeat(len(masks))
        masking = torch.arange(len(masks), device=rows.device).repeat_interleave(self.count)
        scores = []
        for some, which in zip(rows.split(self.batch), masking.split(self.batch), strict=True):
            masked = self.images[some] * masks[which].unsqueeze(1)
            scores.append(score(self.activation(masked, some), some))
        return torch.cat(scores).reshape(len(masks), self.count)

    @cached_property
    def wanted(self) -> Tensor:
        """What masking should keep, (N, K)."""
        fixed = self.node.target(self.rows)
        return self.activations(self.images) if fixed is None else fixed.float()

    @cached_property
    def blank(self) -> Tensor:
        """What images without content give, (N, K)."""
        return self.activations(torch.zeros_like(self.images))

    def gradient(self, masks: Tensor, rows: Tensor, loss: Loss, *, each: int) -> tuple[Tensor, Tensor]:
        """Losses (M,) and their gradient in the masks (M, H, W); a mask costs `each` masked images."""
        losses, gradients = [], []
        blocks = self.blocks(rows, each=each)
        for block in blocks:
            leaf = masks.detach()[block].clone().requires_grad_(True)
            value = loss(leaf, rows[block])
            if not value.requires_grad:
                raise UserError(f"{self.node.name(0)} has no gradient; explain it by the preset 'sampled'")
            (gradient,) = torch.autograd.grad(value.sum(), leaf, allow_unused=True, materialize_grads=True)
            self.count_backward(each * len(block))
            losses.append(value.detach())
            gradients.append(self._finite(gradient, rows[block], what="gradient"))
        order = torch.cat(blocks).argsort()
        return torch.cat(losses)[order], torch.cat(gradients)[order]


def check_images(images: Tensor, batch: int) -> None:
    """Raise a UserError unless these are images to explain, `batch` of them at a time."""
    if not isinstance(images, Tensor) or images.ndim not in (4, 5) or not images.is_floating_point():
        kind = (
            f"{images.dtype} {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        )
        raise UserError(f"images must be a float tensor (N, C, H, W) as the model wants them, not {kind}")
    if 0 in images.shape:
        raise UserError(f"images of shape {tuple(images.shape)} hold nothing to explain")
    if batch < 1:
        raise UserError(f"internal_batch_size must be at least 1, not {batch}")
    if not torch.isfinite(images).all():
        wrong = int((~torch.isfinite(images.flatten(1)).all(dim=1)).nonzero()[0])
        raise UserError(f"image {wrong} holds NaN or infinite values; mend it before explaining")
