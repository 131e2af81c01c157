"""What a node loses when parts of the image are hidden: occlusion, LIME and Kernel-SHAP by superpixels.

All three only ask: parts become blank (zero as the network sees it), and the activations are turned into what
each part is worth. Occlusion slides a window; LIME fits a linear model near the image (Ribeiro et al., 2016);
Kernel-SHAP fits the one whose coefficients are Shapley values (Lundberg and Lee, 2017).
"""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.borrowed import borrowed
from dprotonet.interpretation.explainer import Explainer, Question, signed_explained
from dprotonet.interpretation.kept_activation import NodeScore
from dprotonet.interpretation.masking_task import MaskingTask
from dprotonet.interpretation.outputs import GivenTask, Model
from dprotonet.interpretation.returned import OutputName
from dprotonet.interpretation.superpixels import superpixels

_ROUNDING = 1e-6  # scores that differ less, relative to their size, differ by rounding only


class _HiddenParts(Explainer):
    """Parts (K, H, W) of an image, and what each is worth by the scores of images that keep some of them."""

    preset: str
    settings: dict[str, int | float]

    def __init__(
        self,
        model: Model | None = None,
        *,
        classes: Sequence[str] = (),
        task: GivenTask = None,
        output: OutputName = None,
        internal_batch_size: int = 32,
    ) -> None:
        super().__init__(model, classes=classes, task=task, output=output, batch=internal_batch_size)

    @abstractmethod
    def map_of(self, task: MaskingTask, score: NodeScore, row: int) -> Tensor:
        """The map (H, W) of one image."""

    def explained(self, question: Question) -> list[Explanation]:
        task = question.task()
        with borrowed(task.node.model), torch.inference_mode(False), torch.no_grad():
            score = NodeScore(task)
            raw = torch.stack([self.map_of(task, score, row) for row in range(task.count)])
        facts = {"preset": self.preset, "settings": self.settings}
        return signed_explained(question, raw, passes=task.passes, facts=facts)


class Occlusion(_HiddenParts):
    """How far the node falls while a window hides a pixel, the mean over windows (Zeiler and Fergus, 2014).

    `windows` × `windows` places, evenly spread, each a `share` of either side: by default neighbours overlap
    by half, and 1 + 169 passes per image.
    """

    preset = "occlusion"

    def __init__(
        self, model: Model | None = None, *, windows: int = 13, share: float = 1 / 7, **given: object
    ) -> None:
        super().__init__(model, **given)  # type: ignore[arg-type]
        if windows < 2 or not 1 / windows <= share < 1:
            raise UserError(
                f"occlusion with {windows} windows of {share:.3g} a side: 2 windows or more, "
                "wide enough to cover the image and smaller than it, are possible"
            )
        self.windows, self.share = windows, share
        self.settings = {"windows": windows, "share": share}

    def map_of(self, task: MaskingTask, score: NodeScore, row: int) -> Tensor:
        down, along = (self._strips(side).to(task.images.device) for side in task.size)
        hidden = (down[:, None, :, None] & along[None, :, None, :]).flatten(0, 1)  # (windows², H, W)
        kept = torch.cat([torch.ones_like(hidden[:1]), ~hidden])
        scores = kept_scores(task, score, row, kept)
        fall = (scores[0] - scores[1:]).view(-1, 1, 1)
        return (fall * hidden).sum(dim=0) / hidden.sum(dim=0)

    def _strips(self, side: int) -> Tensor:
        """Where each window lies along a side, bool (windows, side)."""
        width = max(1, -(-round(self.share * side * 1e6) // 10**6))
        starts = torch.linspace(0, side - width, self.windows).round().long().unsqueeze(1)
        places = torch.arange(side)
        return (places >= starts) & (places < starts + width)


class _Superpixels(_HiddenParts):
    """Superpixels are kept or hidden in `samples` combinations; all of a superpixel gets its worth.

    `grid` × `grid` superpixels at most. The same combinations for every image of a call with as many.
    """

    def __init__(
        self,
        model: Model | None = None,
        *,
        samples: int = 300,
        grid: int = 7,
        seed: int = 0,
        **given: object,
    ) -> None:
        super().__init__(model, **given)  # type: ignore[arg-type]
        if samples < 4 or grid < 2:
            raise UserError(f"{self.title} with {samples} samples, grid {grid}: 4 and 2 at least")
        self.samples, self.grid, self.seed = samples, grid, seed
        self.settings = {"samples": samples, "grid": grid, "seed": seed}

    @abstractmethod
    def kept(self, parts: int) -> Tensor:
        """Which parts each sample keeps, bool (samples or fewer, parts); the first all of them."""

    @abstractmethod
    def worth(self, kept: Tensor, scores: Tensor) -> Tensor:
        """What each part is worth (parts,), in float64; from what was kept (M, parts) and scores (M,)."""

    def map_of(self, task: MaskingTask, score: NodeScore, row: int) -> Tensor:
        parts = superpixels(task.images[row], grid=self.grid)
        kept = self.kept(int(parts.max()) + 1)
        scores = kept_scores(task, score, row, kept.to(parts.device)[:, parts])
        worth = self.worth(kept.double(), scores.cpu().double())
        return worth.float().to(parts.device)[parts]


class Lime(_Superpixels):
    """A ridge regression of the node on which superpixels are kept, those near the whole image first.

    As the authors' package: each is kept with probability 1/2, the weight of a sample is
    exp(-d² / 0.25²) under a root, d its cosine distance from the whole image, and the penalty is 1.
    Deviation: what is hidden is blank, not the mean colour of its superpixel, so that plain areas count too.
    """

    preset = "lime"

    def kept(self, parts: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        drawn = torch.rand(self.samples, parts, generator=generator) < 0.5
        drawn[0] = True
        return drawn

    def worth(self, kept: Tensor, scores: Tensor) -> Tensor:
        distance = 1 - kept.mean(dim=1).sqrt()
        weight = (-0.5 * (distance / 0.25).square()).exp()
        return fitted(kept, scores, weight, penalty=1.0)


class KernelShap(_Superpixels):
    """Shapley values of superpixels: they sum to what the node has on the image beyond a blank one.

    Combinations are drawn by the Shapley kernel, each with its opposite; where there are no more of them than
    `samples`, all are taken once and the values are exact.
    """

    preset = "kernelshap"

    def kept(self, parts: int) -> Tensor:
        ends = torch.tensor([[True], [False]]).expand(2, parts)
        if parts < 2:
            return ends
        if parts < 24 and 2**parts <= self.samples:
            numbers = torch.arange(1, 2**parts - 1).unsqueeze(1)
            return torch.cat([ends, (numbers >> torch.arange(parts)) % 2 == 1])
        generator = torch.Generator().manual_seed(self.seed)
        sizes = torch.arange(1, parts, dtype=torch.double)
        half = (self.samples - 2) // 2
        drawn = 1 + torch.multinomial(1 / (sizes * (parts - sizes)), half, True, generator=generator)
        places = torch.rand(half, parts, generator=generator).argsort(dim=1).argsort(dim=1)
        some = places < drawn.unsqueeze(1)
        return torch.cat([ends, some, ~some])

    def worth(self, kept: Tensor, scores: Tensor) -> Tensor:
        """Least squares among those that sum to the whole, which the last part takes up."""
        rise, parts = scores[0] - scores[1], kept.shape[1]
        if parts == 1:
            return rise.reshape(1)
        some, over = kept[2:], scores[2:] - scores[1]
        size = some.sum(dim=1)
        weight = torch.ones_like(size)
        if len(some) == 2**parts - 2:  # all of them, not drawn by the kernel
            choices = (torch.lgamma(torch.tensor(parts + 1.0)) - torch.lgamma(size + 1)).sub(
                torch.lgamma(parts - size + 1)
            )
            weight = (parts - 1) / (choices.exp() * size * (parts - size))
        first = some[:, :-1] - some[:, -1:]
        found = least_squares(first, over - rise * some[:, -1], weight)
        return torch.cat([found, (rise - found.sum()).reshape(1)])


def kept_scores(task: MaskingTask, score: NodeScore, row: int, kept: Tensor) -> Tensor:
    """The node on one image of which only some pixels are kept, bool (M, H, W), the others blank: (M,)."""
    found = []
    for some in kept.split(task.batch):
        rows = torch.full((len(some),), row, device=kept.device)
        found.append(score(task.activation(task.images[row] * some.unsqueeze(1), rows), rows))
    scores = torch.cat(found)
    span, size = scores.max() - scores.min(), scores.abs().max()
    return scores if span > _ROUNDING * size else scores[:1].expand_as(scores)


def fitted(inputs: Tensor, wanted: Tensor, weight: Tensor, *, penalty: float) -> Tensor:
    """Coefficients of a weighted ridge regression with an intercept, which is not penalised."""
    total = weight.sum()
    inputs = inputs - (weight.unsqueeze(1) * inputs).sum(dim=0) / total
    wanted = wanted - (weight * wanted).sum() / total
    scaled = weight.unsqueeze(1) * inputs
    system = scaled.T @ inputs + penalty * torch.eye(inputs.shape[1], dtype=inputs.dtype)
    return torch.linalg.solve(system, scaled.T @ wanted)


def least_squares(inputs: Tensor, wanted: Tensor, weight: Tensor) -> Tensor:
    """Weighted, the shortest of equals."""
    root = weight.sqrt().unsqueeze(1)
    solution: Tensor = torch.linalg.lstsq(root * inputs, root.squeeze(1) * wanted, driver="gelsd").solution
    return solution
