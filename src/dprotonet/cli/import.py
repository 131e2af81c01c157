"""`dprotonet import`: a prototype network of another program becomes a run folder."""

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dprotonet.cli.parse import parsed
from dprotonet.errors import UserError


@dataclass(frozen=True)
class ImportArguments:
    """Make a run folder of a prototype network of another program (docs/import.md): of the state dict
    (.pth, .pt, .bin or .safetensors) of a ProtoPNet, TesNet, ST-ProtoPNet or PIP-Net, or of a folder that
    CaBRNet saved.

    A file that holds a whole pickled model is refused, because reading it would run code: save
    model.state_dict() where it was trained.
    """

    file: Annotated[Path, tyro.conf.Positional]
    """The state dict, or CaBRNet's folder."""
    out: Path
    """The run folder to make."""
    classes: Path | None = None
    """A text file with one class name per line (default: those of --data, else class 0, class 1 …)."""
    data: str | None = None
    """The data set it was trained on, as in train, so that `dprotonet evaluate` knows it."""
    kind: Literal["auto", "protopnet", "tesnet", "st-protopnet", "pip-net", "cabrnet"] = "auto"
    """Whose it is (default: by the names in it; a TesNet has those of a ProtoPNet and must be named)."""
    backbone: str | None = None
    """timm:NAME of the backbone (default: detected for ResNet, VGG, DenseNet and ConvNeXt)."""
    unstrided: int | None = None
    """For a PIP-Net, the number of the backbone's last stages with stride 1 (default: 2, as its ResNets and
    convnext_tiny_26; convnext_tiny_13 has 1)."""
    image_size: int = 224
    """Side of the square images the network was trained on."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""


def main(words: list[str]) -> None:
    arguments = parsed(ImportArguments, words, command="import")
    from dprotonet.experiment.build.data import UNKNOWN_DATA
    from dprotonet.experiment.transfer.import_network import ImportSettings, import_network

    settings = ImportSettings(
        _class_names(arguments),
        backbone=arguments.backbone,
        image_size=arguments.image_size,
        data=UNKNOWN_DATA if arguments.data is None else _full(arguments.data),
        kind=arguments.kind,
        unstrided=arguments.unstrided,
    )
    report = import_network(arguments.file, arguments.out, settings)
    if arguments.json:
        json.dump({"run": str(arguments.out), **report}, sys.stdout, ensure_ascii=False)
        print()
        return
    matched = ", ".join(f"{count} entries of the {part}" for part, count in report["matched"].items())
    print(f"{report['kind']} on {report['backbone']}: {report['classes']} classes, ", end="")
    print(f"{report['prototypes']} prototypes of dimension {report['dimension']}")
    print(f"matched: {matched}; nothing is missing")
    if report["kind"] == "protopnet" and arguments.kind == "auto":
        print("read as a ProtoPNet; the names of a TesNet are the same: for one, add --kind tesnet")
    print("source images of the prototypes are unknown, so that `explain` cannot show them")
    print(f"the run is in {arguments.out}; next: dprotonet predict {shlex.quote(str(arguments.out))} IMAGE")


def _full(data: str) -> str:
    from dprotonet.config import DataConfig
    from dprotonet.experiment.settings.plain_settings import absolute

    return absolute(DataConfig(data=data)).data


def _class_names(arguments: ImportArguments) -> tuple[str, ...]:
    if arguments.classes is not None:
        return _lines(arguments.classes)
    if arguments.data is None:
        return ()
    from dprotonet.config import DataConfig
    from dprotonet.experiment.build.data import build_splits

    return tuple(build_splits(DataConfig(data=arguments.data, image_size=arguments.image_size)).train.classes)


def _lines(path: Path) -> tuple[str, ...]:
    try:
        lines = path.expanduser().read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise UserError(f"--classes {path} is not text in UTF-8; give a class name a line") from None
    names = tuple(line.strip() for line in lines if line.strip())
    if not names:
        raise UserError(f"--classes {path} is empty; give a class name a line")
    return names
