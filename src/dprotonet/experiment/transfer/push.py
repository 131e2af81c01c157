"""A run folder goes to the Hugging Face hub, with a model card; `hub.model_folder` fetches it again.

What is uploaded is made anew from the loaded model: weights, prototypes, settings, calibration, names of
parts and the pictures that prototypes came from. Paths of this machine, the command line, checkpoints and
logs stay.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import huggingface_hub
from huggingface_hub import HfApi, errors

from dprotonet.config import Config
from dprotonet.errors import UserError
from dprotonet.experiment.runs.run_folder import unknown_source
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.experiment.transfer.hub import check_repository
from dprotonet.experiment.transfer.model_card import CardText, model_card
from dprotonet.files import write_text

MESSAGE = "Model of dprotonet"


@dataclass(frozen=True)
class Push:
    """Where and how a run is uploaded. Without `pictures` no training image leaves, nor its name."""

    repository: str
    text: CardText = field(default_factory=CardText)
    private: bool = False
    revision: str | None = None
    message: str = MESSAGE
    pictures: bool = True
    token: str | bool | None = None


@dataclass(frozen=True)
class Pushed:
    """What was uploaded: the page of the commit, and the files by name."""

    url: str
    revision: str
    files: Sequence[str]


def push(run: Path, settings: Push) -> Pushed:
    """Upload a run folder as one commit; the repository is made if it is not there."""
    name = check_repository(settings.repository)
    with tempfile.TemporaryDirectory() as place:
        files = stage(run, Path(place), replace(settings, repository=name))
        try:
            api = HfApi(token=settings.token)
            api.create_repo(name, private=settings.private or None, exist_ok=True)
            if settings.revision:
                api.create_branch(name, branch=settings.revision, exist_ok=True)
            done = api.upload_folder(
                repo_id=name, folder_path=place, revision=settings.revision, commit_message=settings.message
            )
        except Exception as error:  # the hub's or its network's, by the version of huggingface_hub
            raise UserError(f"{name} could not be written on the hub: {_reason(error)}") from error
    return Pushed(str(done.commit_url), str(done.oid), files)


def stage(run: Path, place: Path, settings: Push) -> list[str]:
    """Write what is uploaded into the folder `place`; the names of the files."""
    model = TrainedModel.load(run)
    model.config = without_paths(model.config)
    card = model_card(model, run, settings.text, repository=settings.repository, pictures=settings.pictures)
    if not settings.pictures:
        owners = [record.class_name for record in model.prototypes]
        model.prototypes = tuple(unknown_source(*pair) for pair in enumerate(owners))
        model.part_names = {}
    model.save(place)
    write_text(place / "README.md", card)
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


def without_paths(config: Config) -> Config:
    """A config that names data sets, not where they lie on this machine."""
    kind, _, path = config.data.data.partition(":")
    data = f"{kind}:{Path(path).name}" if path else kind
    backbone = config.network.backbone.split(":")
    weights = "none" if len(backbone) > 2 and any(mark in backbone[2] for mark in "./\\") else None
    network = replace(config.network, mask_file=Path(config.network.mask_file).name)
    if weights:
        network = replace(network, backbone=":".join([*backbone[:2], weights]))
    return replace(config, data=replace(config.data, data=data, image_cache=""), network=network)


def _reason(error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, huggingface_hub.errors.LocalTokenNotFoundError) or status == 401:
        return "you are not logged in; run `hf auth login` or set HF_TOKEN"
    if status == 403:
        return "your token may not write there; make one with the right to write, or name another owner"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "it does not exist and could not be made"
    if status is not None:
        return f"it answers {status}: {_first_line(error)}"
    return f"{_first_line(error)}; is there a network?"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
