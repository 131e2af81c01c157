"""Where a model's folder is: on this machine, or on the Hugging Face hub under `user/model`.

A folder of that name wins; `hub:user/model` is always the hub's. huggingface_hub asks a hub that it cannot
reach again and again. So a name that can only be a path is told apart at once, and a hub that does not answer
one short question is given up: then its cache is all there is. Only files that a run folder is made of are
fetched: safetensors, JSON, TOML and pictures, never code.
"""

from os import PathLike
from pathlib import Path

import huggingface_hub
from huggingface_hub import constants, errors, snapshot_download

from dprotonet.errors import UserError

HUB = "hub:"
NEEDED = ("config.toml", "model.safetensors", "prototypes.json")
FETCHED = ("*.toml", "*.json", "*.safetensors", "prototypes/*.png")

_SECONDS = 5.0
_ADVICE = "give the --out folder of `dprotonet train`, or the name of a model on the hub, user/model"
_LOGIN = "log in with `hf auth login` or set HF_TOKEN if it is private"


def model_folder(
    name: str | PathLike[str],
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    force_download: bool = False,
    local_files_only: bool = False,
    token: str | bool | None = None,
) -> Path:
    """A folder as it is, or that of a model of the hub, downloaded if need be; the settings are the hub's."""
    wanted = isinstance(name, str) and name.startswith(HUB)
    path = Path(name).expanduser()
    if path.is_dir() and not wanted:
        if revision is not None:
            raise UserError(f"{name} is a folder here, which has no revisions; for the hub write {HUB}{name}")
        return path
    asked = str(name).removeprefix(HUB)
    if not isinstance(name, str) or (not wanted and _is_path(name)):
        raise UserError(f"{name} {'is not a folder' if path.exists() else 'does not exist'}; {_ADVICE}")
    silence = "" if local_files_only else _silence()
    try:
        found = snapshot_download(
            asked,
            revision=revision,
            cache_dir=cache_dir,
            force_download=force_download and not silence,
            local_files_only=local_files_only or bool(silence),
            token=token,
            allow_patterns=list(FETCHED),
        )
    except Exception as error:  # the hub's, its network's or the disk's, by the version of huggingface_hub
        raise _failure(asked, _reason(error, asked, revision, silence)) from error
    _check_whole(Path(found), asked)
    return Path(found)


def check_repository(name: str) -> str:
    """The name of a place to upload to, as `user/model`."""
    asked = name.removeprefix(HUB)
    try:
        huggingface_hub.utils.validate_repo_id(asked)
    except errors.HFValidationError as error:
        raise UserError(f"{name} is no name for the hub: {_first_line(error)}") from None
    if asked.count("/") != 1:
        raise UserError(f"{name} is no name for the hub; write OWNER/NAME")
    return asked


def _is_path(name: str) -> bool:
    """Whether it cannot be `user/model`, or begins with a folder that is here."""
    parts = name.split("/")
    return len(parts) != 2 or not all(parts) or parts[0] in (".", "..", "~") or Path(parts[0]).is_dir()


def _silence() -> str:
    """Why the hub does not answer; empty if it does."""
    try:
        huggingface_hub.get_session().head(constants.ENDPOINT, timeout=_SECONDS)
    except Exception as error:  # httpx's or requests' kinds, by the version of huggingface_hub
        return f"the hub does not answer ({_first_line(error)})"
    return ""


def _check_whole(folder: Path, name: str) -> None:
    """A repository of something else, or a download that ended half-way."""
    missing = [file for file in NEEDED if not (folder / file).is_file()]
    if missing:
        raise UserError(
            f"{name} on the hub is no model of dprotonet, or its download ended half-way: {missing[0]} is "
            "missing; only what `dprotonet push` uploaded can be loaded"
        )


def _reason(error: Exception, name: str, revision: str | None, silence: str) -> str:
    """Why it failed, in a few words."""
    if isinstance(error, errors.GatedRepoError):
        return f"its owner has to grant access; ask for it at {constants.ENDPOINT}/{name} and log in"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"there is no such model, or it is private; {_LOGIN}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"it has no revision '{revision}'"
    if _incomplete(error):
        return f"{silence or 'nothing is downloaded'} and the copy in its cache is unfinished"
    if silence:
        return f"{silence} and its cache has no copy"
    return _first_line(error)


def _incomplete(error: Exception) -> bool:
    """Versions before huggingface_hub 2 have no such kind: `_check_whole` notices it then."""
    kind = getattr(errors, "IncompleteSnapshotError", None)
    return kind is not None and isinstance(error, kind)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _failure(name: str, why: str) -> UserError:
    return UserError(f"{name} is no folder here and could not be had from the hub: {why}; {_ADVICE}")
