"""`dprotonet serve`: a trained run as a page in the browser, and as an API."""

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
    """Drop an image on a page and watch the evidence appear. Only this machine is let in, unless told."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder."""
    host: str = "127.0.0.1"
    """The address to listen at; one beyond this machine needs --token."""
    port: int = 8000
    """The port; 0 takes a free one."""
    token: str = ""
    """A secret of 16 characters or more that callers must have (also read from DPROTONET_TOKEN)."""
    name: tuple[str, ...] = ()
    """Other names under which the server may be reached, such as one of a proxy."""
    preset: Literal["fast", "best", "paper", "sampled"] = "fast"
    """How the decoder learns its masks; fast whatever the run's recipe says, since a page has many maps and
    the paper's decoder takes minutes for each. The page says which was used."""
    max_megabytes: float = 20.0
    """The largest image file that is accepted."""
    max_megapixels: float = 50.0
    """The largest image that is accepted."""
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
    from dprotonet.web.serve import serve
    from dprotonet.web.service import Service, ServiceSettings

    door = Access(
        host=arguments.host, token=arguments.token or os.environ.get(TOKEN, ""), names=arguments.name
    )
    model = Model.load(arguments.run, device=arguments.device)
    service = Service(model, ServiceSettings(limits=UploadLimits(*limits), preset=arguments.preset))
    serve(service, door, host=arguments.host, port=arguments.port, announce=_announce)


def _check_extra() -> None:
    for module, package in EXTRA.items():
        if find_spec(module) is None:
            raise UserError(f"dprotonet serve needs the package {package}: pip install 'dprotonet[web]'")


def _announce(address: str) -> None:
    print(f"open {address}", flush=True)
    print("stop with Ctrl-C", file=sys.stderr)
