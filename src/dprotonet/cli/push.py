"""`dprotonet push`: uploads a run to the Hugging Face hub."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from dprotonet.cli.parse import parsed


@dataclass(frozen=True)
class PushArguments:
    """Upload a run to the Hugging Face hub, with a model card; dp.load("OWNER/NAME") fetches it again.

    This is not the push of prototypes onto training images, which `dprotonet train` does. Uploaded are
    weights, settings, calibration, and the training images that prototypes came from, unless --no-pictures
    is given. The token is that of `hf auth login`, or HF_TOKEN.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder."""
    repository: Annotated[str, tyro.conf.Positional]
    """The model's name on the hub, OWNER/NAME; made if it is not there."""
    licence: str = ""
    """The licence, by the hub's name for it, such as apache-2.0 or cc-by-nc-4.0."""
    intended_use: str = ""
    """What it is for, for the card."""
    data_said: str = ""
    """What the images are, for the card."""
    pictures: bool = True
    """Upload the training images that prototypes came from, and their file names."""
    private: bool = False
    """Make the repository private."""
    revision: str | None = None
    """A branch to upload to (default: main)."""
    out: Path | None = None
    """Upload nothing: write what would be uploaded into this folder."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""


def main(words: list[str]) -> None:
    arguments = parsed(PushArguments, words, command="push")
    from dprotonet.errors import UserError
    from dprotonet.experiment.transfer.hub import check_repository
    from dprotonet.experiment.transfer.model_card import CardText
    from dprotonet.experiment.transfer.push import Push, push, stage

    text = CardText(arguments.licence, arguments.intended_use, arguments.data_said)
    settings = Push(
        check_repository(arguments.repository),
        text,
        private=arguments.private,
        revision=arguments.revision,
        pictures=arguments.pictures,
    )
    if arguments.out is not None:
        if arguments.out.exists() and (not arguments.out.is_dir() or any(arguments.out.iterdir())):
            raise UserError(f"--out {arguments.out} is not an empty folder; name another")
        files = stage(arguments.run, arguments.out, settings)
        _say(arguments.json, {"folder": str(arguments.out), "files": files}, f"written: {arguments.out}")
        return
    done = push(arguments.run, settings)
    said = f"uploaded {len(done.files)} files: {done.url}"
    _say(arguments.json, {"url": done.url, "revision": done.revision, "files": list(done.files)}, said)


def _say(as_json: bool, content: dict[str, object], line: str) -> None:
    if as_json:
        json.dump(content, sys.stdout, ensure_ascii=False)
        print()
    else:
        print(line)
