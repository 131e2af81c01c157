"""Checkpoints as safetensors and JSON: reading one never runs code, writing one never leaves half a file."""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.files import read_json, whole, write_text
from dprotonet.training.engine import Engine, Position
from dprotonet.training.push import Projection

_NETWORK, _OPTIMIZER, _PROJECTION, _STATE = (
    "network.safetensors",
    "optimizer.safetensors",
    "projection.safetensors",
    "state.json",
)


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write under a temporary name, then rename; tensors are copied so that shared memory is no obstacle."""
    owned = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    try:
        with whole(path) as temporary:
            temporary.touch()
            rights = temporary.stat().st_mode & 0o777  # by the umask; safetensors writes for the owner only
            save_file(owned, temporary, metadata=metadata or {})
            _put_in_order(temporary)
            temporary.chmod(rights)
    except SafetensorError as error:
        raise OSError(0, f"could not write ({error})", str(path)) from None


def _put_in_order(path: Path) -> None:
    """The metadata of a file by name: safetensors writes them as chance has it, in each process otherwise."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        if len(known := header.get("__metadata__", {})) < 2:
            return
        header["__metadata__"] = dict(sorted(known.items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        file.seek(8)
        file.write(text.ljust(length))  # the same text in another order, and padded likewise


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file, with a clear error for a missing, truncated or foreign one."""
    if not path.is_file():
        raise UserError(f"{path} is missing; the folder is not a complete run, train again or copy it whole")
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as safetensors ({error}); it is truncated or foreign, copy the run again"
        ) from None


def tensor_digest(tensors: Mapping[str, Tensor], *, beginning: str = "", size: int = 16) -> str:
    """A digest of `size` bytes of all tensors with their names, after a text that belongs to it."""
    digest = hashlib.blake2b(beginning.encode(), digest_size=size)
    for name, tensor in tensors.items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def weights_digest(network: nn.Module) -> str:
    """Of all weights, so that results are never mixed with those of another network."""
    return tensor_digest(dict(sorted(network.state_dict().items())), size=8)


def read_metadata(path: Path) -> dict[str, str]:
    """The strings stored beside the tensors."""
    with safe_open(path, framework="pt") as file:
        return file.metadata() or {}


def load_weights(module: nn.Module, tensors: dict[str, Tensor], *, path: Path) -> None:
    """Load a state dict, read from `path`, that must fit entry by entry."""
    expected = module.state_dict()
    missing, unexpected = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or unexpected:
        example = (missing or unexpected)[0]
        raise UserError(
            f"{path} does not fit the network of config.toml: {len(missing)} entries missing, "
            f"{len(unexpected)} unexpected, such as {example}; take both files from the same run"
        )
    for name, tensor in expected.items():
        if tensor.shape != tensors[name].shape:
            raise UserError(
                f"{path}: {name} has shape {tuple(tensors[name].shape)}, the network of config.toml needs "
                f"{tuple(tensor.shape)}; take both files from the same run"
            )
    module.load_state_dict(tensors)


def save_checkpoint(folder: Path, engine: Engine, extra: dict[str, Any]) -> None:
    """Everything `load_checkpoint` needs, written beside the old checkpoint and swapped in whole."""
    fresh, old = folder.with_name(folder.name + ".new"), folder.with_name(folder.name + ".old")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    save_tensors(fresh / _NETWORK, engine.network.state_dict())
    if engine.optimizer is not None:
        save_tensors(fresh / _OPTIMIZER, _flat(engine.optimizer.state_dict()["state"]))
    if engine.projection is not None:
        save_tensors(fresh / _PROJECTION, _projection_tensors(engine.projection))
    state = {
        "position": asdict(engine.position),
        "optimizer": engine.optimizer is not None,
        "projection": engine.projection is not None,
        "scaler": _scaler_state(engine),
        "extra": extra,
    }
    write_text(fresh / _STATE, json.dumps(state, indent=1))
    if folder.exists():  # else a kill left the old one as the only one
        shutil.rmtree(old, ignore_errors=True)
        os.replace(folder, old)
    os.replace(fresh, folder)
    shutil.rmtree(old, ignore_errors=True)


def kept_checkpoint(folder: Path) -> Path | None:
    """Where the newest whole checkpoint is: a kill between two renames leaves it under its old name."""
    places = (folder, folder.with_name(folder.name + ".old"))
    return next((place for place in places if (place / _STATE).is_file()), None)


def tidy_checkpoint(folder: Path) -> None:
    """Remove what kills left beside a whole checkpoint."""
    if (folder / _STATE).is_file():
        for ending in (".new", ".old"):
            shutil.rmtree(folder.with_name(folder.name + ending), ignore_errors=True)


def load_checkpoint(folder: Path, engine: Engine) -> dict[str, Any]:
    """Put the engine back where it was; returns what `save_checkpoint` was given as `extra`."""
    try:
        state = read_json(folder / _STATE)
        position = Position(**{"steps": None, **state["position"]})  # steps were once not counted
        for item in fields(Position):
            if type(getattr(position, item.name)) not in (get_args(item.type) or (item.type,)):
                raise TypeError(f"{item.name} is {getattr(position, item.name)!r}")
        extra: dict[str, Any] = dict(state["extra"])
        load_weights(engine.network, load_tensors(folder / _NETWORK), path=folder / _NETWORK)
        if state["optimizer"]:
            engine.resume_optimizer = _nested(load_tensors(folder / _OPTIMIZER))
        if state["projection"]:
            tensors = load_tensors(folder / _PROJECTION)
            views = int(tensors.pop("views"))
            tensors.setdefault("sources", tensors["index"].unsqueeze(1))  # absent before there were several
            engine.projection = Projection(**tensors, views=views)
        _restore_scaler(engine, state.get("scaler", {}))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"the checkpoint {folder} is damaged ({error}); start anew with --overwrite"
        ) from None
    engine.position = position
    return extra


def _scaler_state(engine: Engine) -> dict[str, float]:
    """By how much losses are scaled in half precision, and since when; nothing in other precisions."""
    scaler = engine.accelerator.scaler
    return {} if scaler is None else dict(scaler.state_dict())


def _restore_scaler(engine: Engine, state: dict[str, float]) -> None:
    """A run that went on without it would overflow for some steps until the scale is small again."""
    if engine.accelerator.scaler is not None and state:
        engine.accelerator.scaler.load_state_dict(state)


def _projection_tensors(projection: Projection) -> dict[str, Tensor]:
    return {**vars(projection), "views": torch.tensor(projection.views)}


def _flat(state: dict[int, dict[str, Any]]) -> dict[str, Tensor]:
    return {
        f"{number}.{key}": torch.as_tensor(value)
        for number, entry in state.items()
        for key, value in entry.items()
    }


def _nested(tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, key = name.split(".", 1)
        state.setdefault(int(number), {})[key] = tensor
    return state
