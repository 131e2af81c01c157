"""How memory grows, at a hundredth of ImageNet's size: scores and walks through an epoch do not."""

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import tiny_network, tiny_views

from dprotonet.experiment.runs import familiarity
from dprotonet.inference.projection import collapsed_prototypes
from dprotonet.training.score_rows import Room, ScoreRows
from dprotonet.training.views import BalancedKeys, ProcessShare, epoch_keys, epoch_parts, plain_batches

PROTOTYPES = 1000
ROOT = Path(__file__).parents[2]


class Labels:
    """So many images of which only the labels are known."""

    augmentations = 4

    def __init__(self, count: int) -> None:
        self.labels = [index % 10 for index in range(count)]

    def __len__(self) -> int:
        return len(self.labels)


def traced(action: Callable[[], object]) -> int:
    """Bytes that Python and NumPy took at most."""
    tracemalloc.start()
    action()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("sampling", [epoch_keys, BalancedKeys(0)])
def test_an_epoch_takes_few_bytes_a_view(sampling: Any) -> None:
    """As lists of tuples 190 of Python alone; walking through the batches adds none."""
    views: Any = Labels(12_800)
    settings: dict[str, Any] = {"seed": 0, "epoch": 3, "batch": 60, "share": ProcessShare()}
    parts = epoch_parts(views, sampling=sampling, **settings)
    assert traced(lambda: epoch_parts(views, sampling=sampling, **settings)) < 70 * len(views)
    assert traced(lambda: [len(part.keys) for part in parts]) < 100_000
    plain = plain_batches(len(views), batch=60, share=ProcessShare())
    assert traced(lambda: [len(batch) for batch in plain]) < 100_000


def filled(images: int, folder: Path) -> Callable[[], object]:
    """Scores written batch by batch and read once."""

    def work() -> object:
        rows = ScoreRows.empty(Room(images, PROTOTYPES, folder))
        batch = torch.rand(50, PROTOTYPES)
        for first in range(0, images, 50):
            rows.put(first, batch)
        return sum(float(block[0, 0]) for _, block in rows.blocks())

    return work


_PEAKS = """
import json, sys
from pathlib import Path
from dprotonet.training import score_rows
from tests.peak_memory import measured
from tests.training.test_growth import filled

def peaks():
    return [measured(filled(images, Path(sys.argv[1])))["peak"] for images in (4000, 8000)]

filled(50, Path(sys.argv[1]))()  # what is loaded once
kept = peaks()
score_rows.IN_MEMORY //= 100
score_rows._BLOCK //= 100
print(json.dumps([kept, peaks()]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")
def test_twice_the_images_take_no_more_memory_for_scores(
    tmp_path: Path,
) -> None:
    """Limits are a hundredth of the real ones, as the sizes are; only a new process has no freed memory."""
    command = [sys.executable, "-c", _PEAKS, str(tmp_path)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True).stdout
    kept, spilled = json.loads(said)
    assert kept[1] - kept[0] > 12e6  # the sixteen megabytes of four thousand more images
    assert spilled[1] - spilled[0] < 3e6
    assert spilled[1] < kept[0]


def test_collapsed_prototypes_are_those_of_all_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(60, 4, generator=generator)
    owner = torch.randint(0, 7, (60,), generator=generator)
    for one, other in ((40, 3), (41, 40), (59, 12), (10, 11)):
        vectors[one], owner[one] = vectors[other], owner[other]
    literal = [
        any(
            owner[one] == owner[other]
            and float((vectors[one] - vectors[other]).norm()) <= 1e-4 * float(vectors[one].norm())
            for other in range(one)
        )
        for one in range(60)
    ]
    assert sum(literal) == 4
    assert collapsed_prototypes(vectors, owner).tolist() == literal


def test_distances_are_of_images_that_are_evenly_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    network, views = tiny_network(), tiny_views()
    whole = familiarity.known_distances(network, views)
    monkeypatch.setattr(familiarity, "evenly", lambda count: range(0, count, 4))
    some = familiarity.known_distances(network, views)
    assert whole is not None
    assert some is not None
    torch.testing.assert_close(some, whole[::4])
