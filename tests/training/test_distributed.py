"""Two gloo processes give the prototypes, the accuracy and the learned weights of one."""

import os
import socket
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
    *["--batch-size", "6", "--masks", "12", "--dimension", "16", "--prototypes-per-class", "2"],
    *["--push-images", "2"],
]


def test_the_command_under_torchrun_is_one_run_also_without_gpus(tmp_path: Path) -> None:
    """Processes that do not know of each other would each claim, empty and write the same folder."""
    assert main(words(tmp_path, "one")) == 0
    launched = torchrun("--standalone", "--nproc_per_node=2", "-m", "dprotonet", *words(tmp_path, "two"))
    said = launched.communicate(timeout=300)
    assert launched.returncode == 0, said
    assert_equal_runs(tmp_path / "one", tmp_path / "two")


def test_two_machines_are_one_run(tmp_path: Path) -> None:
    """Two launchers that meet at an address, as on two machines: of one process and of two."""
    assert main(words(tmp_path, "one")) == 0
    meeting = ["--nnodes=2", "--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{free_port()}", "--rdzv_id=1"]
    machines = [
        torchrun(*meeting, f"--nproc_per_node={count}", "-m", "dprotonet", *words(tmp_path, "three"))
        for count in (1, 2)
    ]
    ends = [machine.communicate(timeout=300) for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], ends
    assert_equal_runs(tmp_path / "one", tmp_path / "three")


def words(place: Path, name: str) -> list[str]:
    return [*TINY, "--cache", str(place / "cache"), "--out", str(place / name)]


def torchrun(*arguments: str) -> "subprocess.Popen[str]":
    environment = {name: value for name, value in os.environ.items() if name != "ACCELERATE_USE_CPU"}
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *arguments],
        env={**environment, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def assert_equal_runs(one: Path, other: Path) -> None:
    ours, theirs = (load_file(place / "model.safetensors") for place in (one, other))
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-4)
    records = [(place / "metrics.jsonl").read_text().splitlines() for place in (one, other)]
    assert len(records[0]) == len(records[1])  # one process writes
