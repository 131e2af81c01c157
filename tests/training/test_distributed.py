"""Two gloo processes give the prototypes, the accuracy and the learned weights of one."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from dprotonet.cli.main import main

SCRIPT = Path(__file__).with_name("two_processes.py")


def results(out: Path, processes: int) -> dict[str, torch.Tensor]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    command = [sys.executable, *launcher, str(SCRIPT), str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr
    return load_file(out)


def test_two_processes_equal_one(tmp_path: Path) -> None:
    one, two = (results(tmp_path / f"{count}.safetensors", count) for count in (1, 2))
    assert (one["processes"], two["processes"]) == (1, 2)
    assert torch.equal(one["index"], two["index"])
    assert torch.equal(one["region"], two["region"])
    torch.testing.assert_close(one["vectors"], two["vectors"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(one["logits"], two["logits"], rtol=1e-4, atol=1e-5)
    assert torch.equal(one["logits"].argmax(1), two["logits"].argmax(1))
    for name in ("scores", "scores on disk"):
        torch.testing.assert_close(one[name], two[name], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(two["scores"], two["scores on disk"], rtol=1e-4, atol=1e-5)
    assert two["left on disk"] == 0
    torch.testing.assert_close(one["trained"], two["trained"], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(one["pieces"], two["pieces"], rtol=1e-3, atol=1e-4)
    assert torch.equal(two["running_means"][0], two["running_means"][1])
    for name in ("learned with BatchNorm", "learned by BatchNorm"):
        torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(one["running_means"][0], two["running_means"][0], rtol=1e-4, atol=1e-5)


TINY = [
    *["train", "--recipe", "paper", "--mode", "frozen", "--species", "2", "--train-per-species", "6"],
    *["--val-per-species", "4", "--image-size", "64", "--epochs", "1", "--warm-epochs", "0"],
    *["--push-every", "1", "--last-layer-epochs", "1", "--views-per-epoch", "1", "--augmentations", "1"],
    *["--batch-size", "4", "--masks", "12", "--dimension", "16", "--prototypes-per-class", "2"],
    *["--push-images", "2"],
]


def test_the_command_under_torchrun_is_one_run_also_without_gpus(tmp_path: Path) -> None:
    """Processes that do not know of each other would each claim, empty and write the same folder."""
    words = [*TINY, "--cache", str(tmp_path / "cache"), "--out"]
    assert main([*words, str(tmp_path / "one")]) == 0
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "dprotonet"]
    environment = {name: value for name, value in os.environ.items() if name != "ACCELERATE_USE_CPU"}
    result = subprocess.run(
        [sys.executable, *launcher, *words, str(tmp_path / "two")],
        env={**environment, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-4, atol=1e-4)
    records = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("one", "two")]
    assert len(records[0]) == len(records[1])  # one process writes
