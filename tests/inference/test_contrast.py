"""Leads: part by part what is said for a class less what is said for the likeliest other one."""

import math

import pytest
import torch

from dprotonet.inference.contrast import leads, likeliest_other, part_gaps

CLASSES, PARTS = 4, 3


def drawn(per_class: int = PARTS, other: float = -0.2) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(per_class)
    owner = torch.arange(CLASSES).repeat_interleave(per_class)
    weight = torch.where(torch.arange(CLASSES)[:, None] == owner, 2.0, other).double()
    return {
        "scores": torch.rand(len(owner), generator=generator).double(),
        "weight": weight + 0.1 * torch.rand(weight.shape, generator=generator).double(),
        "part": torch.arange(len(owner)) % per_class % PARTS,
        "prototype_class": owner,
    }


@pytest.mark.parametrize("per_class", [PARTS, PARTS + 2])
@pytest.mark.parametrize("label", range(CLASSES))
def test_leads_are_those_of_loops_and_add_up_to_the_margin(label: int, per_class: int) -> None:
    given = drawn(per_class)
    found = leads(**given, label=label)
    logits = [float(row @ given["scores"]) for row in given["weight"]]
    rival = max((k for k in range(CLASSES) if k != label), key=lambda k: logits[k])
    assert found.rival == rival
    for number, owner in enumerate(given["prototype_class"].tolist()):
        if owner != label:
            assert math.isnan(found.points[number])
            continue
        same = [j for j in range(len(given["part"])) if given["part"][j] == given["part"][number]]
        ahead = sum(
            float((given["weight"][label, j] - given["weight"][rival, j]) * given["scores"][j]) for j in same
        )
        sharing = sum(int(given["prototype_class"][j]) == label for j in same)
        assert float(found.points[number]) == pytest.approx(ahead / sharing)
    assert float(found.points.nansum()) == pytest.approx(logits[label] - logits[rival])


def test_a_part_that_both_classes_share_decides_nothing() -> None:
    given = drawn(other=0.0)
    given["weight"] = given["weight"].round()
    given["scores"] = torch.tensor([0.9, 0.2, 0.3] + [0.9, 0.1, 0.1] + [0.0] * 6).double()
    found = leads(**given, label=0)
    assert found.rival == 1
    assert found.points[:PARTS].tolist() == pytest.approx([0.0, 0.2, 0.4])


def test_the_scores_stay_as_they_are() -> None:
    given = drawn()
    before = {name: values.clone() for name, values in given.items()}
    leads(**given, label=2)
    assert all(torch.equal(values, before[name]) for name, values in given.items())


def test_the_likeliest_other_class_of_several_images() -> None:
    logits = torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0], [-5.0, -9.0, -7.0]])
    assert likeliest_other(logits, torch.tensor([0, 2, 1])).tolist() == [2, 0, 0]
    assert logits.isfinite().all()


def test_gaps_are_between_the_prototypes_of_the_same_part() -> None:
    """Against a loop; where the length of a prototype says nothing, and a class may have two of a part."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(7, 5, generator=generator)
    part, owner = torch.tensor([0, 1, 0, 1, 0, 1, 1]), torch.tensor([0, 0, 1, 1, 2, 2, 2])
    vectors[2] = 3 * vectors[0]  # part 0 of classes 0 and 1 looks alike
    label, versus = torch.tensor([0, 2]), torch.tensor([1, 0])
    found = part_gaps(vectors, part=part, prototype_class=owner, label=label, versus=versus)
    assert found.shape == (2, 2)
    for row, (one, other) in enumerate(((0, 1), (2, 0))):
        for number in (0, 1):
            means = [
                torch.stack(
                    [vectors[p] / vectors[p].norm() for p in range(7) if (owner[p], part[p]) == (c, number)]
                ).mean(dim=0)
                for c in (one, other)
            ]
            assert found[row, number].item() == pytest.approx(
                float((means[0] - means[1]).square().sum()), abs=1e-6
            )
    assert found[0, 0].item() == pytest.approx(0, abs=1e-6)
    assert float(found[0, 1]) > 0.1
