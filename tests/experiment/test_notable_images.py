"""Which images are chosen: by hand on a split small enough to see."""

import torch

from dprotonet.experiment.explaining.notable_images import NotableImages, notable_images
from dprotonet.training.evaluation import Predictions

#        truth, answer, how sure
CASES = [(0, 0, 9), (0, 0, 8), (1, 1, 7), (0, 1, 6), (0, 1, 5), (1, 0, 4), (1, 1, 1), (0, 1, 0.5)]


def predictions(cases: list[tuple[int, int, float]] = CASES) -> Predictions:
    logits = torch.zeros(len(cases), 2)
    for place, (_, answer, sure) in enumerate(cases):
        logits[place, answer] = sure
    return Predictions(logits, torch.tensor([truth for truth, _, _ in cases]))


def test_surest_of_each_class_and_of_each_mix_up_come_first() -> None:
    assert notable_images(predictions(), sure=3, unsure=2, mistakes=3) == NotableImages(
        sure=(0, 2, 1), unsure=(7, 6), mistakes=(3, 5, 4)
    )


def test_no_image_is_chosen_twice() -> None:
    found = notable_images(predictions(), sure=8, unsure=8, mistakes=8)
    assert sorted((*found.sure, *found.unsure, *found.mistakes)) == list(range(8))
    assert found.unsure == ()


def test_a_perfect_classifier_has_no_mistakes() -> None:
    found = notable_images(predictions([(0, 0, 3), (1, 1, 2)]), sure=1, unsure=1, mistakes=1)
    assert found == NotableImages(sure=(0,), unsure=(1,), mistakes=())
