"""`dprotonet explain`: where the prototypes that decided are, in the image and in their training images."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprotonet.cli.explain_arguments import (
    ExplainArguments,
    check_asked,
    check_label,
    chosen_preset,
    show_contrast,
    show_explained,
    show_findings,
    tell_replaced,
)
from dprotonet.cli.explain_onnx import explain_onnx
from dprotonet.cli.images import complain_if_none, readable
from dprotonet.cli.parse import parsed

if TYPE_CHECKING:
    from dprotonet.experiment.model import Model

_TOGETHER = 10  # images explained before the first are saved


def main(words: list[str]) -> None:
    arguments = parsed(ExplainArguments, words, command="explain")
    check_asked(arguments)
    if arguments.run.suffix == ".onnx":
        return explain_onnx(arguments)
    from dprotonet.experiment.model import Model

    if arguments.dicom is not None:
        from dprotonet.experiment.explaining.dicom_answer import check_dicom

        check_dicom(arguments.images[0], arguments.dicom)
    model = Model.load(arguments.run, device=arguments.device, several_labels=True)
    check_label(arguments, several=model.several_labels)
    good, skipped = readable(arguments.images, model.pixels)
    found = _explained(model, good, arguments)
    tell_replaced(found, arguments.versus)
    if arguments.json:
        json.dump({"explanations": found, "skipped": skipped}, sys.stdout, ensure_ascii=False)
        print()
    elif model.several_labels:
        show_findings(found)
    elif arguments.versus is not None:
        show_contrast(found)
    else:
        show_explained(found)
    complain_if_none(found, skipped)


def _explained(model: "Model", images: Sequence[Path], arguments: ExplainArguments) -> list[dict[str, Any]]:
    """What is saved of every image, a few images at a time."""
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.explaining.dicom_answer import save_dicom
    from dprotonet.experiment.explaining.explain import ExplainProgress
    from dprotonet.experiment.explaining.explain_findings import save_findings
    from dprotonet.experiment.explaining.explanation_files import (
        folder_for,
        save_contrast,
        save_explained,
        told,
    )

    own = model.config.explaining.decoder
    preset = chosen_preset(arguments.preset or own, arguments.iterations, arguments.samples)
    found: list[dict[str, Any]] = []
    with Reporter(stderr_console()) as reporter:

        def advance(now: ExplainProgress) -> None:
            reporter.advance(f"explaining {now.what}", now.done, now.total)

        for start in range(0, len(images), _TOGETHER):
            block = images[start : start + _TOGETHER]
            if model.several_labels:
                groups = model.explain_findings(
                    block, label=arguments.label, top=arguments.top, preset=preset, on_step=advance
                )
                for image, group in zip(block, groups, strict=True):
                    assert arguments.out is not None
                    folder = folder_for(arguments.out, len(found), image.name)
                    found.append(save_findings(group, folder, title=image.name))
                continue
            if arguments.versus is not None and arguments.out is not None:
                contrasts = model.explain_contrast(
                    block, arguments.versus, top=arguments.top, preset=preset, on_step=advance
                )
                for image, contrast in zip(block, contrasts, strict=True):
                    folder = folder_for(arguments.out, len(found), image.name)
                    found.append(save_contrast(contrast, folder, title=image.name))
                continue
            for image, item in zip(
                block, model.explain(block, top=arguments.top, preset=preset, on_step=advance), strict=True
            ):
                if arguments.out is None:
                    saved = told(item)
                else:
                    folder = folder_for(arguments.out, len(found), image.name)
                    saved = save_explained(item, folder, title=image.name)
                if arguments.dicom is not None:
                    saved["dicom"] = save_dicom(item, model.network, image, arguments.dicom)
                found.append(saved)
    return found
