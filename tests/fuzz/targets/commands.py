"""Command lines: words, numbers and files that are none. Training itself is not begun."""

import contextlib
import io
import json
import os
import random
import shutil
from collections.abc import Iterable
from pathlib import Path

from tests.fuzz.target import Case, Unexpected
from tests.fuzz.targets.material import tiny_run

from dprotonet.cli.main import COMMANDS, main
from dprotonet.errors import UserError
from dprotonet.experiment.runs.trainer import Trainer

_TEMPLATES = (
    *("train --out OUT --species 3 --epochs 2 --push-every 1 --rate-shaping 0.1 --show-config",) * 3,
    "train --out OUT --config CONFIG --seed 1 --levels 2 --folds 3 --fold 1 --show-config",
    "train --out OUT --recipe paper --label-smoothing 0.1 --crop 0.5 1.0 --mask-file FILE --show-config",
    "train --out OUT --mode frozen --image-size 64 --backbone timm:test_resnet:none --species 3",
    "predict RUN IMAGE --json",
    "predict RUN IMAGE --coverage 0.9 --top 3 --out OUT.csv",
    "explain RUN IMAGE --out OUT --top 1 --explainer mdm",
    "saliency IMAGE --model timm:test_resnet:none --out OUT --method gradcam",
    "evaluate RUN --split test --positive X",
    "prune RUN --out OUT --drop 0,1",
    "prune RUN --out OUT --purity 0.5 --nearest 3",
    "parts RUN --name 0=beak --class X",
    "prototypes RUN --class X --nearest 3",
    "familiarity RUN --share 0.05",
    "reliability RUN --share 0.05",
    "calibrate RUN --folds 0",
    "data check birds",
    "data check folder:OUT",
    "import FILE --out OUT --backbone timm:test_resnet",
    "export RUN --onnx OUT.onnx",
    "report RUN --out OUT.html --images 1",
    "benchmark CONFIG --out OUT",
    "reproduce --quick --out OUT --only X",
    "serve RUN --port 70000",
    "sanity RUN --images 1",
    "quality RUN --images 1",
    "compare RUN --images 1 --methods mdm",
)
_WORDS = (
    *(
        "",
        "-1",
        "0",
        "٣",
        "nan",
        "inf",
        "1e400",
        "1_0",
        "½",
        "9" * 30,
        "x",
        "--",
        "-h",
        "--no-such",
        "\ud800",
    ),
    *(
        "\ud800",
        "RUN",
        "IMAGE",
        "FILE",
        "OUT",
        "/",
        "~",
        "None",
        "True",
        "[1]",
        "a=b",
        "a,b",
        "0.5",
        "cub:/no",
    ),
    "x\ny",
)
_HEAVY = (
    "demo",
    "sanity",
    "quality",
    "compare",
    "reproduce",
    "benchmark",
    "report",
    "export",
    "serve",
    "explain",
)
"""Commands whose work takes seconds: their words are always wrong somewhere, so that they refuse."""


class Commands:
    """In this process, with what is printed looked at."""

    def __init__(self, place: Path) -> None:
        self.place, self.run = place, place / "run"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        shutil.copytree(tiny_run(place), self.run, ignore=shutil.ignore_patterns("checkpoint"))
        picture = next((self.run / "prototypes").glob("*.png"))
        shutil.copy(picture, place / "image.png")
        (place / "file.pth").write_bytes(b"no weights")
        (place / "config.toml").write_text('recipe = "paper"\n[training]\nepochs = 3\n', encoding="utf-8")
        self.names = {path.name for path in place.iterdir()}
        Trainer.run = _refused  # type: ignore[method-assign]

    def draw(self, generator: random.Random) -> Case:
        words = generator.choice(_TEMPLATES).split()
        for _ in range(generator.choice((1, 1, 2, 3))):
            at, draw = generator.randrange(len(words)), generator.random()
            if draw < 0.65:
                words[at] = generator.choice(_WORDS)
            elif draw < 0.8:
                words.insert(at, generator.choice(_WORDS))
            elif draw < 0.9:
                words.insert(at, words[generator.randrange(len(words))])
            elif len(words) > 1:
                del words[at]
        if words[0] in _HEAVY:
            words += ["--no-such-option"]
        return Case(words[0] if words[0] in COMMANDS else "none", json.dumps(words).encode())

    def feed(self, case: Case) -> None:
        words = [self._real(word) for word in json.loads(case.content)]
        said, complaint = io.StringIO(), io.StringIO()
        code: object = None
        before = Path.cwd()
        os.chdir(self.place)
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaint):
                code = main(words)
        except SystemExit as stop:  # --help
            code = stop.code or 0
        finally:
            os.chdir(before)
        text = complaint.getvalue()
        if "unexpected" in text or "Traceback" in text or code not in (0, 1, 2):
            raise Unexpected(f"{text.strip().splitlines()[-1][:150] if text.strip() else code}")
        if code:
            raise UserError(text)

    def left(self) -> Iterable[str]:
        unfinished = [path.name for path in self.place.rglob("*.tmp")]
        for path in self.place.iterdir():
            if path.name not in self.names:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return unfinished

    def _real(self, word: str) -> str:
        places = {
            "RUN": self.run,
            "IMAGE": self.place / "image.png",
            "FILE": self.place / "file.pth",
            "CONFIG": self.place / "config.toml",
            "OUT": self.place / "out",
        }
        for name, path in places.items():
            word = word.replace(name, str(path))
        return word


def _refused(_trainer: Trainer) -> None:
    raise UserError("training is not part of this")
