"""`dprotonet serve`: a trained run, or two side by side, as a page in the browser, and as an API."""

import math
import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from dprotonet.cli.parse import parsed
from dprotonet.cli.source import TaskName
from dprotonet.errors import UserError

if TYPE_CHECKING:
    from dprotonet.experiment.trained.trained_model import TrainedModel

TOKEN = "DPROTONET_TOKEN"
EXTRA = {"fastapi": "fastapi", "uvicorn": "uvicorn", "python_multipart": "python-multipart"}


@dataclass(frozen=True)
class ServeArguments:
    """Show a run, or two networks side by side, as a web page with predictions and evidence.

    Only this machine has access by default.
    """

    run: Annotated[str, tyro.conf.Positional]
    """The run folder; or timm:NAME[:WEIGHTS], a network that was not trained here."""
    beside: Annotated[str | None, tyro.conf.Positional] = None
    """Another run folder or timm:NAME[:WEIGHTS]: both answer to each image, side by side."""
    host: str = "127.0.0.1"
    """The address to listen on; access from other machines needs --token."""
    port: int = 8000
    """The port (0: any free one)."""
    token: str = ""
    """A secret of at least 16 characters that clients must send (also read from DPROTONET_TOKEN)."""
    name: tuple[str, ...] = ()
    """Additional host names of the server, such as that of a proxy."""
    task: TaskName = None
    classes: Path | None = None
    """A text file with the class names of timm:NAME:WEIGHTS, one on each line (default: ImageNet's, where the
    model has them, else numbers)."""
    preset: Literal["fast", "instant", "best", "paper", "sampled"] = "fast"
    """Preset of the decoder; fast whatever the run's recipe is, because a page has many maps and the paper's
    decoder takes minutes for each. The page says which was used."""
    max_megabytes: float = 20.0
    """Largest accepted image file, in megabytes."""
    max_megapixels: float = 50.0
    """Largest accepted image, in megapixels."""
    device: str | None = None
    """Where to compute, such as cuda (default: the CPU)."""


def main(words: list[str]) -> None:
    arguments = parsed(ServeArguments, words, command="serve")
    if not 0 <= arguments.port <= 65535:
        raise UserError(f"--port is {arguments.port}; ports are 1 to 65535, or 0 for a free one")
    limits = (arguments.max_megabytes, arguments.max_megapixels)
    if not all(math.isfinite(value) and value > 0 for value in limits):
        raise UserError("--max-megabytes and --max-megapixels must be numbers larger than 0")
    if not any(f"{name}".startswith("timm:") for name in (arguments.run, arguments.beside)):
        for option, given in (("--task", arguments.task), ("--classes", arguments.classes)):
            if given is not None:
                raise UserError(f"{option} is for a network timm:NAME[:WEIGHTS], and none is served")
    _check_extra()
    from dprotonet.data.upload import UploadLimits
    from dprotonet.web.access import Access
    from dprotonet.web.pair import pair
    from dprotonet.web.serve import serve
    from dprotonet.web.service import Service, ServiceSettings

    door = Access(
        host=arguments.host, token=arguments.token or os.environ.get(TOKEN, ""), names=arguments.name
    )
    settings = ServiceSettings(limits=UploadLimits(*limits), preset=arguments.preset)
    models = [_opened(name, arguments) for name in (arguments.run, arguments.beside) if name is not None]
    service, *others = [Service(model, settings) for model in models]
    for other in others:
        pair(service, other)
    serve(service, door, host=arguments.host, port=arguments.port, announce=_announce)


def _opened(name: str, arguments: ServeArguments) -> "TrainedModel":
    """A trained run, or a network from elsewhere."""
    from dprotonet.experiment.model import Model
    from dprotonet.experiment.trained.classifier import Classifier
    from dprotonet.experiment.trained.plain_model import PlainModel

    if not name.startswith("timm:"):
        return Model.load(name, device=arguments.device)
    names = () if arguments.classes is None else _names(arguments.classes)
    found = Classifier.open(name, device=arguments.device, task=arguments.task, classes=names)
    return PlainModel(found)


def _names(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--classes {path} cannot be read: {error}") from None
    names = tuple(line.strip() for line in lines if line.strip())
    if len(set(names)) != len(names) or not names:
        raise UserError(f"--classes {path} must have a name on each line, each once")
    return names


def missing_packages() -> list[str]:
    """What `dprotonet serve` needs and is not installed."""
    return [package for module, package in EXTRA.items() if find_spec(module) is None]


def _check_extra() -> None:
    for package in missing_packages():
        raise UserError(f"dprotonet serve needs the package {package}: pip install 'dprotonet[web]'")


def _announce(address: str) -> None:
    print(f"open {address}", flush=True)
    print("stop with Ctrl-C", file=sys.stderr)
