"""`dp.ImageClassifier`: what scikit-learn asks of a classifier, with images."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils import estimator_checks as checks

import dprotonet as dp
from dprotonet.errors import UserError

TINY = {
    "backbone": "timm:test_resnet:none",
    "image_size": 64,
    "prototypes_per_class": 2,
    "epochs": 2,
    "batch_size": 8,
    "val_fraction": 0.25,
    "random_state": 0,
    "settings": {
        "dimension": 8,
        "regions": "masks",
        "masks": 6,
        "push_every": 2,
        "warm_epochs": 0,
        "last_layer_epochs": 1,
        "push_images": 2,
        "augmentations": 0,
        "shaping_start": "random",
    },
}


def classifier(**changes: Any) -> dp.ImageClassifier:
    return dp.ImageClassifier(**{**TINY, **changes})


@pytest.fixture(scope="module")
def images() -> tuple[np.ndarray, np.ndarray]:
    """Bright and dark noise: (N, 32, 32, 3) and the classes."""
    random = np.random.default_rng(0)
    dark = random.integers(0, 90, (10, 32, 32, 3))
    bright = random.integers(160, 256, (10, 32, 32, 3))
    return np.concatenate([dark, bright]).astype(np.uint8), np.array(["dark"] * 10 + ["bright"] * 10)


@pytest.fixture(scope="module")
def fitted(images: tuple[np.ndarray, np.ndarray]) -> dp.ImageClassifier:
    return classifier().fit(*images)


def test_it_learns_and_answers_by_classes(
    fitted: dp.ImageClassifier, images: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = images
    assert fitted.classes_.tolist() == ["bright", "dark"]
    probabilities = fitted.predict_proba(X)
    assert probabilities.shape == (20, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert (fitted.predict(X) == fitted.classes_[probabilities.argmax(axis=1)]).all()
    assert fitted.score(X, y) == (fitted.predict(X) == y).mean()
    assert fitted.score(X, y) > 0.5


def test_paths_and_arrays_are_the_same_images(
    fitted: dp.ImageClassifier, images: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path, pixels in zip(paths, images[0], strict=False):
        Image.fromarray(pixels).save(path)
    expected = fitted.predict_proba(images[0][:3])
    np.testing.assert_array_equal(fitted.predict_proba(paths), expected)
    np.testing.assert_array_equal(fitted.predict_proba(np.array([str(path) for path in paths])), expected)


def test_the_same_seed_fits_the_same(
    fitted: dp.ImageClassifier, images: tuple[np.ndarray, np.ndarray]
) -> None:
    again = clone(fitted).fit(*images)
    np.testing.assert_array_equal(again.predict_proba(images[0]), fitted.predict_proba(images[0]))


def test_its_model_explains(fitted: dp.ImageClassifier, images: tuple[np.ndarray, np.ndarray]) -> None:
    (found,) = dp.explainer(fitted.model_, method="gradcam")(images[0][0])
    assert found.class_name in fitted.model_.classes


def test_a_copy_outlives_its_original(images: tuple[np.ndarray, np.ndarray]) -> None:
    original = classifier().fit(*images)
    place, expected = original.out_, original.predict_proba(images[0])
    content = pickle.dumps(original)
    original._tidy()
    assert not place.exists()
    copy = pickle.loads(content)
    np.testing.assert_array_equal(copy.predict_proba(images[0]), expected)
    assert pickle.loads(pickle.dumps(classifier())).get_params() == classifier().get_params()


def test_numbers_as_classes_and_a_folder_of_its_own(
    images: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    X, y = images
    found = classifier(out=str(tmp_path / "run")).fit(X, (y == "dark") * 7)
    assert set(found.predict(X)) <= {0, 7}
    assert dp.load(tmp_path / "run").classes == found.model_.classes


def test_in_a_search(images: tuple[np.ndarray, np.ndarray]) -> None:
    search = GridSearchCV(classifier(), {"prototypes_per_class": [1, 2]}, cv=2, error_score="raise")
    search.fit(*images)
    assert search.best_params_["prototypes_per_class"] in (1, 2)
    assert search.best_estimator_.predict(images[0]).shape == (20,)


def test_in_cross_validation(images: tuple[np.ndarray, np.ndarray]) -> None:
    assert cross_val_score(classifier(), *images, cv=2, error_score="raise").shape == (2,)


@pytest.mark.parametrize(
    "check",
    [
        checks.check_estimator_cloneable,
        checks.check_estimator_tags_renamed,
        checks.check_valid_tag_types,
        checks.check_estimator_repr,
        checks.check_no_attributes_set_in_init,
        checks.check_parameters_default_constructible,
        checks.check_get_params_invariance,
        checks.check_set_params,
        checks.check_do_not_raise_errors_in_init_or_set_params,
        checks.check_mixin_order,
    ],
    ids=lambda check: check.__name__,
)
def test_scikit_learns_own_checks(check: Any) -> None:
    """Those that need no table of numbers, which is no image."""
    check("ImageClassifier", dp.ImageClassifier())


def test_what_it_refuses(images: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = images
    with pytest.raises(NotFittedError, match="not fitted"):
        classifier().predict(X)
    with pytest.raises(ValueError, match="give a class for each"):
        classifier().fit(X, y[:3])
    with pytest.raises(ValueError, match="needs two at least"):
        classifier().fit(X, ["one"] * len(X))
    with pytest.raises(UserError, match="uint8 from 0 to 255"):
        classifier().fit(np.zeros((20, 8)), y)
    with pytest.raises(UserError, match="val_fraction is 1"):
        classifier(val_fraction=1).fit(X, y)
