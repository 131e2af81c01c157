"""The plan of a table: rows × columns × seeds, each a change of one shared config.

    title = "Accuracy"
    seeds = [0, 1, 2]
    recipe = "default"             # whose values hold where none is given; a row may name another
    folds = 5                      # optional: cross-validation instead of test images
    [training]                     # shared values, tables as in a config.toml
    mode = "frozen"
    [[row]]
    name = "DProtoNet"
    [[row]]
    name = "one image a prototype"
    training.push_images = 1
    [[row]]
    name = "linear probe"
    baseline = "probe"             # or "discriminant": a classifier of pooled features, and no network
    [[column]]
    name = "birds"
    data.data = "birds"

`[localisation]` asks for the heatmaps of the runs, too: see `localisation_plan`; `[figures]` for pictures of
one of its networks: see `run_pictures`.

A row and a column may change anything; where both change the same value, that is a mistake. Unknown keys are
errors that name the known ones. `network.network` is a rival's name: its own values hold where none is given.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from dprotonet.config import Config, from_tables, read_toml
from dprotonet.encoder.backbone import BackboneSpec, check_name
from dprotonet.errors import UserError
from dprotonet.experiment.benchmark.localisation_plan import LocalisationPlan, localisation_plan
from dprotonet.experiment.benchmark.run_pictures import FiguresPlan, figures_plan
from dprotonet.experiment.evaluation.baseline import BASELINES, baseline_config
from dprotonet.experiment.settings.recipes import GIVEN, resolve

TABLES = ("data", "network", "training", "augmentation", "explaining")
MEASURES = ("accuracy", "balanced_accuracy", "auroc", "sensitivity", "specificity")
AT_THE_END = "accuracy_at_the_end"  # of a fold's last model, not the kept one
STOPPED = "stopped by"  # of a result: what ended each of its runs, patience or the plan
# What the row of a baseline may change: what frozen features depend on, and how fast they are made.
_OF_FEATURES = {"network": ("backbone", "channels"), "training": ("augmentations", "workers")}
_KEYS = ("title", "measures", "seeds", "folds", "recipe", *TABLES, "localisation", "figures", "row", "column")

Tables = Mapping[str, Mapping[str, Any]]


class Change(NamedTuple):
    """A row or a column: its name and what it changes, of tables and perhaps the recipe.

    A row may be a baseline (experiment/evaluation/baseline.py) in place of a network.
    """

    name: str
    tables: Tables
    recipe: str | None = None
    baseline: str | None = None


class Run(NamedTuple):
    """A folder below OUT/runs, and what is trained into it, or which baseline is fitted."""

    folder: str
    config: Config
    origins: Mapping[str, str] = {}  # where each setting came from
    baseline: str | None = None


class Cell(NamedTuple):
    """One value before seeds are averaged: its place in the table, its seed, and its config."""

    row: str
    column: str
    seed: int
    config: Config
    origins: Mapping[str, str] = {}
    baseline: str | None = None

    @property
    def folder(self) -> str:
        return f"{_plain(self.row)}--{_plain(self.column)}--seed{self.seed}"

    @property
    def runs(self) -> tuple[Run, ...]:
        """What has to be trained for it: one run, or one for every fold."""
        data = self.config.data
        return tuple(
            Run(
                f"{self.folder}/fold-{fold}",
                replace(self.config, data=replace(data, fold=fold)),
                self.origins,
                self.baseline,
            )
            for fold in range(1, data.folds + 1)
        ) or (Run(self.folder, self.config, self.origins, self.baseline),)


@dataclass(frozen=True)
class Plan:
    """What has to be trained for one table, and what it shows."""

    title: str
    measures: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    localisation: LocalisationPlan | None = None
    folds: int = 0  # of training and validation images; none: test images judge
    figures: FiguresPlan | None = None

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """A plan from its TOML file; every config is checked before anything runs."""
        return cls.of(read_toml(path), where=path.name)

    @classmethod
    def of(cls, content: Mapping[str, Any], *, where: str) -> "Plan":
        unknown = [key for key in content if key not in _KEYS]
        if unknown:
            raise UserError(f"unknown key '{unknown[0]}' in {where}; known keys: {', '.join(_KEYS)}")
        rows, columns = _changes(content, "row", where), _changes(content, "column", where)
        shared = {table: content.get(table, {}) for table in TABLES}
        recipe = content.get("recipe", "default")
        wrong = [table for table, values in shared.items() if not isinstance(values, dict)]
        if wrong:
            raise UserError(f"{where}: {wrong[0]} must be a table, [{wrong[0]}]")
        seeds, folds = _seeds(content, where), _folds(content, where)
        cells = [
            _cell(shared, recipe, (row, column), seed=seed, where=where)
            for seed in seeds  # first, so that a stopped table has whole seeds
            for column in columns
            for row in rows
            if row.baseline is None or seed == seeds[0]  # which draws nothing: one value stands for all seeds
        ]
        cells = [cell._replace(config=_folded(cell.config, folds)) for cell in cells]
        _check_folders(cells, where)
        names = tuple(row.name for row in rows), tuple(column.name for column in columns)
        title, measures = str(content.get("title", where)), _measures(content, where)
        last = sorted(cells, key=lambda cell: cell.config.network.network != "blackbox")
        networks = {cell.row: cell.config.network.network for cell in last}  # a black box if all are
        networks = {row.name: networks[row.name] for row in rows if row.baseline is None}
        located = localisation_plan(content.get("localisation"), networks, where=where)
        pictures = figures_plan(content.get("figures"), networks, where=where)
        return cls(title, measures, *names, tuple(cells), located, folds, pictures)


def check_places(plan: Plan, where: str) -> None:
    """Before any work: every backbone has a name that timm knows, and some data is there.

    A plan of which only a part has its data is worth running; the rest is told as failed.
    """
    for cell in plan.cells:
        check_name(BackboneSpec.parse(cell.config.network.backbone).name)
    data = dict.fromkeys(cell.config.data.data for cell in plan.cells)
    paths = {spec: Path(spec.partition(":")[2]).expanduser() for spec in data}
    if not any(path.is_dir() for path in paths.values()):  # birds have no path, which is this folder
        some = ", ".join(str(path) for path in paths.values())
        raise UserError(
            f"{where}: no data of the plan is there: {some}; change data.data in the plan, "
            "or run the command where these paths lead somewhere"
        )


def _changes(content: Mapping[str, Any], kind: str, where: str) -> list[Change]:
    found = content.get(kind, [])
    if not isinstance(found, list) or not found or not all(isinstance(item, dict) for item in found):
        raise UserError(f"{where} has no [[{kind}]]; a table needs at least one, with a name")
    changes = []
    for item in found:
        own = ("name", "recipe", "baseline") if kind == "row" else ("name", "recipe")
        unknown = [key for key in item if key not in (*own, *TABLES)]
        if unknown or not isinstance(item.get("name"), str):
            wrong = f"unknown key '{unknown[0]}'" if unknown else "no name"
            raise UserError(
                f"{where}: {wrong} in a [[{kind}]]; it may have "
                + ", ".join([*own, *(f"{table}.*" for table in TABLES)])
            )
        tables = {table: item[table] for table in TABLES if table in item}
        for table, values in tables.items():
            if not isinstance(values, dict):
                raise UserError(f"{where}: {table} in a [[{kind}]] is {values!r}; write {table}.KEY = VALUE")
        changes.append(Change(item["name"], tables, item.get("recipe"), item.get("baseline")))
        _check_baseline(changes[-1], where)
    return changes


def _check_baseline(row: Change, where: str) -> None:
    """Its name is known, and it sets nothing that it would not heed."""
    if row.baseline is None:
        return
    place = f"{where}, row '{row.name}'"
    if row.baseline not in BASELINES:
        raise UserError(f"{place}: unknown baseline {row.baseline!r}; known: {', '.join(BASELINES)}")
    of_features = [f"{table}.{key}" for table, keys in _OF_FEATURES.items() for key in keys]
    given = [f"{table}.{key}" for table in _OF_FEATURES for key in row.tables.get(table, {})]
    given += ["recipe"] * (row.recipe is not None) + ["explaining"] * ("explaining" in row.tables)
    unheeded = [name for name in given if name not in of_features]
    if unheeded:
        raise UserError(
            f"{place}: a baseline has no use for {unheeded[0]}; it may have name, data.*, augmentation.*, "
            + ", ".join(of_features)
        )


def _cell(shared: Tables, recipe: str, changes: tuple[Change, Change], *, seed: int, where: str) -> Cell:
    row, column = changes
    config, origins = _config(shared, recipe, changes, seed=seed, where=where)
    if row.baseline is not None:
        config = baseline_config(config)
    return Cell(row.name, column.name, seed, config, origins, row.baseline)


def _config(
    shared: Tables, recipe: str, changes: tuple[Change, Change], *, seed: int, where: str
) -> tuple[Config, dict[str, str]]:
    row, column = changes
    tables: dict[str, Any] = {table: dict(values) for table, values in shared.items()}
    for change in changes:
        for table, values in change.tables.items():
            tables[table].update(values)
    both = [
        f"{table}.{key}"
        for table in TABLES
        for key in row.tables.get(table, {})
        if key in column.tables.get(table, {})
    ]
    both += ["recipe"] * (row.recipe is not None and column.recipe is not None)
    if both:
        raise UserError(f"{where}: row '{row.name}' and column '{column.name}' both set {both[0]}")
    if "seed" in tables["training"]:
        raise UserError(f"{where}: training.seed is set; write seeds = [0, 1, 2] at the top instead")
    if tables["data"].get("folds"):
        raise UserError(f"{where}: data.folds is set; write folds = 5 at the top of the plan instead")
    tables["training"]["seed"] = seed
    tables["recipe"] = row.recipe or column.recipe or recipe
    try:
        resolved = resolve(from_tables(Config, tables, where=""))
    except UserError as error:
        raise UserError(f"{where}, {row.name} on {column.name}: {error}") from None
    said = {name: f"plan {where}" if origin == GIVEN else origin for name, origin in resolved.origins.items()}
    return resolved.config, said


def _seeds(content: Mapping[str, Any], where: str) -> list[int]:
    seeds = content.get("seeds", [0])
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise UserError(f"{where}: seeds must be a list of integers, such as [0, 1, 2], not {seeds!r}")
    return list(dict.fromkeys(seeds))


def _folds(content: Mapping[str, Any], where: str) -> int:
    folds = content.get("folds", 0)
    if type(folds) is not int or folds < 0 or folds == 1:
        raise UserError(f"{where}: folds is {folds!r}; it is a number from 2 on, or 0 for none")
    return folds


def _folded(config: Config, folds: int) -> Config:
    return replace(config, data=replace(config.data, folds=folds))


def _measures(content: Mapping[str, Any], where: str) -> tuple[str, ...]:
    measures = content.get("measures", ["accuracy"])
    known = (*MEASURES, AT_THE_END) if content.get("folds") else MEASURES
    if not isinstance(measures, list) or not measures or not all(name in known for name in measures):
        raise UserError(f"{where}: measures are some of {', '.join(known)}, not {measures!r}")
    return tuple(measures)


def _check_folders(cells: Sequence[Cell], where: str) -> None:
    seen: set[str] = set()
    for cell in cells:
        if cell.folder in seen:
            raise UserError(f"{where}: two runs would share the folder {cell.folder}; give rows other names")
        seen.add(cell.folder)


def _plain(name: str) -> str:
    """Fit for a file name."""
    return re.sub(r"[^\w.+-]+", "_", name.strip()) or "_"
