"""The examples run as they are printed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "DPROTONET_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, str(path), str(tmp_path / "run")]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
