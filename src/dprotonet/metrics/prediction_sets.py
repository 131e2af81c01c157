"""Several classes instead of one, so that the truth is among them as often as was asked for.

Split conformal prediction (Vovk et al., 2005; the least ambiguous sets of Sadinle et al., 2019): the score of
a labelled image is 1 - the probability of its true class; a new image's set has every class whose score is
not above the limit. With scores of n images that are exchangeable with new ones, the truth is in the set with
at least the share asked for: on average over images, not for each class or each kind of image.
"""

import math

import torch
from torch import Tensor

from dprotonet.metrics.guards import class_numbers, within_unit


def conformal_scores(probabilities: Tensor, labels: Tensor) -> Tensor:
    """1 - the probability of the true class, (N,), from probabilities (N, C) and labels (N,)."""
    shares = within_unit(probabilities.detach().cpu().double(), "probabilities")
    truth = class_numbers(labels.cpu(), "label", shares.shape[1])
    return 1 - shares.gather(1, truth[:, None]).flatten()


def images_for(coverage: float) -> int:
    """How many scores are needed before so much can be promised."""
    return math.ceil(_share(coverage) / (1 - coverage) - 1e-9)


def most_covered(images: int) -> float:
    """What can be promised at most with so many scores."""
    return images / (images + 1)


def score_limit(scores: Tensor, coverage: float) -> float:
    """The limit such that new images are covered with that share: the k-th smallest of n scores (N,).

    k is (n + 1) × coverage, rounded up; an error where that is more than n.
    """
    count = len(scores)
    rank = math.ceil((count + 1) * _share(coverage) - 1e-9)
    if rank > count:
        raise ValueError(f"coverage {coverage} needs {images_for(coverage)} scores, and there are {count}")
    return scores.double().sort().values[rank - 1].item()


def prediction_set(probabilities: Tensor, limit: float) -> Tensor:
    """Which classes are in the set, bool (…, C): all within the limit, and always the likeliest."""
    within = 1 - probabilities <= limit + 1e-12
    likeliest = torch.nn.functional.one_hot(probabilities.argmax(dim=-1), probabilities.shape[-1]).bool()
    return within | likeliest


def _share(coverage: float) -> float:
    if not 0 < coverage < 1:
        raise ValueError(f"coverage is {coverage}; it must lie between 0 and 1")
    return coverage
