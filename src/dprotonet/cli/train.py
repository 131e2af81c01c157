"""`dprotonet train`: from images to a run folder."""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from dprotonet.cli.interrupted import if_stopped
from dprotonet.cli.parse import parsed
from dprotonet.config import (
    AugmentationConfig,
    Config,
    DataConfig,
    ExplainingConfig,
    NetworkConfig,
    TrainingConfig,
    by_name,
    from_tables,
    given_tables,
    read_toml,
    to_tables,
)
from dprotonet.errors import UserError
from dprotonet.experiment.settings.epochs import check_pushes
from dprotonet.experiment.settings.idle_settings import check_idle
from dprotonet.experiment.settings.plain_settings import absolute
from dprotonet.experiment.settings.recipes import GIVEN, Resolved, resolve

_SECTIONS = ("data", "network", "training", "augmentation", "explaining")
_FLAG = "command line"
_WIDTH = 46  # of a value in --show-config, before its origin


@dataclass(frozen=True)
class TrainArguments:
    """Train a DProtoNet. Flags override --config FILE, which overrides recipe, mode and network."""

    out: Path | None = None
    """The run folder to create (required, except with --show-config)."""
    recipe: str = "default"
    """Which values are implied for settings that you do not give: default (parts), parts, masks, paper (the
    paper's own), or those of another network's authors: protopnet, np-protopnet, gen-protopnet, xprotonet,
    protopool, pip-net, blackbox."""
    config: Path | None = None
    """A TOML file with `recipe` and tables [data], [network], [training], [augmentation], [explaining];
    --show-config prints one."""
    show_config: bool = False
    """Print every value and its origin as a TOML file, and train nothing."""
    resume: bool = False
    """Continue the interrupted run in --out."""
    overwrite: bool = False
    """Replace an existing run in --out."""
    calibration: Literal["auto", "folds", "validation"] = "auto"
    """Images on which probabilities are calibrated: validation, or training images in 5 folds, each answered
    by a network trained without it; auto takes folds in frozen mode with fewer than 200 validation images."""
    cache: Path | None = None
    """Cache folder for features of frozen mode (default: the user's cache folder, or $DPROTONET_CACHE)."""
    data: DataConfig = field(default_factory=DataConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    explaining: ExplainingConfig = field(default_factory=ExplainingConfig)

    def asked(self) -> Config:
        """The config, with settings that are still to be implied."""
        sections = {name: getattr(self, name) for name in _SECTIONS}
        return Config(**{**sections, "data": absolute(self.data)}, recipe=self.recipe)


def main(words: list[str]) -> None:
    arguments = parsed(TrainArguments, words, command="train")
    before = _before(arguments)  # what the flags change
    if before is not None:
        base = replace(TrainArguments(), recipe=before.recipe, **{n: getattr(before, n) for n in _SECTIONS})
        arguments = parsed(TrainArguments, words, command="train", default=base)
    asked = arguments.asked()
    if asked.training.mode == "auto":
        run_better_mode(asked, arguments, before)
        return
    resolved = _with_sources(resolve(asked), arguments, before)
    if not arguments.resume:  # which says itself what it cannot change
        check_idle([resolved.config], _flags(resolved))
        check_pushes(resolved.config, _flags(resolved))
    if arguments.show_config:
        from dprotonet.experiment.settings.config_check import check_config

        check_config(resolved.config)
        print("\n".join(_shown(resolved)))
        return
    if arguments.out is None:
        raise UserError("--out is missing; name the run folder to make, such as --out runs/birds")
    if resolved.config.data.folds and not resolved.config.data.fold:
        from dprotonet.cli.folds import cross_validate

        cross_validate(resolved, arguments.out, overwrite=arguments.overwrite, cache=arguments.cache)
    else:
        run(resolved, arguments.out, arguments)


def run_better_mode(asked: Config, arguments: TrainArguments, before: Config | None) -> None:
    """Try both modes on folds of the training images, then train by the better one."""
    from dprotonet.cli.auto import choose_mode
    from dprotonet.experiment.runs.choose_mode import MODES, with_mode

    if arguments.show_config:
        raise UserError("--show-config goes with --mode frozen or joint, not auto")
    if arguments.resume:
        raise UserError(
            "--resume goes on in the mode that was chosen: leave --mode auto out; "
            "if the trials themselves were stopped, leave --resume out"
        )
    if arguments.out is None:
        raise UserError("--out is missing; name the run folder to make, such as --out runs/birds")
    both = {mode: _with_sources(resolve(with_mode(asked, mode)), arguments, before) for mode in MODES}
    check_idle([resolved.config for resolved in both.values()], _flags(both["joint"]) - {"training.mode"})
    for resolved in both.values():
        check_pushes(resolved.config, _flags(resolved))
    trials, choice = choose_mode(asked, arguments.out, overwrite=arguments.overwrite, cache=arguments.cache)
    resolved = both[choice.mode]
    origins = {**resolved.origins, "training.mode": "chosen by cross-validation"}
    resolved = replace(resolved, origins=origins)
    run(resolved, arguments.out, arguments, on_open=lambda: trials.settle(choice))


def _flags(resolved: Resolved) -> set[str]:
    return {name for name, origin in resolved.origins.items() if origin == _FLAG}


def run(
    resolved: Resolved, out: Path, arguments: TrainArguments, on_open: Callable[[], None] | None = None
) -> None:
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.build.training import default_cache
    from dprotonet.experiment.runs.finished import finished
    from dprotonet.experiment.runs.out_of_fold import trained_and_calibrated
    from dprotonet.experiment.runs.trainer import Trainer

    console, begun = stderr_console(), arguments.resume

    def opened() -> None:
        nonlocal begun
        begun = True
        if on_open is not None:
            on_open()

    def advice() -> str:
        if not begun:
            return "nothing was written yet, the same command starts again"
        return "go on with --resume" + ("" if on_open is None else " instead of --mode auto")

    with if_stopped(advice), Reporter(console) as reporter:
        trainer = Trainer(
            resolved.config,
            out,
            resume=arguments.resume,
            overwrite=arguments.overwrite,
            cache=arguments.cache or default_cache(),
            on_scan=lambda done, total: reporter.advance("scan", done, total),
            origins=resolved.origins,
            on_open=opened,
        )
        finished(trained_and_calibrated(trainer, arguments.calibration), reporter.show)
    console.print(
        f"the run is in {out}; next: dprotonet evaluate {shlex.quote(str(out))}", soft_wrap=True, markup=False
    )


def _before(arguments: TrainArguments) -> Config | None:
    """The config of the run that goes on, or that of the file."""
    if arguments.resume and arguments.overwrite:
        raise UserError("--resume goes on and --overwrite starts anew; give one of them")
    if arguments.resume and arguments.config is not None:
        raise UserError("--resume takes the config of the run; leave --config out")
    if arguments.resume:
        return _stored(arguments.out)
    if arguments.config is not None:
        return from_tables(Config, read_toml(arguments.config.expanduser()), where="")
    return None


def _stored(out: Path | None) -> Config:
    """The config that the run was started with, or its first fold."""
    from dprotonet.experiment.runs.run_folder import RunFolder

    place = Path(out or "").expanduser()
    folds = not (place / "config.toml").is_file() and (place / "fold-1" / "config.toml").is_file()
    if out is None or not (folds or (place / "config.toml").is_file()):
        raise UserError(f"--resume: {out or 'no --out'} is not a run folder; start without --resume")
    config = RunFolder(place / "fold-1" if folds else place).read_config()
    return replace(config, data=replace(config.data, fold=0)) if folds else config


def _with_sources(resolved: Resolved, arguments: TrainArguments, before: Config | None) -> Resolved:
    """What was given, by whom: a flag, the file, or the run that goes on, which knows its own origins."""
    from dprotonet.experiment.runs.run_folder import RunFolder

    old, new = by_name(before or Config()), by_name(resolved.config)
    given = [name for name, origin in resolved.origins.items() if origin == GIVEN]
    origins = {**resolved.origins, **dict.fromkeys(given, _FLAG)}
    if arguments.config is not None and before is not None:
        said = [f"{table}.{key}" for table, keys in given_tables(before).items() for key in keys]
        kept = [name for name in ("recipe", *said) if name in given and old[name] == new[name]]
        origins |= dict.fromkeys(kept, f"file {arguments.config.name}")
    if arguments.resume and arguments.out is not None:
        first = arguments.out / "fold-1"
        known = RunFolder(first if first.is_dir() else arguments.out).read_origins()
        origins |= {name: known.get(name, "the run that goes on") for name in old if old[name] == new[name]}
    return replace(resolved, origins=origins)


# ── --show-config ──


def _shown(resolved: Resolved) -> Iterator[str]:
    """A TOML file whose comments say where each value comes from."""
    yield _line("recipe", resolved.config.recipe, resolved.origins["recipe"])
    for section, values in to_tables(resolved.config).items():
        if not isinstance(values, Mapping):
            continue
        yield f"\n[{section}]"
        for key, value in values.items():
            yield _line(key, value, resolved.origins[f"{section}.{key}"])
    yield from _decoder(resolved.config.explaining.decoder)


def _line(key: str, value: Any, origin: str) -> str:
    return f"{key} = {json.dumps(value, ensure_ascii=False)}".ljust(_WIDTH) + f" # {origin}"


def _decoder(name: str) -> Iterator[str]:
    """The numbers of the preset, which are no settings of a run, as comments."""
    from dprotonet.experiment.settings.paper_values import DECODER
    from dprotonet.interpretation.mdm import preset

    yield f'\n# The decoder "{name}" (docs/decoder.md):'
    for key, value in asdict(preset(name)).items():  # type: ignore[call-overload]
        place = DECODER[key].place if key in DECODER else "not in the paper"
        place = place if name == "paper" else ""
        yield f"#   {key} = {json.dumps(value)}".ljust(_WIDTH) + (f" # {place}" if place else "")
