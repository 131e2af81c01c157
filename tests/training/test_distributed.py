"""Two gloo processes give the prototypes, the accuracy and the learned weights of one."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

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
    torch.testing.assert_close(one["trained"], two["trained"], rtol=1e-3, atol=1e-4)
    assert torch.equal(two["running_means"][0], two["running_means"][1])
