"""The built-in birds: what they promise about species, scenes, masks and repeatability."""

import pickle

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import max_pool2d
from torch.utils.data import DataLoader

from dprotonet.data.base import Sample
from dprotonet.data.birds import Birds, bird_splits
from dprotonet.data.birds.canvas import Canvas, coverage, enlarged
from dprotonet.data.birds.outline import joined, oval
from dprotonet.data.birds.species import ABSENT, MOST, PARTS, all_species
from dprotonet.errors import UserError

SIZE = 112
# The farthest a painted pixel can be seen outside its mask: the soft edge of a marking, the blur of the lens,
# the soft edge of a leaf in front, and two pixels for rounding; a blur reaches 2.5 times its width.
REACH = round(SIZE * 2.5 * (0.006 * 1.24 + 0.0045 + 0.008)) + 2


def dilated(mask: Tensor, reach: int = REACH) -> Tensor:
    return max_pool2d(mask[None].float(), 2 * reach + 1, stride=1, padding=reach)[0] > 0


def changed(one: Tensor, two: Tensor) -> Tensor:
    return (one != two).any(dim=0)


def digest(sample: Sample) -> tuple[bytes, int, str]:
    return sample.image.numpy().tobytes(), sample.label, sample.name


class Digests:
    """A data set of what a sample is in bytes, which a loader can pass between processes."""

    def __init__(self, birds: Birds) -> None:
        self.birds = birds

    def __len__(self) -> int:
        return len(self.birds)

    def __getitem__(self, index: int) -> tuple[int, bytes]:
        sample = self.birds[index]
        masks = torch.stack([*sample.parts.values()]).numpy().tobytes()
        return index, sample.image.numpy().tobytes() + masks


def loaded(birds: Birds, *, workers: int, shuffle: bool) -> dict[int, bytes]:
    generator = torch.Generator().manual_seed(5)
    loader: DataLoader = DataLoader(
        Digests(birds),  # type: ignore[arg-type]
        batch_size=None,
        num_workers=workers,
        shuffle=shuffle,
        generator=generator,
    )
    return dict(loader)


# species


def test_all_species_are_distinct_in_looks_and_in_name() -> None:
    table = all_species()
    looks = {tuple(s.variants[part] for part in PARTS) for s in table}
    assert len(table) == len(looks) == len({s.name for s in table}) == MOST


def test_siblings_differ_in_exactly_their_deciding_part() -> None:
    table = all_species()
    for one, two in zip(table[::2], table[1::2], strict=True):
        assert one.differs_in(two) == (one.deciding_part,) == (two.deciding_part,)
        assert one.plumage == two.plumage
        assert ABSENT not in (one.variants[one.deciding_part].form, two.variants[two.deciding_part].form)


def test_strangers_differ_in_several_parts() -> None:
    table = all_species()
    for i, one in enumerate(table):
        assert all(
            len(one.differs_in(two)) >= 3
            for two in table[i + 1 :]
            if two.name.split()[1] != one.name.split()[1]
        )


def test_every_part_decides_somewhere() -> None:
    assert {s.deciding_part for s in all_species()} == set(PARTS)


def test_a_species_does_not_depend_on_how_many_there_are() -> None:
    few, many = Birds(species=3, per_species=1, size=48), Birds(species=200, per_species=1, size=48)
    assert few.species == many.species[:3]
    assert torch.equal(few.render(2, species=2).image, many.render(2, species=2).image)
    assert few[2].deciding_part == many[2].deciding_part is not None


# samples


def test_a_sample_is_well_formed() -> None:
    birds = Birds(species=4, per_species=2, size=SIZE)
    sample = birds[5]
    assert sample.image.shape == (3, SIZE, SIZE)
    assert sample.image.dtype == torch.uint8
    assert (sample.label, sample.name) == (1, "birds/train/5")
    assert sample.truth is not None
    assert sample.truth.shape == (SIZE, SIZE)
    assert sample.truth.dtype == torch.bool
    assert tuple(sample.parts) == PARTS
    assert sample.deciding_part == birds.species[1].deciding_part


def test_labels_are_balanced_and_known_without_drawing() -> None:
    birds = Birds(species=5, per_species=3, size=32)
    assert birds.labels == (0, 1, 2, 3, 4) * 3
    assert [birds[i].label for i in range(6)] == list(birds.labels[:6])
    assert len(birds.classes) == len(set(birds.classes)) == 5


def test_an_index_counts_as_in_a_list() -> None:
    birds = Birds(species=2, per_species=2, size=32)
    assert digest(birds[-1]) == digest(birds[3])
    with pytest.raises(IndexError, match="4 pictures"):
        birds[4]


@pytest.mark.parametrize("size", [32, 75, 224])
def test_any_size_can_be_drawn(size: int) -> None:
    sample = Birds(species=2, per_species=1, size=size)[0]
    assert sample.image.shape == (3, size, size)
    assert sample.truth is not None
    assert 0.05 < sample.truth.float().mean() < 0.6


def test_parts_are_disjoint_within_the_truth_and_mostly_visible() -> None:
    birds = Birds(species=12, per_species=5, size=SIZE)
    seen: dict[str, list[bool]] = {part: [] for part in PARTS}
    for index in range(len(birds)):
        sample = birds[index]
        stack = torch.stack([sample.parts[part] for part in PARTS])
        assert sample.truth is not None
        assert sample.truth.any()
        assert stack.sum(dim=0).max() <= 1
        assert not (stack.any(dim=0) & ~sample.truth).any()
        for part, mask in sample.parts.items():
            if birds.species[sample.label].variants[part].form == ABSENT:
                assert not mask.any()
            else:
                seen[part].append(int(mask.sum()) >= 8)
    assert {part for part, hits in seen.items() if np.mean(hits) < 0.85} == set()


def test_the_deciding_part_can_be_seen() -> None:
    birds = Birds(species=12, per_species=5, size=SIZE, split="test")
    samples = [birds[index] for index in range(len(birds))]
    visible = [int(s.parts[s.deciding_part].sum()) >= 12 for s in samples if s.deciding_part]
    assert len(visible) == len(samples)
    assert np.mean(visible) > 0.9


# one scene, many species


@pytest.mark.parametrize("pair", range(9))
def test_siblings_in_one_scene_differ_only_in_the_deciding_part(pair: int) -> None:
    birds = Birds(species=18, per_species=4, size=SIZE)
    differences = 0
    for index in range(4):
        one, two = birds.render(index, species=2 * pair), birds.render(index, species=2 * pair + 1)
        assert one.deciding_part is not None
        part = dilated(one.parts[one.deciding_part] | two.parts[one.deciding_part])
        difference = changed(one.image, two.image)
        assert not (difference & ~part).any()
        differences += int(difference.sum())
    assert differences > 0


def test_another_species_leaves_the_background_as_it_was() -> None:
    birds = Birds(species=12, per_species=1, size=SIZE)
    for index in range(6):
        one, two, empty = (
            birds.render(index, species=0),
            birds.render(index, species=7),
            birds.background(index),
        )
        assert one.truth is not None
        assert two.truth is not None
        outside = ~dilated(one.truth | two.truth)
        assert outside.float().mean() > 0.2
        assert not (changed(one.image, two.image) & outside).any()
        assert not (changed(one.image, empty) & outside).any()
        assert changed(one.image, two.image).any()


def ridge_accuracy(features: Tensor, labels: Tensor, classes: int) -> float:
    """Held-out accuracy of a linear classifier: fitted to the first two thirds, asked about the rest."""
    features = (features - features.mean(dim=0)) / (features.std(dim=0) + 1e-6)
    features = torch.cat([features, torch.ones(len(features), 1)], dim=1).double()
    cut = 2 * len(features) // 3
    fit, goal = features[:cut], torch.eye(classes).double()[labels[:cut]]
    weights = torch.linalg.solve(fit.T @ fit + 100 * torch.eye(fit.shape[1]).double(), fit.T @ goal)
    return (features[cut:] @ weights).argmax(dim=1).eq(labels[cut:]).float().mean().item()


def thumbnails(images: list[Tensor]) -> Tensor:
    return torch.stack(
        [torch.nn.functional.adaptive_avg_pool2d(image.float(), 8).flatten() for image in images]
    )


def test_the_background_says_nothing_of_the_species() -> None:
    birds = Birds(species=4, per_species=75, size=32)
    labels = torch.tensor(birds.labels)
    empty = ridge_accuracy(thumbnails([birds.background(i) for i in range(len(birds))]), labels, 4)
    whole = ridge_accuracy(thumbnails([birds[i].image for i in range(len(birds))]), labels, 4)
    # Chance is 0.25 with a standard error of 0.043 over 100 held-out pictures; the bird itself must beat it.
    assert 0.25 - 4 * 0.043 < empty < 0.25 + 4 * 0.043
    assert whole > 0.25 + 4 * 0.043


# repeatability


def test_the_same_index_gives_the_same_bytes_whatever_the_workers_and_the_order() -> None:
    birds = Birds(species=3, per_species=4, size=64)
    plain = {index: data for index, data in (Digests(birds)[i] for i in range(len(birds)))}
    assert loaded(birds, workers=0, shuffle=False) == plain
    assert loaded(birds, workers=2, shuffle=True) == plain
    assert len(set(plain.values())) == len(plain)


def test_data_set_and_sample_can_be_sent_to_another_process() -> None:
    birds = Birds(species=2, per_species=1, size=32)
    there = pickle.loads(pickle.dumps(birds))
    assert digest(pickle.loads(pickle.dumps(there[1]))) == digest(birds[1])


def test_drawing_leaves_the_global_random_numbers_alone() -> None:
    birds = Birds(species=2, per_species=1, size=32)
    first = digest(birds[0])
    np.random.seed(1)
    torch.manual_seed(1)
    state = np.random.get_state()[1].copy()  # type: ignore[index]
    assert digest(birds[0]) == first
    assert (np.random.get_state()[1] == state).all()  # type: ignore[index]


def test_splits_and_seeds_are_disjoint_draws() -> None:
    splits = bird_splits(species=2, train_per_species=6, val_per_species=6, test_per_species=6, size=48)
    other = Birds(species=2, per_species=6, size=48, seed=1)
    pictures = [
        data[i].image.numpy().tobytes()
        for data in (splits.train, splits.val, splits.test, other)
        for i in range(12)
    ]
    assert len(set(pictures)) == len(pictures)
    assert (len(splits.train), len(splits.val), len(splits.test)) == (12, 12, 12)


def test_the_fingerprint_tells_all_arguments_apart() -> None:
    base = {"species": 4, "per_species": 2, "split": "train", "seed": 0, "size": 64}
    changes: tuple[dict, ...] = (
        {},
        {"species": 5},
        {"per_species": 3},
        {"split": "val"},
        {"seed": 1},
        {"size": 65},
    )
    prints = [Birds(**(base | change)).fingerprint for change in changes]
    assert len(set(prints)) == len(changes)
    assert Birds(**base).fingerprint == prints[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"species": 1}, "2 to 200"),
        ({"species": 201}, "2 to 200"),
        ({"per_species": 0}, "1 or more"),
        ({"split": "dev"}, "train, val, test"),
        ({"seed": -1}, "negative"),
        ({"size": 31}, "32 or more"),
    ],
)
def test_bad_arguments_are_refused_with_a_remedy(arguments: dict, word: str) -> None:
    with pytest.raises(UserError, match=word):
        Birds(**arguments)


# the rasteriser


def test_coverage_is_the_area_inside() -> None:
    square = np.array([(2.25, 3.0), (7.75, 3.0), (7.75, 9.0), (2.25, 9.0)], dtype=np.float32)
    patch = coverage(square, 12)
    assert patch.alpha.sum() == pytest.approx(5.5 * 6.0)
    assert patch.alpha.max() == 1
    disc = coverage(oval((20, 20), (10, 10), steps=200), 40)
    assert disc.alpha.sum() == pytest.approx(np.pi * 100, rel=5e-3)


def test_coverage_is_cut_at_the_frame_and_empty_beyond_it() -> None:
    assert coverage(oval((0, 20), (10, 10), steps=200), 40).alpha.sum() == pytest.approx(np.pi * 50, rel=1e-2)
    assert not coverage(oval((-50, 20), (10, 10)), 40).alpha.any()
    Canvas(np.zeros((3, 40, 40), dtype=np.float32)).fill(oval((-2, 0.5), (0.1, 0.1)), (1, 1, 1))


def test_joined_outlines_cover_their_union_however_they_run() -> None:
    discs = [
        oval((10, 10), (5, 5)),
        oval((25, 10), (5, 5))[::-1],
        oval((25, 28), (5, 5)),
        oval((27, 28), (5, 5)),
    ]
    union = np.zeros((40, 40), dtype=np.float32)
    for disc in discs:
        patch = coverage(disc, 40)
        union[patch.rows, patch.cols] = np.maximum(union[patch.rows, patch.cols], patch.alpha)
    both = coverage(joined(discs), 40)
    assert np.abs(union[both.rows, both.cols] - both.alpha).mean() < 0.01


def test_enlarging_keeps_a_plain_picture_plain() -> None:
    assert np.allclose(enlarged(np.full((3, 5), 0.25, dtype=np.float32), 32), 0.25)
