"""`dprotonet explain MODEL.onnx`: heatmaps of an exported model, found by asking it about masked images."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprotonet.cli.explain_arguments import ExplainArguments, chosen_preset, show_explained
from dprotonet.cli.images import complain_if_none, readable
from dprotonet.errors import UserError

if TYPE_CHECKING:
    from dprotonet.experiment.transfer.export.onnx_model import OnnxModel

NO_SOURCES = "an .onnx file has no source images; explain the run folder to see the prototypes themselves"


def explain_onnx(arguments: ExplainArguments) -> None:
    if arguments.preset not in (None, "sampled"):
        raise UserError(f"--preset {arguments.preset} needs gradients; for an .onnx file leave it out")
    if arguments.device is not None:
        raise UserError("--device is for run folders; an .onnx file is explained on the CPU")
    from dprotonet.experiment.transfer.export.onnx_model import OnnxModel

    model = OnnxModel.load(arguments.run)
    good, skipped = readable(arguments.images, model.pixels)
    found = _explained(model, good, arguments)
    if arguments.json:
        content = {"explanations": found, "skipped": skipped, "note": NO_SOURCES}
        json.dump(content, sys.stdout, ensure_ascii=False)
        print()
    else:
        show_explained(found)
        print(NO_SOURCES, file=sys.stderr)
    complain_if_none(found, skipped)


def _explained(
    model: "OnnxModel", images: Sequence[Path], arguments: ExplainArguments
) -> list[dict[str, Any]]:
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.explaining.explain import ExplainProgress
    from dprotonet.experiment.explaining.explanation_files import folder_for
    from dprotonet.experiment.transfer.export.files import save_onnx_explained

    assert arguments.out is not None  # without --dicom it has to be given
    preset = chosen_preset("sampled", arguments.iterations, arguments.samples)
    found: list[dict[str, Any]] = []
    with Reporter(stderr_console()) as reporter:
        for image in images:

            def advance(now: ExplainProgress, before: int = len(found)) -> None:
                done = before * now.total + now.done
                reporter.advance("explaining images", done, len(images) * now.total)

            (item,) = model.explain([image], top=arguments.top, preset=preset, on_step=advance)
            folder = folder_for(arguments.out, len(found), image.name)
            found.append(save_onnx_explained(item, folder, title=image.name))
    return found
