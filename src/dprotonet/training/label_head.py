"""The head of several labels in closed form: what each prototype of a label weighs, and the label's bias.

Given the scores, a logistic regression of each label on its own prototypes is convex, so it is solved rather
than stepped towards, after every push. Weights are not negative: what looks like a label never speaks against
it, and the part of a label that tells nothing weighs nothing.
"""

import torch
from torch import Tensor

from dprotonet.inference.several_labels import LabelHead

RIDGE = 3e-3  # on weights of scores of unit spread; not tuned, see docs/labels.md
FITTED = 50_000  # images at most, evenly spread
_STEPS = 400


@torch.no_grad()
def fit_label_head(
    head: LabelHead, scores: Tensor, labels: Tensor, prototype_class: Tensor, *, ridge: float = RIDGE
) -> None:
    """Set weights and bias from scores (N, P) and labels (N, L); other labels' prototypes weigh nothing."""
    scores, labels = scores.double().cpu(), labels.double().cpu()
    owner = prototype_class.cpu()
    head.weight.zero_()
    for label in range(labels.shape[1]):
        own = (owner == label).nonzero().squeeze(1)
        weight, bias = logistic_fit(scores[:, own], labels[:, label], ridge=ridge)
        head.weight[label, own.to(head.weight.device)] = weight.to(head.weight)
        head.bias[label] = bias.to(head.bias)


def logistic_fit(
    scores: Tensor, truth: Tensor, *, ridge: float, negative: bool = False
) -> tuple[Tensor, Tensor]:
    """Weights (K,), not negative unless asked for, and bias: the least mean cross-entropy of truth (N,).

    A projected gradient with momentum on scores of zero mean and unit spread. A label that all images or
    none have has no finite bias: one image of the other kind is added in thought.
    """
    mean, spread = scores.mean(dim=0), scores.std(dim=0, correction=0).clamp_min(1e-9)
    rows = torch.cat([(scores - mean) / spread, torch.ones_like(scores[:, :1])], dim=1)  # the last: the bias
    count = len(rows)
    penalty = torch.full((rows.shape[1],), ridge, dtype=rows.dtype)
    penalty[-1] = 0.0
    step = 1 / (torch.linalg.eigvalsh(rows.T @ rows / count)[-1] / 4 + ridge)
    share = (truth.sum() + 0.5) / (count + 1)
    found = torch.zeros(rows.shape[1], dtype=rows.dtype)
    found[-1] = torch.logit(share)
    ahead, momentum = found.clone(), 1.0
    wanted = truth.clamp(1 / (count + 2), 1 - 1 / (count + 2))
    for _ in range(_STEPS):
        slope = rows.T @ ((rows @ ahead).sigmoid() - wanted) / count + penalty * ahead
        fresh = ahead - step * slope
        if not negative:
            fresh[:-1].clamp_min_(0)
        after = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = fresh + (momentum - 1) / after * (fresh - found)
        found, momentum = fresh, after
    weight = found[:-1] / spread
    return weight, found[-1] - weight @ mean
