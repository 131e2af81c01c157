"""Exported ONNX files: the card, the graph and the bytes changed; read, and asked for an answer."""

import random
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from PIL import Image
from tests.fuzz.mutation import mutated, odd_json
from tests.fuzz.target import Case
from tests.fuzz.targets.material import tiny_run

from dprotonet.experiment.model import Model
from dprotonet.experiment.transfer.export.card import KEY, Card
from dprotonet.experiment.transfer.export.onnx_model import OnnxModel
from dprotonet.experiment.transfer.export.write import export

_FEW = 40  # nodes and tensors, of the last: the first are the trunk


class OnnxFiles:
    """Cards alone are cheap, so most inputs are cards; a session takes tens of milliseconds."""

    def __init__(self, place: Path) -> None:
        path = place.parent / "material" / "run.onnx"
        if not path.is_file():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                export(Model.load(tiny_run(place)), onnx=path)
        place.mkdir(parents=True, exist_ok=True)
        self.path, self.good = place / "model.onnx", path.read_bytes()
        self.card = path.with_suffix(".json").read_text(encoding="utf-8")
        self.image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))

    def draw(self, generator: random.Random) -> Case:
        draw = generator.random()
        if draw < 0.5:
            return Case("card alone", odd_json(generator, self.card))
        if draw < 0.65:
            return Case("card", self._with_card(odd_json(generator, self.card)))
        if draw < 0.85:
            return Case("graph", _odd_graph(generator, self.good))
        return Case("bytes", mutated(generator, self.good))

    def feed(self, case: Case) -> None:
        if case.kind == "card alone":
            Card.from_json(case.content.decode(errors="replace"), where="card")
            return
        self.path.write_bytes(case.content)
        OnnxModel.load(self.path).predict_many([self.image])

    def left(self) -> Iterable[str]:
        self.path.unlink(missing_ok=True)
        return [path.name for path in self.path.parent.iterdir()]

    def _with_card(self, text: bytes) -> bytes:
        model = onnx.load_from_string(self.good)
        for item in model.metadata_props:
            if item.key == KEY:
                item.value = text.decode(errors="replace")
        written: bytes = model.SerializeToString()
        return written


def _odd_graph(generator: random.Random, good: bytes) -> bytes:
    """A node, a tensor, an input or an output is another."""
    graph = (model := onnx.load_from_string(good)).graph
    choice = generator.randrange(5)
    if choice == 0:
        node = _late(generator, graph.node)
        node.op_type = generator.choice(("Relu", "Loop", "Reshape", "Nothing", "Conv", "Gather"))
    elif choice == 1:
        tensor = _late(generator, graph.initializer)
        if tensor.dims:
            tensor.dims[0] = generator.choice((0, -1, 1, 2**20, 2**40, tensor.dims[0] + 1))
        else:
            tensor.raw_data = mutated(generator, tensor.raw_data)
    elif choice == 2:
        tensor = _late(generator, graph.initializer)
        tensor.raw_data = mutated(generator, tensor.raw_data)
    elif choice == 3:
        side = graph.input[0].type.tensor_type.shape.dim[generator.randrange(4)]
        side.dim_value = generator.choice((0, 1, 3, 2**31, -1))
    else:
        del graph.node[generator.randrange(len(graph.node))]
    written: bytes = model.SerializeToString()
    return written


def _late(generator: random.Random, items: Any) -> Any:
    return items[len(items) - 1 - generator.randrange(min(_FEW, len(items)))]
