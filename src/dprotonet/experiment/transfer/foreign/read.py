"""Whose a file or folder is, and what it holds: the one table of kinds that `dprotonet import` knows."""

from pathlib import Path
from typing import Literal

from dprotonet.encoder.weights import State, read_state
from dprotonet.errors import UserError
from dprotonet.experiment.transfer.foreign import cabrnet, pip_net, st_protopnet
from dprotonet.experiment.transfer.foreign.found import Found
from dprotonet.experiment.transfer.foreign.protopnet import ProtoPNetFile

Kind = Literal["auto", "protopnet", "tesnet", "st-protopnet", "pip-net", "cabrnet"]


def read_found(path: Path, *, kind: Kind, architecture: str | None, unstrided: int | None) -> Found:
    """The network of a file, or of a folder of CaBRNet's."""
    path = path.expanduser()
    if kind == cabrnet.CABRNET or (kind == "auto" and (path / cabrnet.ARCHITECTURE).is_file()):
        return cabrnet.read_cabrnet(path, architecture)
    state = read_state(path)
    kind = _kind(state, path) if kind == "auto" else kind
    if kind == st_protopnet.ST_PROTOPNET:
        return st_protopnet.read_st_protopnet(state, path, architecture)
    if kind == pip_net.PIP_NET:
        return pip_net.read_pip_net(state, path, architecture, unstrided)
    return ProtoPNetFile.of(state, path).found(kind, architecture)


def _kind(state: State, path: Path) -> Kind:
    """By the names of its entries; TesNet's are ProtoPNet's."""
    names = {name.rpartition("module.")[2] for name in state}
    if any(name.startswith(("extractor.convnet.", "classifier.last_layer")) for name in names):
        raise UserError(f"{path} is of CaBRNet; give its folder, with {cabrnet.ARCHITECTURE} in it")
    if st_protopnet.MARK in names:
        return "st-protopnet"
    return "pip-net" if pip_net.MARK in names else "protopnet"
