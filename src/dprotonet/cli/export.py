"""`dprotonet export`: a trained run for other programs, as ONNX or for torch.export."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from dprotonet.cli.parse import parsed


@dataclass(frozen=True)
class ExportArguments:
    """Export prediction and evidence as one file; its input is a batch of RGB images, float32 in [0, 1]."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder."""
    onnx: Path | None = None
    """An .onnx file to write, for any ONNX runtime; needs the extra onnx."""
    torch: Path | None = None
    """A .pt2 file to write, for torch.export.load."""
    overwrite: bool = False
    """Replace files of these names."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""


def main(words: list[str]) -> None:
    arguments = parsed(ExportArguments, words, command="export")
    from dprotonet.experiment.model import Model
    from dprotonet.experiment.transfer.export.write import check_targets, export

    check_targets(arguments.onnx, arguments.torch, overwrite=arguments.overwrite)
    model = Model.load(arguments.run)
    print("exporting; this takes a minute", file=sys.stderr)
    made = export(model, onnx=arguments.onnx, torch_file=arguments.torch, overwrite=arguments.overwrite)
    files = [str(path) for path in made.files]
    if arguments.json:
        json.dump({"files": files, "outputs": made.outputs, "difference": made.difference}, sys.stdout)
        print()
        return
    print(
        f"outputs: {', '.join(made.outputs)}; logits differ from PyTorch's by at most {made.difference:.1g}"
    )
    for path in files:
        print(f"written: {path}")
