"""`dprotonet serve` as a user types it: mistakes in one line, an address, a clean end by Ctrl-C."""

import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from dprotonet.cli.main import main
from dprotonet.cli.serve import EXTRA

MISTAKES = [
    ("RUN --host 0.0.0.0", "--token"),
    ("RUN --host 0.0.0.0 --token short", "at least 16"),
    ("RUN --port 70000", "ports are 1 to 65535"),
    ("RUN --port USED", "cannot listen at 127.0.0.1"),
    ("RUN --max-megabytes 0", "larger than 0"),
    ("RUN --max-megabytes inf", "takes a finite number"),
    ("RUN --max-megapixels nan", "takes a finite number"),
    ("RUN --preset slow", "'fast'"),
    ("NOWHERE", "does not exist"),
    ("", "run"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[words or "nothing" for words, _ in MISTAKES])
def test_mistakes_are_one_line_and_exit_2(
    words: str, message: str, run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        places = {"RUN": str(run_folder), "NOWHERE": str(tmp_path / "x"), "USED": str(taken.getsockname()[1])}
        assert main(["serve", *(places.get(word, word) for word in words.split())]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0


@pytest.mark.parametrize("module", EXTRA)
def test_without_the_extra(
    module: str, monkeypatch: pytest.MonkeyPatch, run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dprotonet.cli.serve.find_spec", lambda name: None if name == module else name)
    assert main(["serve", str(run_folder)]) == 2
    assert f"{EXTRA[module]}: pip install 'dprotonet[web]'" in capsys.readouterr().err


def test_from_start_to_ctrl_c(run_folder: Path) -> None:
    command = [sys.executable, "-m", "dprotonet", "serve", str(run_folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        with urllib.request.urlopen(f"{address}healthz", timeout=30) as answer:
            assert answer.status == 200
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=30)
    assert server.returncode == 0
    assert "Traceback" not in errors
