"""`dprotonet quality`: do a run's prototypes show different places, and always the same part?"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dprotonet.cli.explain_arguments import PresetName, chosen_preset
from dprotonet.cli.images import check_out
from dprotonet.cli.parse import parsed
from dprotonet.cli.source import AllowLeaks, Device, Json, RunFolderPath, SameClasses, Split, data_of
from dprotonet.errors import UserError
from dprotonet.launch import processes


@dataclass(frozen=True)
class QualityArguments:
    """Measure prototypes: overlap of rows, parts, consistency, stability, purity, size, duplicates."""

    run: RunFolderPath
    data: SameClasses = None
    split: Split = "test"
    out: Path | None = None
    """Folder for quality.json (default: RUN/quality)."""
    images: int = 3
    """Images per class."""
    top: int = 5
    """Rows per image; and prototypes per class, those that contribute most to it in these images."""
    maps: Literal["decoder", "similarity"] = "decoder"
    """Heatmaps of the decoder, or the network's own similarity or occurrence maps (faster)."""
    skip: str = ""
    """Measures to skip, because they need additional maps: noise, far, purity, separated by commas."""
    noise: float = 0.2
    """Standard deviation of the noise, on normalised images."""
    preset: PresetName = "fast"
    """Preset of the decoder."""
    iterations: int | None = None
    """Steps of the decoder (default: the preset's)."""
    intervention: int = 0
    """Number of images in which to change parts one by one, to test whether heatmaps mark the important ones;
    needs data that can be rendered again, such as the built-in birds (0: no test)."""
    explainers: str = "mdm,gradcam,gradcam++,similarity"
    """Methods that --intervention tests besides the evidence rows, as in `compare`, separated by commas."""
    json: Json = False
    allow_leaks: AllowLeaks = False
    device: Device = None


def main(words: list[str]) -> None:
    arguments = parsed(QualityArguments, words, command="quality")
    out = arguments.out or arguments.run / "quality"
    check_out(out)
    for name in ("images", "top"):
        if getattr(arguments, name) < 1:
            raise UserError(f"--{name} is {getattr(arguments, name)}; it must be at least 1")
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.cli.quality_intervention import intervention_of, show_intervention
    from dprotonet.experiment.quality.quality import STAGES, quality_summary
    from dprotonet.files import write_text
    from dprotonet.training.processes import Group

    if arguments.intervention and processes() > 1:
        raise UserError("--intervention does not divide its work; give it to a command of one process")
    skip = [word.strip() for word in arguments.skip.split(",") if word.strip()]
    if unknown := [word for word in skip if word not in STAGES]:
        raise UserError(f"--skip {unknown[0]} is unknown; it takes {', '.join(STAGES)}")
    group = Group.joined(arguments.device)
    with Reporter(stderr_console()) as reporter:
        check = _check(arguments, skip, reporter)
        steps = "" if arguments.iterations is None else f",iterations={arguments.iterations}"
        intervention = intervention_of(
            check,
            arguments.intervention,
            explainers=arguments.explainers,
            decoder=f"{arguments.preset}{steps}",
        )
        found = check.run(
            lambda done, total: reporter.advance("looking at prototypes", done, total), group=group
        )
        changed = intervention.run(reporter.advance).summary() if intervention else None
    if not group.is_main:
        return
    settings = {"split": arguments.split, "top": arguments.top, "noise": arguments.noise, "skip": skip}
    content = {"run": str(arguments.run), **settings, **quality_summary(found)}
    write_text(out / "quality.json", json.dumps(content, ensure_ascii=False, indent=1))
    if changed:
        write_text(out / "intervention.json", json.dumps(changed, ensure_ascii=False, indent=1))
    if arguments.json:
        json.dump(content | ({"intervention": changed} if changed else {}), sys.stdout, ensure_ascii=False)
        print()
    else:
        _show(content, out / "quality.json")
        if changed:
            show_intervention(changed, out / "intervention.json")


def _check(arguments: QualityArguments, skip: list[str], reporter: Any) -> Any:
    from dprotonet.experiment.build.data import build_splits
    from dprotonet.experiment.evaluation.evaluation import choose_split
    from dprotonet.experiment.model import Model
    from dprotonet.experiment.quality.quality import QualityCheck

    model = Model.load(arguments.run, device=arguments.device)
    model.check_prototypes()
    config = data_of(arguments, model.config.data)
    splits = build_splits(config, lambda done, total: reporter.advance("scan", done, total))
    data = choose_split(splits, arguments.split)
    if tuple(data.classes) != model.classes:
        raise UserError("the data has other classes than the run; prototypes belong to the run's classes")
    preset = chosen_preset(arguments.preset, arguments.iterations)
    return QualityCheck(
        model,
        data,
        images=arguments.images,
        top=arguments.top,
        maps=arguments.maps,
        noise=arguments.noise,
        skip=skip,
        preset=preset,
    )


def _show(content: dict[str, Any], path: Path) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    columns = ("size", "steadiness", "stability", "consistency")
    table = Table("prototype", "class", *columns, "part", "twins", title=escape(content["run"]))
    for item in content["prototypes"]:
        values = (_number(item[name]) for name in columns)
        twins = ", ".join(map(str, item["twins"]))
        table.add_row(str(item["prototype"]), escape(item["class_name"]), *values, item["part"] or "–", twins)
    table.add_section()
    table.add_row("mean", "", *(_number(content[name]) for name in columns), "", "")
    console = Console()
    console.print(table)
    console.print(
        "size: share of the pixels with 90 % of the heat; steadiness: rank correlation under noise; "
        "stability: same part under noise; consistency: share of images in which the usual part is covered.",
        style="dim",
    )
    console.print(_measures(content))
    console.print(
        "95 % intervals over images. Rows: the prototypes that decided. centre, random, object: bells in the "
        "middle, anywhere, anywhere on the object. docs/metrics.md says what each measure is.",
        style="dim",
    )
    console.print(f"quality: {path}", soft_wrap=True, markup=False, highlight=False)


def _measures(content: dict[str, Any]) -> Any:
    """Measures down, the run's maps and the controls across: so that intervals fit a terminal."""
    from rich.table import Table

    from dprotonet.experiment.quality.quality import MEASURES
    from dprotonet.experiment.quality.row_maps import CONTROLS

    names = (content["maps"], *CONTROLS)
    table = Table("", *names, title=f"{content['maps']} maps, {content['images']} images")
    for measure, row in content["measures"].items():
        table.add_row(MEASURES[measure], *(_interval(row.get(name)) for name in names))
    return table


def _interval(found: dict[str, float | None] | None) -> str:
    if found is None or found["mean"] is None:
        return "–"
    limits = "" if found["low"] is None else f"\n{found['low']:.2f}–{found['high']:.2f}"
    return f"{found['mean']:.2f}{limits}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
