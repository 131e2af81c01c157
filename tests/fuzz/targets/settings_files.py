"""Configs and plans in TOML: read, resolved and checked as `train`, `benchmark` and `reproduce` do."""

import random
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tomli_w
from tests.fuzz.mutation import mutated, odd_tree
from tests.fuzz.target import Case

import dprotonet
from dprotonet.config import to_tables
from dprotonet.experiment.benchmark.plan import Plan
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.settings.config_check import check_config
from dprotonet.experiment.settings.recipes import config_from

_VALUES = (
    "nan",
    "inf",
    "-inf",
    "1e400",
    "-1",
    "0x7f",
    "0b1",
    "1_000",
    "1979-05-27",
    "07:32:00",
    "'''a'''",
    "[[]]",
)
_LINES = (
    "[data]",
    "[[row]]",
    "[row]",
    "[a.b.c]",
    "a.b = 1",
    "recipe = 3",
    "[training",
    '"" = 1',
    "x = {",
    "seeds = []",
)
_DEEP = 100_000


class SettingsFiles:
    """The project's own plans and configs, and a config with every value."""

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.place = place
        self.configs = [tomli_w.dumps(to_tables(config_from({}))), *_texts("configs")]
        self.plans = _texts("src/dprotonet/experiment/reproduce/plans") or [_PLAN]

    def draw(self, generator: random.Random) -> Case:
        kind = generator.choice(("config", "config", "plan"))
        text = generator.choice(self.configs if kind == "config" else self.plans)
        draw = generator.random()
        if draw < 0.5:
            return Case(kind, _dumped(odd_tree(generator, _plain(tomllib.loads(text)))))
        if draw < 0.8:
            return Case(kind, _other_lines(generator, text).encode())
        if draw < 0.81:
            opening, closing = generator.choice((("[", "]"), ("{a=", "}")))
            return Case(kind, f"x = {opening * _DEEP}1{closing * _DEEP}".encode())
        return Case(kind, mutated(generator, text.encode()))

    def feed(self, case: Case) -> None:
        path = self.place / "config.toml"
        path.write_bytes(case.content)
        if case.kind == "config":
            check_config(RunFolder(self.place).read_config())
        else:
            plan = Plan.read(path)
            for cell in plan.cells:
                check_config(cell.config)

    def left(self) -> Iterable[str]:
        (self.place / "config.toml").unlink(missing_ok=True)
        return [path.name for path in self.place.iterdir()]


_PLAN = """
title = "Tiny"
seeds = [0, 1]
measures = ["accuracy"]
[data]
data = "birds"
[[row]]
name = "one"
training.push_images = 1
[[row]]
name = "two"
network.network = "protopnet"
[[column]]
name = "birds"
data.species = 4
[localisation]
methods = ["mdm"]
images = 3
"""


def _texts(folder: str) -> list[str]:
    root = Path(dprotonet.__file__).parents[2]
    return [path.read_text(encoding="utf-8") for path in sorted((root / folder).rglob("*.toml"))]


def _plain(tree: Any) -> Any:
    """Without dates, which JSON has not."""
    if isinstance(tree, dict):
        return {key: _plain(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_plain(value) for value in tree]
    return tree if isinstance(tree, str | int | float | bool) else str(tree)


def _dumped(tree: Any) -> bytes:
    """As TOML; what TOML cannot say is left out."""
    text = tomli_w.dumps(_sayable(tree if isinstance(tree, dict) else {"x": tree}))
    return text.encode(errors="surrogatepass")


def _sayable(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {str(key): _sayable(value) for key, value in tree.items() if value is not None}
    if isinstance(tree, list):
        return [_sayable(value) for value in tree if value is not None]
    return tree


def _other_lines(generator: random.Random, text: str) -> str:
    """Lines twice, gone, elsewhere, or with another value."""
    lines = text.splitlines()
    for _ in range(generator.choice((1, 1, 2, 4))):
        at, draw = generator.randrange(len(lines)), generator.random()
        if draw < 0.5 and "=" in lines[at]:
            lines[at] = f"{lines[at].split('=')[0]}= {generator.choice(_VALUES)}"
        elif draw < 0.7:
            lines.insert(generator.randrange(len(lines)), lines[at])
        elif draw < 0.85:
            lines.insert(at, generator.choice(_LINES))
        elif len(lines) > 1:
            del lines[at]
    return "\n".join(lines)
