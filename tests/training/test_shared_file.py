"""One cache filled by several: each part by one of them, the bytes of one process, whoever is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import TinyBackbone, tiny_views

from dprotonet.training import features
from dprotonet.training.features import FeatureCache
from dprotonet.training.shared_file import SharedFile

SLOWLY = """
import sys, time
from pathlib import Path
from tests.training.test_shared_file import cache_in
cache, backbone = cache_in(Path(sys.argv[1])), None
cache.backbone.register_forward_hook(lambda *_: time.sleep(float(sys.argv[2])))
print("begun", flush=True)
sys.stdin.readline()  # others may have to be loaded first
for done in cache.build():
    pass
print(cache.backbone.looked, flush=True)
"""


class Counted(TinyBackbone):
    """Knows how many images it has looked at."""

    looked = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.looked += len(images)
        return super().forward(images)


def cache_in(folder: Path) -> FeatureCache:
    """45 views in 23 parts of one batch each."""
    torch.manual_seed(0)
    return FeatureCache(folder, Counted().eval(), tiny_views(), 2, torch.device("cpu"), batch=2)


def another(folder: Path, seconds: float) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", SLOWLY, str(folder), str(seconds)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file as one process makes it."""
    cache = cache_in(tmp_path_factory.mktemp("alone"))
    list(cache.build())
    return cache.path.read_bytes()


def test_two_that_start_at_different_times_share_the_work(tmp_path: Path, alone: bytes) -> None:
    first, second = another(tmp_path, 0.05), another(tmp_path, 0.05)
    go(first)
    time.sleep(0.1)
    go(second)
    looked = [int(process.communicate(timeout=120)[0]) for process in (first, second)]
    cache = cache_in(tmp_path)
    assert cache.path.read_bytes() == alone
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".npy"]
    assert min(looked) > 3  # besides the view that tells the shape
    assert sum(looked) <= 45 + 2 * 4


def test_another_takes_over_what_a_killed_one_had_claimed(tmp_path: Path, alone: bytes) -> None:
    killed = another(tmp_path, 0.05)
    go(killed)
    shared = cache_in(tmp_path)._shared
    while not shared.done:
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    kept, cache = shared.done, cache_in(tmp_path)
    assert 0 < kept < shared.parts
    list(cache.build())
    assert cache.backbone.looked <= 45 - 2 * kept + 2  # what was written is not computed again
    assert cache.path.read_bytes() == alone
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".npy"]


def test_one_that_is_stopped_goes_on_where_it_was(tmp_path: Path, alone: bytes) -> None:
    cache = cache_in(tmp_path)
    building = cache.build()
    while cache._shared.done < 5:
        next(building)
    building.close()
    assert cache._shared.unfinished.stat().st_size == len(alone)  # its room stays reserved
    list(cache.build())
    assert cache.path.read_bytes() == alone


def test_a_part_is_claimed_by_one(tmp_path: Path) -> None:
    shared = SharedFile(tmp_path / "file", 3)
    with shared.alone(), shared.begin() as file:
        file.write(b"abc")
    one, two = shared.claims(), shared.claims()
    assert (next(one), next(two)) == (0, 1)
    assert next(one) == 2
    assert next(one) is None  # the other is at what is left
    assert list(two) == []
    assert (tmp_path / "file").read_bytes() == b"abc"
    assert list(one) == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_parts_depend_on_the_data_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert len(cache_in(tmp_path)._parts) == 23
    monkeypatch.setattr(features, "_FEWEST", 4)
    parts = cache_in(tmp_path)._parts
    assert [len(part) for part in parts] == [6, 6, 6, 5]
    keys = [key for part in parts for batch in part for key in batch]
    assert keys == [(index, variant) for index in range(15) for variant in range(3)]
    monkeypatch.setattr(features, "_PART", 3 * 2 * cache_in(tmp_path)._size)
    assert [len(part) for part in cache_in(tmp_path)._parts] == [3] * 7 + [2]


def test_all_of_it_is_there(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    progress = list(cache.build())
    assert progress == sorted(progress)
    assert progress[-1] == (45, 45)
    assert np.abs(cache.open().features).min(axis=(2, 3, 4)).shape == (15, 3)
