"""Ours beside the paper's, row by row: the paper's number, ours with its interval, and what differs.

A deviation is found by comparing the run's config with that of `--recipe paper` for the same network, its
data and its backbone with the paper's; nothing is kept by hand.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dprotonet.config import Config, by_name
from dprotonet.experiment.benchmark.plan import Plan
from dprotonet.experiment.reproduce.items import SOURCES, PaperRow
from dprotonet.experiment.reproduce.paper_numbers import BACKBONES, DATA_SETS, MAP_SENSITIVITY, NUMBERS
from dprotonet.experiment.settings.paper_values import PAPER
from dprotonet.experiment.settings.recipes import config_from

# They change speed, chance or places, not the experiment.
_ASIDE = (
    *("seed", "mask_seed", "data_seed", "workers", "image_cache", "log", "tensorboard"),
    *("mixed_precision", "accumulate", "checkpoint_activations", "memory_format"),
)
_SECTIONS = ("network", "training", "augmentation")
_IMAGES = 10  # of each class, in the paper's Table 5
_OURS = ("augmentations", "patience")  # of frozen mode, and of stopping early: the paper has neither


class Cell(NamedTuple):
    """One measure of one row; None where it is not known, or not in the paper."""

    paper: float | None
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    digits: int = 1


@dataclass(frozen=True)
class Row:
    """A line of a table: its cells by their heads, and numbers of the deviations that apply to it."""

    name: str
    cells: tuple[Cell, ...]
    deviations: tuple[int, ...]


@dataclass(frozen=True)
class ComparedTable:
    """One plan's part of a table of the paper."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[Row, ...]
    length: Mapping[str, tuple[float, float]]  # epochs and steps of each row's runs


class Deviations:
    """All that were met, numbered in the order of appearance."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def numbered(self, texts: Sequence[str]) -> tuple[int, ...]:
        for text in texts:
            if text not in self.texts:
                self.texts.append(text)
        return tuple(sorted(self.texts.index(text) + 1 for text in texts))


def compared(plan: Plan, content: Mapping[str, Any], beside: PaperRow, met: Deviations) -> ComparedTable:
    """The table of a finished or half-finished plan; `content` is what its results.json says."""
    ours = {**_accuracies(content), **_maps(content)}
    shown = [(column, measure) for column, measure in _shown(beside) if _has(plan, column, beside)]
    names = _row_names(plan, beside, content)
    heads = tuple(_head(plan, column, measure, beside) for column, measure in shown)
    rows = []
    for name, row in names.items():
        cells = tuple(
            _cell(ours, name, _own(plan, column, beside), column, measure, beside)
            for column, measure in shown
        )
        rows.append(Row(name, cells, met.numbered(_texts(plan, content, name, row, beside))))
    by_row = {item["row"]: (item.get("epochs"), item.get("steps")) for item in content["results"]}
    lengths = {
        name: (float(epochs), float(steps))
        for name, row in names.items()
        for epochs, steps in [by_row.get(row, (None, None))]
        if epochs is not None and steps is not None
    }
    return ComparedTable(f"{plan.title}; {_whose(beside)}", heads, tuple(rows), lengths)


# ── which cells ──


def _shown(beside: PaperRow) -> list[tuple[str, str]]:
    """Columns and measures of the paper's table, in its order."""
    pairs = dict.fromkeys((column, measure) for _, column, measure in NUMBERS[beside.paper])
    return [pair for pair in pairs if not beside.column or pair[0] == beside.column]


def _own(plan: Plan, column: str, beside: PaperRow) -> str:
    """The plan's column that stands beside one of the paper's; in `--quick` it is the only one."""
    return plan.columns[0] if beside.column or column not in plan.columns else column


def _has(plan: Plan, column: str, beside: PaperRow) -> bool:
    return bool(beside.column) or column in plan.columns or len(plan.columns) == 1


def _row_names(plan: Plan, beside: PaperRow, content: Mapping[str, Any]) -> dict[str, str]:
    """Names of lines, each with the plan's row whose network it is about."""
    lines = content.get("localisation") or []
    measures = {measure for _, _, measure in NUMBERS[beside.paper]}
    if measures & {"AD50", "deletion"} and plan.localisation is not None:
        return {line.name: line.row for line in plan.localisation.line}
    return {row: row for row in plan.rows} | {line["name"]: line["row"] for line in lines}


def _head(plan: Plan, column: str, measure: str, beside: PaperRow) -> str:
    word = {"accuracy": "accuracy", MAP_SENSITIVITY: "sensitivity of the maps"}.get(measure, measure)
    several = len({pair[0] for pair in _shown(beside)}) > 1
    return f"{column}, {word}" if several else word


def _whose(beside: PaperRow) -> str:
    """Which numbers of the paper stand beside ours, where the heads do not say it."""
    if beside.column:
        return f"the paper's are of {' and '.join(_expected(beside, '', ''))}"
    data = "Stanford Cars" if beside.paper == "general-cars" else "CUB-200-2011"
    return "the paper's by name" if beside.paper in ("medical", "backbone") else f"the paper's of {data}"


def _cell(
    ours: Mapping[tuple[str, str, str], tuple[float, float, float]],
    name: str,
    own: str,
    column: str,
    measure: str,
    beside: PaperRow,
) -> Cell:
    paper = NUMBERS[beside.paper].get((name + beside.row, column, measure))
    digits = 1 if measure in ("accuracy", MAP_SENSITIVITY, "AD50", "AI50") else 3
    found = ours.get((name, own, measure))
    return Cell(paper, digits=digits) if found is None else Cell(paper, *found, digits=digits)


# ── our numbers ──


def _accuracies(content: Mapping[str, Any]) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    """Mean over seeds, with Wilson's interval for so many test images."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for item in content["results"]:
        groups.setdefault((item["row"], item["column"]), []).append(item)
    found = {}
    for (row, column), items in groups.items():
        mean = sum(item["accuracy"] for item in items) / len(items)
        low, high = wilson(mean, items[0]["images"])
        found[row, column, "accuracy"] = (100 * mean, 100 * low, 100 * high)
    return found


def _maps(content: Mapping[str, Any]) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    """Means over images, with their bootstrap intervals."""
    found = {}
    for line in content.get("localisation") or []:
        for measure, cell in line["measures"].items():
            if cell["mean"] is None:
                continue
            value = (cell["mean"], _or_mean(cell, "low"), _or_mean(cell, "high"))
            found[line["name"], line["column"], measure] = value
            if measure == "sensitivity":
                first, second, third = (100 * number for number in value)
                found[line["name"], line["column"], MAP_SENSITIVITY] = (first, second, third)
    return found


def _or_mean(cell: Mapping[str, float | None], key: str) -> float:
    value = cell["mean"] if cell[key] is None else cell[key]
    assert value is not None
    return value


def wilson(share: float, count: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share of `count` images."""
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, centre - half), min(1.0, centre + half)


# ── deviations ──


def _texts(plan: Plan, content: Mapping[str, Any], name: str, row: str, beside: PaperRow) -> list[str]:
    texts: list[str] = []
    for cell in plan.cells:
        if cell.row == row:
            data, backbone = _expected(beside, name, cell.column)
            texts += _places(cell.config, data, backbone)
            texts += [text for text in settings_apart(cell.config) if text.split()[0] not in _subject(plan)]
            texts += _mixed(cell.config)
    texts += [f"accuracy over {plan.folds} folds of training images, not on test images"] * bool(plan.folds)
    return list(dict.fromkeys([*texts, *_sizes(content, row), *_explained(plan, name, beside)]))


def _mixed(config: Config) -> list[str]:
    """Frozen mode has as many views of an image as it keeps."""
    training, kept = config.training, 1 + config.training.augmentations
    few = training.mode == "frozen" and training.push_images > kept and config.network.network != "blackbox"
    return [f"a push mixes {kept} views, not {training.push_images}"] if few else []


def _explained(plan: Plan, name: str, beside: PaperRow) -> list[str]:
    """By what the maps of a line are made, and on how many images."""
    located = plan.localisation
    line = next((line for line in located.line if line.name == name), None) if located else None
    if located is None or line is None:
        return []
    texts = []
    kind, _, preset = line.method.partition(":")
    if kind == "mdm-prototype" and preset == "paper":
        texts.append("the decoder's η is relative to a blank image (docs/decoder.md)")
    elif kind.startswith("mdm"):
        texts.append(f"maps by {line.method}, not by the paper's decoder at its full length")
    if "interpretability" in beside.paper and located.images_per_class != _IMAGES:
        each = located.images_per_class
        ours = f"{located.images} test images" if each is None else f"{each} test images of each class"
        texts.append(f"maps on {ours}, not on {_IMAGES} of each class")
    return texts


def _expected(beside: PaperRow, name: str, column: str) -> tuple[str, str]:
    """The paper's data set and backbone of a cell."""
    wanted = beside.column or column
    data = next((item for item in DATA_SETS if item == wanted), "")
    data = data or ("Stanford Cars" if beside.paper == "general-cars" else "CUB-200-2011")
    words = f"{wanted} {name}{beside.row} {beside.paper}".lower()
    return data, next((item for item in BACKBONES if item.lower() in words), "ResNet50")


def _places(config: Config, data: str, backbone: str) -> list[str]:
    kind = config.data.data.partition(":")[0]
    ours = (
        SOURCES[kind].name if kind in SOURCES else {"birds": "the built-in birds"}.get(kind, config.data.data)
    )
    known = "RSNA pneumonia" if data == "RSNA" else data
    texts = [] if ours == known else [f"data: {ours}, not {data}"]
    name = config.network.backbone.split(":")[1]
    if name.replace("_", "") != backbone.lower():
        texts.append(f"backbone: {name}, not {backbone}")
    return texts


def settings_apart(config: Config) -> list[str]:
    """Settings in which a run is not by the paper's recipe, as `name ours, not theirs`."""
    word = config.network.network
    theirs = by_name(config_from({"recipe": "paper", "network": {"network": word}}))
    texts = []
    for name, value in by_name(config).items():
        section, _, key = name.rpartition(".")
        if (section not in _SECTIONS and name != "data.image_size") or key in (*_ASIDE, *_OURS, "backbone"):
            continue
        if value != theirs[name]:
            silent = "" if name in PAPER.stated else "the paper is silent, its recipe has "
            texts.append(f"{key} {value}, {silent or 'not '}{theirs[name]}")
    return texts


def _subject(plan: Plan) -> set[str]:
    """Settings that the rows of one network, by one recipe, differ in are what the table is about."""
    by_network: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in plan.cells:
        key = cell.config.network.network, cell.config.recipe
        by_network.setdefault(key, []).append(by_name(cell.config))
    return {
        name.rpartition(".")[2]
        for several in by_network.values()
        for name in several[0]
        if any(one[name] != several[0][name] for one in several)
    }


def _sizes(content: Mapping[str, Any], row: str) -> list[str]:
    """Whether a data set of the paper was there in part only."""
    texts = []
    for item in content["results"]:
        kind = item["config"]["data"]["data"].partition(":")[0]
        if item["row"] == row and kind in SOURCES and len(item["per_class"]) != SOURCES[kind].classes:
            texts.append(
                f"{len(item['per_class'])} of {SOURCES[kind].classes} classes of {SOURCES[kind].name}"
            )
    return list(dict.fromkeys(texts))
