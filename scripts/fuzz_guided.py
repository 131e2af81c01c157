"""Fuzzing led by coverage, for what is read by Python itself; needs atheris (`pip install atheris`).

    python scripts/fuzz_guided.py settings config -max_total_time=60

The first word is a target of tests/fuzz, the second one of its kinds; what follows is for libFuzzer. It stops
at the first defect and keeps the input that shows it.
"""

import contextlib
import random
import sys
import tempfile
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
PURE = ("dprotonet.config", "dprotonet.files", "dprotonet.data", "dprotonet.experiment.benchmark")
"""What is watched; torch and numpy are not Python."""

from tests.fuzz.targets import SHARES, opener  # noqa: E402 – it imports nothing that is watched

_SEEDS = 200  # inputs to begin with, drawn as make fuzz draws them


def main() -> None:
    if len(sys.argv) < 3 or sys.argv[1] not in SHARES:
        raise SystemExit(f"{__doc__}\ntargets: {', '.join(SHARES)}")
    name, kind, *rest = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        with atheris.instrument_imports(include=list(PURE)):
            kind_of_target = opener(name)
        from tests.fuzz.target import REFUSALS, Case

        target = kind_of_target(Path(folder) / "work")
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for number in range(_SEEDS):
            case = target.draw(random.Random(number))
            if case.kind == kind:
                (corpus / str(number)).write_bytes(case.content)
        if not any(corpus.iterdir()):
            raise SystemExit(f"{name} has no kind {kind}")

        def one(data: bytes) -> None:
            with contextlib.suppress(REFUSALS):
                target.feed(Case(kind, data))

        atheris.Setup([sys.argv[0], *rest, str(corpus)], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
