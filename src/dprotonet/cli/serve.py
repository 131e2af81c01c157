"""`dprotonet serve`: a trained run, or two side by side, as a page in the browser, and as an API."""

import math
import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dprotonet.cli.parse import parsed
from dprotonet.errors import UserError

TOKEN = "DPROTONET_TOKEN"
EXTRA = {"fastapi": "fastapi", "uvicorn": "uvicorn", "python_multipart": "python-multipart"}


@dataclass(frozen=True)
class ServeArguments:
    """Show a run, or two side by side, as a web page with predictions and evidence.

    Only this machine has access by default.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder."""
    beside: Annotated[Path | None, tyro.conf.Positional] = None
    """Another run folder, such as a plain classifier's: both answer to each image, side by side."""
    host: str = "127.0.0.1"
    """The address to listen on; access from other machines needs --token."""
    port: int = 8000
    """The port (0: any free one)."""
    token: str = ""
    """A secret of at least 16 characters that clients must send (also read from DPROTONET_TOKEN)."""
    name: tuple[str, ...] = ()
    """Additional host names of the server, such as that of a proxy."""
    preset: Literal["fast", "best", "paper", "sampled"] = "fast"
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
    _check_extra()
    from dprotonet.data.upload import UploadLimits
    from dprotonet.experiment.model import Model
    from dprotonet.web.access import Access
    from dprotonet.web.pair import pair
    from dprotonet.web.serve import serve
    from dprotonet.web.service import Service, ServiceSettings

    door = Access(
        host=arguments.host, token=arguments.token or os.environ.get(TOKEN, ""), names=arguments.name
    )
    settings = ServiceSettings(limits=UploadLimits(*limits), preset=arguments.preset)
    folders = [arguments.run] if arguments.beside is None else [arguments.run, arguments.beside]
    models = [Model.load(folder, device=arguments.device) for folder in folders]
    service, *others = [Service(model, settings) for model in models]
    for other in others:
        pair(service, other)
    serve(service, door, host=arguments.host, port=arguments.port, announce=_announce)


def missing_packages() -> list[str]:
    """What `dprotonet serve` needs and is not installed."""
    return [package for module, package in EXTRA.items() if find_spec(module) is None]


def _check_extra() -> None:
    for package in missing_packages():
        raise UserError(f"dprotonet serve needs the package {package}: pip install 'dprotonet[web]'")


def _announce(address: str) -> None:
    print(f"open {address}", flush=True)
    print("stop with Ctrl-C", file=sys.stderr)
