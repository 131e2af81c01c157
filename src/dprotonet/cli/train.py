"""`dprotonet train`: from images to a run folder."""

import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import tyro

from dprotonet.cli.parse import option_value, parsed
from dprotonet.config import Config, DataConfig, NetworkConfig, TrainingConfig, from_tables, read_toml
from dprotonet.errors import UserError
from dprotonet.experiment.rivals import rival_config


@dataclass(frozen=True)
class TrainArguments:
    """Train a DProtoNet. Flags override --config FILE, which overrides the defaults."""

    out: Path
    """The run folder to make."""
    config: Path | None = None
    """A TOML file with the tables [data], [network] and [training]."""
    resume: bool = False
    """Go on with the run in --out after it was stopped."""
    overwrite: bool = False
    """Replace the run that is in --out."""
    cache: Path | None = None
    """Where frozen mode keeps features (default: the user's cache folder, or $DPROTONET_CACHE)."""
    data: DataConfig = field(default_factory=DataConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)


def main(words: list[str]) -> None:
    stored = _stored(words)
    arguments = parsed(TrainArguments, words, command="train", default=_defaults(words, stored))
    config = Config(absolute(arguments.data), arguments.network, arguments.training)
    if config.data.folds and not config.data.fold:
        from dprotonet.cli.folds import cross_validate

        cross_validate(config, arguments)
    else:
        run(config, arguments)


def absolute(data: DataConfig) -> DataConfig:
    """With the folders' full paths, so that the run can be evaluated from anywhere."""
    kind, _, path = data.data.partition(":")
    images = f"{kind}:{Path(path).expanduser().resolve()}" if path else data.data
    cache = str(Path(data.image_cache).expanduser().resolve()) if data.image_cache else ""
    return replace(data, data=images, image_cache=cache)


def run(config: Config, arguments: TrainArguments) -> None:
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.build import default_cache
    from dprotonet.experiment.trainer import Trainer, leave_group

    console = stderr_console()
    with Reporter(console) as reporter:
        trainer = Trainer(
            config,
            arguments.out,
            resume=arguments.resume,
            overwrite=arguments.overwrite,
            cache=arguments.cache or default_cache(),
            on_scan=lambda done, total: reporter.advance("scan", done, total),
        )
        reporter.watch(trainer.run())
    leave_group()
    console.print(
        f"the run is in {arguments.out}; next: dprotonet evaluate {shlex.quote(str(arguments.out))}",
        soft_wrap=True,
        markup=False,
    )


def _stored(words: list[str]) -> Config | None:
    """With --resume, the config that the run was started with."""
    if "--resume" not in words:
        return None
    if "--overwrite" in words:
        raise UserError("--resume goes on and --overwrite starts anew; give one of them")
    out = option_value(words, "--out")
    place = Path(out or "").expanduser()
    folds = not (place / "config.toml").is_file() and (place / "fold-1" / "config.toml").is_file()
    path = place / "fold-1" / "config.toml" if folds else place / "config.toml"
    if out is None or not path.is_file():
        raise UserError(f"--resume: {out or 'no --out'} is not a run folder; start without --resume")
    config = from_tables(Config, read_toml(path), where="")
    return replace(config, data=replace(config.data, fold=0)) if folds else config


def _defaults(words: list[str], stored: Config | None) -> TrainArguments | None:
    """What flags change: the run that goes on, or the file, with the values that some words stand for."""
    file, rival = option_value(words, "--config"), option_value(words, "--network")
    if (file, rival, stored, option_value(words, "--mode")) == (None, None, None, None):
        return None
    if file is not None and stored is not None:
        raise UserError("--resume takes the config of the run; leave --config out")
    config = stored or rival_config(rival, _with_flags({} if file is None else read_toml(Path(file)), words))
    blank = TrainArguments(out=tyro.MISSING)
    return replace(blank, data=config.data, network=config.network, training=config.training)


def _with_flags(tables: dict[str, Any], words: list[str]) -> dict[str, Any]:
    """The file's tables with those flags that defaults of others depend on; wrong values tyro names."""
    for table, name, kind in (
        ("training", "mode", TrainingConfig),
        ("network", "regions", NetworkConfig),
        ("network", "activation", NetworkConfig),
        ("network", "dimension", NetworkConfig),
    ):
        value: Any = option_value(words, f"--{name}")
        if name == "dimension" and value is not None and value.isdecimal():
            value = int(value)
        elif value not in get_args(get_type_hints(kind)[name]):
            continue
        if isinstance(tables.get(table, {}), dict):
            tables = {**tables, table: {**tables.get(table, {}), name: value}}
    return tables
