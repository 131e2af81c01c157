"""Run by test_same_bytes.py in two processes: a run, and what commands make of it."""

import sys

from dprotonet.cli.main import main

_TINY: dict[str, object] = {
    "--backbone": "timm:test_resnet:none",
    "--cache": "cache",
    "--species": 3,
    "--train-per-species": 5,
    "--val-per-species": 3,
    "--test-per-species": 2,
    "--image-size": 32,
    "--dimension": 8,
    "--prototypes-per-class": 4,
    "--epochs": 2,
    "--warm-epochs": 1,
    "--push-every": 1,
    "--batch-size": 8,
}


def everything() -> None:
    """Into the folder that it is run in, so that paths are the same."""
    words = [str(word) for pair in _TINY.items() for word in pair]
    _done("train", "--mode", "frozen", "--augmentations", "1", "--out", "frozen", *words)
    _done("train", "--mode", "joint", "--out", "joint", *words)
    _done("evaluate", "frozen")
    _done("predict", "frozen", "frozen/prototypes", "--out", "table.csv")
    _done("export", "frozen", "--onnx", "run.onnx")
    _done("report", "frozen", "--out", "report.html", "--images", "1", "--iterations", "2", "--top", "1")


def _done(*words: str) -> None:
    if main(words):
        sys.exit(f"{words[0]} failed")


if __name__ == "__main__":
    everything()
