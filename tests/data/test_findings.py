"""Birds with findings: labels are what is drawn, and a picture without one differs only where that was."""

import torch

from dprotonet.data.birds import BirdFindings
from dprotonet.data.birds.findings import FREQUENCY


def test_labels_are_what_is_drawn() -> None:
    data = BirdFindings(species=3, per_species=6, size=96)
    assert data.labels.shape == (18, 5)
    for index in range(6):
        sample = data[index]
        assert sample.findings == tuple(
            name for name, value in zip(data.classes, data.labels[index], strict=True) if value
        )
        for name in data.classes:
            if name not in sample.findings and name != "marked breast":  # a breast is there in any case
                assert not sample.parts[name].any()


def test_frequencies_are_those_stated() -> None:
    labels = BirdFindings(species=12, per_species=100).labels
    assert (labels.mean(dim=0) - torch.tensor(list(FREQUENCY.values()))).abs().max() < 0.05


def test_without_a_finding_only_its_place_changes() -> None:
    data = BirdFindings(species=3, per_species=10, size=96)
    index = next(number for number in range(len(data)) if "crest" in data[number].findings)
    whole, without = data[index], data.removed(index, "crest")
    assert "crest" not in without.findings
    changed = (whole.image != without.image).any(dim=0)
    grown = torch.nn.functional.max_pool2d(whole.parts["crest"].float()[None], 9, stride=1, padding=4)[0] > 0
    assert changed.any()
    assert not (changed & ~grown).any()


def test_the_same_again() -> None:
    one, other = (BirdFindings(species=3, per_species=2, size=64) for _ in range(2))
    assert torch.equal(one[3].image, other[3].image)
    assert one.fingerprint == other.fingerprint
    assert BirdFindings(species=3, per_species=2, size=64, seed=1).fingerprint != one.fingerprint
