"""A disk without room for the feature cache: a sentence before the work, and nothing half-written."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.conftest import TinyBackbone, tiny_views

from dprotonet.cli.main import main
from dprotonet.errors import UserError
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.trained.prediction_table import write_table
from dprotonet.experiment.trained.unfinished_table import UnfinishedTable
from dprotonet.files import remove, reserve, write_text
from dprotonet.training.checkpoint import save_tensors
from dprotonet.training.features import FeatureCache

LIMITED = """
import resource, sys
from pathlib import Path
import torch
from tests.training.test_full_disk import cache_in
from dprotonet.errors import UserError
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    list(cache_in(Path(sys.argv[1])).build())
except UserError as error:
    print(error)
"""


def cache_in(folder: Path) -> FeatureCache:
    """45 views of 8 × 4 × 4 half-precision numbers: 11,520 bytes and the header."""
    torch.manual_seed(0)
    return FeatureCache(folder, TinyBackbone().eval(), tiny_views(), 2, torch.device("cpu"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 kB, which only root can mount."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8k", "none", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_the_room_needed_is_the_size_of_the_file(tmp_path: Path) -> None:
    features = cache_in(tmp_path)
    list(features.build())
    assert features.room().needed == features.path.stat().st_size
    assert features.room().views == 45


def test_what_does_not_fit_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = cache_in(tmp_path)
    needed = features.room().needed
    for free in (needed - 1, needed):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr("dprotonet.training.features.shutil.disk_usage", lambda _, u=usage: u)
        if free < needed:
            with pytest.raises(UserError, match=r"0.0 MB are free in .*--cache"):
                list(features.build())
            assert list(tmp_path.iterdir()) == []
        else:
            list(features.build())
    assert features.path.is_file()


def test_a_full_disk_is_a_sentence_and_leaves_nothing(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its statistics are hidden, as quotas and other writers hide them: reserving has to find out."""
    monkeypatch.setattr(
        "dprotonet.training.features.shutil.disk_usage", lambda _: SimpleNamespace(free=10**9)
    )
    with pytest.raises(UserError, match=r"not enough room for the features of 45 views.*No space left"):
        list(cache_in(small_disk).build())
    assert list(small_disk.iterdir()) == []


def test_a_full_disk_where_room_cannot_be_reserved(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS and Windows: room is made by writing."""
    monkeypatch.setattr(
        "dprotonet.training.features.shutil.disk_usage", lambda _: SimpleNamespace(free=10**9)
    )
    monkeypatch.delattr(os, "posix_fallocate")
    with pytest.raises(UserError, match="No space left"):
        list(cache_in(small_disk).build())
    assert list(small_disk.iterdir()) == []


def test_a_disk_that_fills_while_features_are_written(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Some file systems reserve nothing: through a memory map that was a bus error, without a word."""
    monkeypatch.setattr(
        "dprotonet.training.features.shutil.disk_usage", lambda _: SimpleNamespace(free=10**9)
    )
    monkeypatch.setattr("dprotonet.training.features.reserve", lambda file, size: None)
    features = cache_in(small_disk)
    with pytest.raises(OSError, match="No space left") as told:
        list(features.build())
    assert Path(told.value.filename).name.startswith(features.path.name)
    assert list(small_disk.iterdir()) == []


def test_whatever_is_written_to_a_full_disk_is_named(small_disk: Path) -> None:
    """An open file says no name: the message was "no file named"."""
    text, rows = "x" * 20_000, [("0" * 24, ["y" * 20_000])]
    table = UnfinishedTable(small_disk / "rows.csv", {"model": "m"}, 1)
    table.begin(overwrite=False)
    attempts: dict[str, Callable[[], object]] = {
        "text.json": lambda: write_text(small_disk / "text.json", text),
        "some.safetensors": lambda: save_tensors(small_disk / "some.safetensors", {"a": torch.ones(9_999)}),
        "table.csv": lambda: write_table(small_disk / "table.csv", ["file"], [[text]]),
        "rows.csv.part": lambda: table.append(rows),
        "metrics.jsonl": lambda: RunFolder(small_disk).append_metrics({"loss": text}),
    }
    for name, attempt in attempts.items():
        with pytest.raises(OSError, match=r"No space left|could not write") as told:
            attempt()
        assert told.value.filename == str(small_disk / name)
        assert not list(small_disk.glob("*.tmp"))
    again = UnfinishedTable(small_disk / "rows.csv", {"model": "m"}, 1)
    again.begin(overwrite=False)  # the half of a row is cut off
    assert again.places == {}


def test_a_folder_that_cannot_be_renamed_is_emptied(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that Docker mounts: --overwrite was "Device or resource busy"."""
    for name in ("config.toml", "weights"):
        (small_disk / name).write_text("old")
    gone = []
    monkeypatch.setattr("dprotonet.files.remove", lambda path: (gone.append(path.name), remove(path)))
    RunFolder(small_disk).create(overwrite=True)
    assert list(small_disk.iterdir()) == []
    assert gone == ["weights", "config.toml"]


@pytest.mark.skipif(os.name == "nt", reason="there is no limit to a file's size")
def test_a_limit_of_file_size_is_a_sentence(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    told = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "cache")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "not enough room for the features of 45 views" in told.stdout, told.stderr
    assert "File too large" in told.stdout
    assert list((tmp_path / "cache").iterdir()) == []


def test_reserving_by_writing_gives_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("allocated", "written"):
        with (tmp_path / name).open("wb") as file:
            file.write(b"head")
            reserve(file, 3_000_000)
        if name == "allocated":
            monkeypatch.delattr(os, "posix_fallocate", raising=False)
    assert (tmp_path / "written").read_bytes() == (tmp_path / "allocated").read_bytes()
    assert (tmp_path / "written").stat().st_size == 3_000_000


def test_train_says_how_much_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dprotonet.training.features.shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    words = ["--mode", "frozen", "--species", "2", "--train-per-species", "6", "--image-size", "64"]
    out = ["--out", str(tmp_path / "run"), "--cache", str(tmp_path / "cache")]
    assert main(["train", "--data", "birds", *words, *out]) == 2
    told = capsys.readouterr().err
    assert "the features of 60 views: they take 0.8 MB, and 0.0 MB are free in" in told
    assert "--augmentations" in told
    assert not list((tmp_path / "cache").glob("*.npy*"))
    assert not (tmp_path / "run.lock").exists()


def test_what_a_killed_process_left_goes_and_others_stay(tmp_path: Path) -> None:
    features = cache_in(tmp_path)
    left = tmp_path / f"{features.path.name}.0123456789ab.tmp"
    other = tmp_path / "another.npy.0123456789ab.tmp"
    for path in (left, other):
        path.write_bytes(b"half")
    list(features.build())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [other.name, features.path.name, features.path.with_suffix(".json").name]
    )
    assert np.isfinite(features.open().features).all()


def test_a_kill_before_the_features_are_told(tmp_path: Path) -> None:
    """They were there, so nobody removed the half-written words about them, or wrote them anew."""
    features = cache_in(tmp_path)
    list(features.build())
    words = features.path.with_suffix(".json")
    told = words.read_text()
    words.rename(tmp_path / f"{words.name}.0123456789ab.tmp")
    list(cache_in(tmp_path).build())
    assert words.read_text() == told
    assert not list(tmp_path.glob("*.tmp"))


def test_a_kill_while_the_last_checkpoint_is_swapped_in(tmp_path: Path) -> None:
    """No later one removed the old one. Without a whole one beside it the old one is all there is."""
    run, old = RunFolder(tmp_path), tmp_path / "checkpoint.old"
    for folder in (old, tmp_path / "checkpoint.new"):
        folder.mkdir()
    run.tidy()
    assert old.is_dir()
    run.checkpoint.mkdir()
    (run.checkpoint / "state.json").write_text("{}")
    run.tidy()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
