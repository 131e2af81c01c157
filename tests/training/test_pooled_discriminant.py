"""The discriminant of pooled features, against scikit-learn's and against the rule written out."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.regions import Masks
from dprotonet.network import BlackBox
from dprotonet.training.discriminant import ClassMoments
from dprotonet.training.features import FeatureViews
from dprotonet.training.pooled_discriminant import (
    discriminant_rule,
    fit_discriminant,
    start_head_as_discriminant,
)


def cloud(labels: Tensor, *, apart: float = 1.0, dimension: int = 12, seed: int = 0) -> Tensor:
    """Vectors of classes that overlap; class means are the same for every seed, the noise is not."""
    fixed, drawn = torch.Generator().manual_seed(0), torch.Generator().manual_seed(seed)
    centres = apart * torch.randn(int(labels.max()) + 1, dimension, generator=fixed)
    mixing = torch.randn(dimension, dimension, generator=fixed)
    return 7 + centres[labels] + torch.randn(len(labels), dimension, generator=drawn) @ mixing


def moments_of(vectors: Tensor, labels: Tensor) -> ClassMoments:
    moments = ClassMoments(int(labels.max()) + 1, vectors.shape[1])
    moments.update(vectors, labels)
    return moments


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("shrinkage", [0.3, 0.7])
def test_it_is_that_of_scikit_learn(classes: int, shrinkage: float) -> None:
    labels = torch.arange(20 * classes) % classes
    vectors, asked = cloud(labels), cloud(labels, seed=1)
    oracle = LinearDiscriminantAnalysis(
        solver="lsqr", shrinkage=shrinkage, priors=np.full(classes, 1 / classes)
    ).fit(vectors.double().numpy(), labels.numpy())
    logits = discriminant_rule(moments_of(vectors, labels), shrinkage=shrinkage).logits(asked)
    wanted = oracle.predict(asked.double().numpy())
    assert 0.3 < (wanted == labels.numpy()).mean() < 1  # some answers are wrong, so equal ones say something
    np.testing.assert_array_equal(logits.argmax(1).numpy(), wanted)
    probabilities = oracle.predict_proba(asked.double().numpy())
    np.testing.assert_allclose(logits.softmax(1).numpy(), probabilities, rtol=1e-3, atol=1e-4)


def test_classes_of_other_sizes_are_as_likely() -> None:
    """Where scikit-learn weighs covariances by the priors, ours is of all vectors alike."""
    labels = torch.tensor([0] * 50 + [1] * 7 + [2] * 20)
    vectors = cloud(labels)
    means = torch.stack([vectors[labels == label].double().mean(0) for label in range(3)])
    about = vectors.double() - means[labels]
    within = about.T @ about / len(labels)
    shrunk = 0.5 * within + 0.5 * within.diagonal().mean() * torch.eye(12)
    logits = discriminant_rule(moments_of(vectors, labels), shrinkage=0.5).logits(vectors).double()
    for row, found in zip(vectors.double(), logits, strict=True):
        apart = row - means
        literal = -0.5 * (apart @ torch.linalg.inv(shrunk) * apart).sum(1)
        torch.testing.assert_close(found - found[0], literal - literal[0], rtol=1e-3, atol=1e-3)


def views(vectors: Tensor, labels: Tensor) -> FeatureViews:
    """As cached maps (N, V, D, 2, 1) whose global average is the vector (N, V, D)."""
    shift = torch.tensor([1.0, -1.0]).reshape(2, 1)
    return FeatureViews((vectors[..., None, None] + shift).numpy(), labels.tolist())


def test_all_variants_are_learned_from_and_plain_images_judged() -> None:
    labels = torch.arange(30) % 3
    plain, augmented, val = (cloud(labels, seed=seed) for seed in (0, 1, 2))
    train = views(torch.stack([plain, augmented], dim=1), labels)
    judged = views(torch.stack([val, torch.zeros_like(val)], dim=1), labels)
    found = fit_discriminant(train, judged, classes=3)
    both = moments_of(torch.cat([plain, augmented]), labels.repeat(2))
    rule = discriminant_rule(both, shrinkage=found.strength)
    torch.testing.assert_close(found.predictions(judged).logits, rule.logits(val), rtol=1e-3, atol=1e-3)
    assert found.val_accuracy == (rule.logits(val).argmax(1) == labels).double().mean().item()


@pytest.mark.parametrize("strength", [0.3, 0.5, 0.7])
def test_the_shrinkage_is_the_best_on_validation_images(strength: float) -> None:
    """Planted: validation images have the labels that the rule of one shrinkage would give them."""
    labels = torch.arange(15) % 3
    train, val = cloud(labels), cloud(torch.arange(900) % 3, seed=3)
    rule = discriminant_rule(moments_of(train, labels), shrinkage=strength)
    judged = views(val.unsqueeze(1), rule.logits(val).argmax(1))
    found = fit_discriminant(views(train.unsqueeze(1), labels), judged, classes=3)
    assert found.strength == strength
    assert found.val_accuracy > 0.999  # up to the rounding of an average


def test_a_head_starts_as_the_rule_and_as_sure_as_it_may_be() -> None:
    """Its answers are the rule's; its sureness that of images which the rule has not seen."""
    labels = torch.arange(48) % 4  # fewer than dimensions: the rule is far too sure
    vectors, fresh = (cloud(labels, apart=2.0, dimension=64, seed=seed) for seed in (0, 1))
    whole = Masks(torch.ones(1, 1, 2, 1), dimension=64)
    network = BlackBox(Encoder(nn.Identity(), nn.Identity(), whole), nn.Linear(64, 4))
    start_head_as_discriminant(network, views(vectors.unsqueeze(1), labels), device=torch.device("cpu"))
    rule = discriminant_rule(moments_of(vectors, labels), shrinkage=0.5)
    logits, own = rule.logits(fresh), network.head(fresh)
    ratio = network.head.weight.double() / rule.weight
    torch.testing.assert_close(ratio, ratio.mean().expand_as(ratio), rtol=1e-3, atol=1e-3)
    assert (own.argmax(1) == logits.argmax(1)).all()
    assert cross_entropy(own, labels) < 0.8 * cross_entropy(logits, labels)
