"""Where a model's folder is: on this machine, or on the hub under `user/model`.

huggingface_hub asks a hub that it cannot reach again and again. So a name that can only be a path is told
apart at once, and a hub that does not answer one short question is given up: then its cache is all there is.
"""

from os import PathLike
from pathlib import Path

import huggingface_hub
from huggingface_hub import constants, snapshot_download

from dprotonet.errors import UserError

_SECONDS = 5.0
_ADVICE = "give the --out folder of `dprotonet train`, or the name of a model on the hub, user/model"


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
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if not isinstance(name, str) or _is_path(name):
        raise UserError(f"{name} {'is not a folder' if path.exists() else 'does not exist'}; {_ADVICE}")
    silence = "" if local_files_only else _silence()
    try:
        found = snapshot_download(
            name,
            revision=revision,
            cache_dir=cache_dir,
            force_download=force_download and not silence,
            local_files_only=local_files_only or bool(silence),
            token=token,
        )
    except Exception as error:  # the hub's, its network's or the disk's, by the version of huggingface_hub
        raise _failure(name, silence or _first_line(error)) from error
    return Path(found)


def _is_path(name: str) -> bool:
    """Whether it cannot be `user/model`, or begins with a folder that is here."""
    parts = name.split("/")
    return len(parts) != 2 or not all(parts) or parts[0] in (".", "..", "~") or Path(parts[0]).is_dir()


def _silence() -> str:
    """Why the hub does not answer; empty if it does."""
    try:
        huggingface_hub.get_session().head(constants.ENDPOINT, timeout=_SECONDS)
    except Exception as error:  # httpx's or requests' kinds, by the version of huggingface_hub
        return f"the hub does not answer ({_first_line(error)}) and its cache has no copy"
    return ""


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _failure(name: str, why: str) -> UserError:
    return UserError(f"{name} is no folder here and could not be had from the hub: {why}; {_ADVICE}")
