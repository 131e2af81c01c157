"""Files of weights: safetensors, and what `torch.save` writes, old and new, with planted pickles among them.

A planted pickle would make a file if it were run: one that is there afterwards is the worst of defects.
"""

import io
import os
import pickle
import random
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import save
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Case, Unexpected
from tests.fuzz.targets.run_files import odd_safetensors

from dprotonet.encoder.weights import load_state, read_state
from dprotonet.experiment.transfer.foreign.protopnet import ProtoPNetFile


class _Planted:
    """Runs a command when a pickle of it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


class WeightsFiles:
    """`--weights FILE` for a tiny trunk, and `dprotonet import` of a ProtoPNet's state dict."""

    def __init__(self, place: Path) -> None:
        torch.set_num_threads(1)
        place.mkdir(parents=True, exist_ok=True)
        self.place, self.proof = place, place / "planted"
        self.trunk = timm.create_model("test_resnet", pretrained=False, num_classes=0)
        state = self.trunk.state_dict()
        self.good = {
            "trunk.safetensors": save({name: value.contiguous() for name, value in state.items()}),
            "trunk.pth": _saved(state),
            "nested.pth": _saved(
                {"epoch": 3, "state_dict": {f"module.{name}": v for name, v in state.items()}}
            ),
            "old.pth": _saved(state, _use_new_zipfile_serialization=False),
            "protopnet.pth": _saved(_protopnet()),
            "planted.pth": _saved({"model": _Planted(self.proof), **state}),
            "planted old.pth": _saved(_Planted(self.proof), _use_new_zipfile_serialization=False),
            "bare pickle.pth": pickle.dumps({"x": _Planted(self.proof)}),
        }

    def draw(self, generator: random.Random) -> Case:
        kind = generator.choice(list(self.good))
        data, draw = self.good[kind], generator.random()
        if kind.endswith(".safetensors") and draw < 0.7:
            return Case(kind, odd_safetensors(generator, data))
        if data[:2] == b"PK" and draw < 0.7:
            return Case(kind, _odd_entry(generator, data, self.good["bare pickle.pth"]))
        if draw < 0.75:
            return Case(kind, data)
        return Case(kind, mutated(generator, data))

    def feed(self, case: Case) -> None:
        suffix = ".safetensors" if case.kind.endswith(".safetensors") else ".pth"
        path = self.place / f"weights{suffix}"
        path.write_bytes(case.content)
        try:
            if case.kind.startswith("protopnet"):
                found = ProtoPNetFile.read(path)
                found.owners()
            else:
                load_state(self.trunk, read_state(path), in_channels=3, source=str(path))
        finally:
            path.unlink()
            if self.proof.exists():
                self.proof.unlink()
                raise Unexpected("a planted pickle was run")

    def left(self) -> Iterable[str]:
        return [path.name for path in self.place.iterdir()]


def _saved(content: object, **options: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream, **options)
    return stream.getvalue()


def _protopnet() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator)

    return {
        "features.conv1.weight": drawn(4, 3, 3, 3),
        "add_on_layers.0.weight": drawn(8, 4, 1, 1),
        "add_on_layers.0.bias": drawn(8),
        "add_on_layers.2.weight": drawn(8, 8, 1, 1),
        "add_on_layers.2.bias": drawn(8),
        "prototype_vectors": drawn(6, 8, 1, 1),
        "last_layer.weight": drawn(3, 6),
        "ones": torch.ones(6, 8, 1, 1),
    }


def _odd_entry(generator: random.Random, data: bytes, planted: bytes) -> bytes:
    """A zip of `torch.save` with one entry changed, gone, or twice; sometimes with a planted pickle."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
        names = old.namelist()
        pickles = [name for name in names if name.endswith("data.pkl")]
        chosen = generator.choice(pickles if generator.random() < 0.6 else names)
        draw = generator.random()
        for name in names:
            content = old.read(name)
            if name == chosen:
                if draw < 0.1:
                    continue
                content = planted if draw < 0.2 else mutated(generator, content)
            new.writestr(name, content)
    return stream.getvalue()
