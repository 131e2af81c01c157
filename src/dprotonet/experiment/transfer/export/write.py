"""Exported files: one program, traced once, as ONNX and as torch.export's own format.

Both are made by torch.export over a free number of images and checked against the network before they are
kept. The ONNX file is read by any ONNX runtime; a .pt2 file is for PyTorch, and is never read here.
"""

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dprotonet.errors import ComputationError, UserError
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.experiment.transfer.export.card import KEY, Card
from dprotonet.experiment.transfer.export.deployed import Deployed
from dprotonet.extras import import_extra
from dprotonet.files import read_json, whole, write_text

TOLERANCE = 1e-4  # relative and absolute, of logits, between the file and PyTorch
_CHECKED = 3  # images


@dataclass(frozen=True)
class Export:
    """What was written, and how far its logits are from PyTorch's at most."""

    files: tuple[Path, ...]
    outputs: tuple[str, ...]
    difference: float


def export(
    model: TrainedModel, *, onnx: Path | None = None, torch_file: Path | None = None, overwrite: bool = False
) -> Export:
    """Write a model as ONNX, as a .pt2 file, or both, each with its card beside it as JSON."""
    check_targets(onnx, torch_file, overwrite=overwrite)
    if onnx is not None:
        for package in ("onnx", "onnxscript", "onnxruntime"):  # known before the work, not after it
            import_extra(package, extra="onnx", needed_for="ONNX")
    deployed = Deployed(model.network, model.normalise, model.calibration, model.familiarity)
    card = Card.of(model, deployed)
    program = traced(deployed, card.image_size)
    found = [
        _write_onnx(program, deployed, card, onnx) if onnx is not None else 0.0,
        _write_torch(program, deployed, card, torch_file) if torch_file is not None else 0.0,
    ]
    targets = [path for path in (onnx, torch_file) if path is not None]
    cards = dict.fromkeys(path.with_suffix(".json") for path in targets)
    for path in cards:
        write_text(path, card.to_json())
    return Export((*targets, *cards), card.outputs, max(found))


def check_targets(onnx: Path | None, torch_file: Path | None, *, overwrite: bool) -> None:
    """Names that can be written, before any work is done."""
    if onnx is None and torch_file is None:
        raise UserError("nothing to export to; add --onnx FILE.onnx, --torch FILE.pt2, or both")
    for option, path, suffix in (("--onnx", onnx, ".onnx"), ("--torch", torch_file, ".pt2")):
        if path is None:
            continue
        if path.suffix != suffix:
            raise UserError(f"{option} {path}: the name must end in {suffix}")
        _check_card(path.with_suffix(".json"), option)
        for target in (path, path.with_suffix(".json")):
            if target.is_dir():
                raise UserError(f"{option}: {target} is a folder; choose another name")
            if target.exists() and not overwrite:
                raise UserError(
                    f"{option}: {target} is already there; add --overwrite or choose another name"
                )


def _check_card(path: Path, option: str) -> None:
    """A JSON file of that name may be somebody else's, such as a run folder's prototypes.json."""
    if not path.is_file():
        return
    try:
        content = read_json(path)
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict) or not {"format", "outputs", "image_size"} <= content.keys():
        raise UserError(
            f"{option} also writes {path}, which is there and is no card of an export; choose another name"
        )


def traced(deployed: Deployed, size: int) -> torch.export.ExportedProgram:
    """The program for any number of images of `size` pixels."""
    example = (torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0)),)
    batch = {"images": {0: torch.export.Dim("batch", min=1)}}
    with torch.no_grad(), _quiet():
        return torch.export.export(deployed, example, dynamic_shapes=batch)


def onnx_proto(program: torch.export.ExportedProgram, outputs: tuple[str, ...], card: Card) -> Any:
    """The program as an ONNX model that carries its card."""
    onnx = import_extra("onnx", extra="onnx", needed_for="ONNX")
    import_extra("onnxscript", extra="onnx", needed_for="ONNX")
    with _quiet():
        made = torch.onnx.export(
            program,
            input_names=["images"],
            output_names=list(outputs),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    assert made is not None
    proto = made.model_proto
    _name_batch(proto.graph)
    onnx.helper.set_model_props(proto, {KEY: card.to_json()})
    onnx.checker.check_model(proto)
    return proto


def _name_batch(graph: Any) -> None:
    """The free axis is called `batch`, not by the tracer's own name for it."""
    traced_name = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.input, *graph.output, *graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param == traced_name:
                axis.dim_param = "batch"


def _write_onnx(program: torch.export.ExportedProgram, deployed: Deployed, card: Card, path: Path) -> float:
    data = onnx_proto(program, deployed.outputs, card).SerializeToString()
    runtime = import_extra("onnxruntime", extra="onnx", needed_for="ONNX")
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    found = _difference(
        deployed,
        card,
        lambda images: torch.from_numpy(session.run(["logits"], {"images": images.numpy()})[0]),
    )
    with whole(path) as temporary:
        temporary.write_bytes(data)
    return found


def _write_torch(program: torch.export.ExportedProgram, deployed: Deployed, card: Card, path: Path) -> float:
    found = _difference(deployed, card, lambda images: program.module()(images)[0])
    with whole(path) as temporary, temporary.open("wb") as file, _quiet():
        stream = io.BytesIO()  # torch looks at the name's ending, and the temporary one is another
        torch.export.save(program, stream, extra_files={f"{KEY}.json": card.to_json()})
        file.write(stream.getvalue())
    return found


@torch.no_grad()
def _difference(deployed: Deployed, card: Card, run: Callable[[Tensor], Tensor]) -> float:
    """The largest difference of logits to PyTorch's on some images; an error beyond the tolerance."""
    random = torch.Generator().manual_seed(1)
    images = torch.rand(_CHECKED, 3, card.image_size, card.image_size, generator=random)
    wanted, found = deployed(images)[0], run(images)
    difference = float((found - wanted).abs().max())
    if not torch.allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE):
        raise ComputationError(
            f"the exported model differs from PyTorch by {difference:.2g}; nothing was written"
        )
    return difference


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporters talk on stdout and warn of one another's deprecations."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
