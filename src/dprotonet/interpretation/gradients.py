"""Gradients of the node in the image, averaged: Integrated Gradients, and Input × Gradient with SmoothGrad.

The gradient at one image is noise for the most part; both methods take the mean over many: on the straight
way from a blank image (Sundararajan et al., 2017), or round the image (Smilkov et al., 2017). What a pixel
adds is that mean times its value, summed over channels. Blank is zero as the network sees it.
"""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.borrowed import borrowed, differentiable
from dprotonet.interpretation.explainer import Explainer, Question, signed_explained
from dprotonet.interpretation.kept_activation import NodeScore
from dprotonet.interpretation.masking_task import MaskingTask
from dprotonet.interpretation.outputs import GivenTask, Model
from dprotonet.interpretation.returned import OutputName

OUTLIERS = 0.01  # of the pixels: single ones would outshine all else in the heatmap; the raw map has them


class _MeanGradient(Explainer):
    """Image × mean gradient over `samples` variations of the image, which a subclass makes."""

    preset: str

    def __init__(
        self,
        model: Model | None = None,
        *,
        samples: int,
        classes: Sequence[str] = (),
        task: GivenTask = None,
        output: OutputName = None,
        internal_batch_size: int = 32,
    ) -> None:
        super().__init__(model, classes=classes, task=task, output=output, batch=internal_batch_size)
        if samples < 1:
            raise UserError(f"{self.title} with {samples} samples; at least 1 is possible")
        self.samples = samples

    @abstractmethod
    def varied(self, image: Tensor, numbers: Tensor) -> Tensor:
        """Variations (B, C, H, W) of an image (C, H, W), by their `numbers` (B,)."""

    def explained(self, question: Question) -> list[Explanation]:
        task = question.task()
        with borrowed(task.node.model), differentiable():
            score = NodeScore(task)
            raw = torch.stack([self._map(task, score, row) for row in range(task.count)])
        facts = {"preset": self.preset, "settings": self.settings()}
        return signed_explained(question, raw, passes=task.passes, facts=facts, outliers=OUTLIERS)

    def settings(self) -> dict[str, int | float]:
        return {"samples": self.samples}

    def _map(self, task: MaskingTask, score: NodeScore, row: int) -> Tensor:
        image = task.images[row]
        total = torch.zeros_like(image)
        for numbers in torch.arange(self.samples, device=image.device).split(task.batch):
            total += _gradient(task, score, self.varied(image, numbers), row).sum(dim=0)
        return (image * total / self.samples).sum(dim=0)


class IntegratedGradients(_MeanGradient):
    """What each pixel adds on the way from a blank image; the map sums to the node's rise on that way.

    The integral is taken at the middles of `samples` equal steps. One pass forward and backward each.
    """

    preset = "ig"

    def __init__(self, model: Model | None = None, *, samples: int = 50, **given: object) -> None:
        super().__init__(model, samples=samples, **given)  # type: ignore[arg-type]

    def varied(self, image: Tensor, numbers: Tensor) -> Tensor:
        return image * ((numbers + 0.5) / self.samples).view(-1, 1, 1, 1)


class SmoothGrad(_MeanGradient):
    """Input × Gradient, the gradient averaged over `samples` noisy copies of the image.

    `noise` is the standard deviation as a share of what lies between the image's lowest and highest value;
    0.15 as the paper recommends (0.1 to 0.2). The same noise for every image of a call.
    """

    preset = "smoothgrad"

    def __init__(
        self,
        model: Model | None = None,
        *,
        samples: int = 25,
        noise: float = 0.15,
        seed: int = 0,
        **given: object,
    ) -> None:
        super().__init__(model, samples=samples, **given)  # type: ignore[arg-type]
        if noise < 0:
            raise UserError(f"SmoothGrad with noise {noise}; it must not be negative")
        self.noise, self.seed = noise, seed

    def settings(self) -> dict[str, int | float]:
        return {"samples": self.samples, "noise": self.noise, "seed": self.seed}

    def varied(self, image: Tensor, numbers: Tensor) -> Tensor:
        noise = torch.stack([self._drawn(number, image.shape) for number in numbers.tolist()]).to(image)
        return image + self.noise * (image.max() - image.min()) * noise

    def _drawn(self, number: int, shape: torch.Size) -> Tensor:
        """By its number, so that blocks of any size see the same."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        return torch.randn(shape, generator=generator)


def _gradient(task: MaskingTask, score: NodeScore, images: Tensor, row: int) -> Tensor:
    """Of the node at variations (B, C, H, W) of one image, in them."""
    leaf = images.detach().requires_grad_(True)
    rows = torch.full((len(images),), row, device=images.device)
    value = score(task.activation(leaf, rows), rows)
    if not value.requires_grad:
        raise UserError(f"{task.node.name(row)} has no gradient; explain it by occlusion or by RISE")
    (gradient,) = torch.autograd.grad(value.sum(), leaf, allow_unused=True, materialize_grads=True)
    task.count_backward(len(images))
    return gradient
