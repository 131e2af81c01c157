"""What `dprotonet explain` takes and prints, for run folders and exported models alike."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from dprotonet.cli.images import check_out
from dprotonet.errors import UserError
from dprotonet.percent import percent

PresetName = Literal["fast", "instant", "best", "paper", "sampled"]


@dataclass(frozen=True)
class ExplainArguments:
    """Explain predictions by heatmaps of the deciding prototypes: a sheet per image, all maps and numbers."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder, or an .onnx file made by `dprotonet export`."""
    images: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Image files."""
    out: Path | None = None
    """Folder for the results, one subfolder per image; may be left out with --dicom."""
    dicom: Path | None = None
    """For one DICOM image: a DICOM file to write with the answer and heatmaps, of the same patient and study,
    "not for diagnosis" burnt in."""
    top: int = 3
    """Number of prototypes to explain per image, or of differences with --versus; the others are summed."""
    versus: str | None = None
    """Explain why the predicted class and not this one: a name, a number, or runner-up for the likeliest
    other class. Both sides of every difference are shown, what speaks against the predicted class first. An
    image that is predicted as this class is compared with its runner-up."""
    label: str | None = None
    """Of a run with several labels per image: explain this label (default: every label that is present, or
    the likeliest if none is)."""
    preset: PresetName | None = None
    """Preset of the decoder (default: that of the run's recipe, which is fast unless the recipe is paper; for
    an .onnx file sampled, which needs no gradients). paper is the paper's own and slow."""
    iterations: int | None = None
    """Steps of the decoder (default: the preset's)."""
    samples: int | None = None
    """Number of masked images for the preset sampled (default: the preset's)."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""
    device: str | None = None
    """Where to compute, such as cuda (default: the CPU)."""


def check_asked(arguments: ExplainArguments) -> None:
    """Before anything is loaded: an error for what cannot be done."""
    if not arguments.images:
        raise UserError("no image given; usage: dprotonet explain RUN IMAGE… --out DIR")
    if arguments.top < 1:
        raise UserError(f"--top is {arguments.top}; it must be at least 1")
    if arguments.out is None and arguments.dicom is None:
        raise UserError("say where to: --out DIR, or for a DICOM image --dicom FILE.dcm")
    if arguments.out is not None:
        check_out(arguments.out)
    onnx = arguments.run.suffix == ".onnx"
    if arguments.dicom is not None and (onnx or len(arguments.images) != 1):
        what = "a run folder, not of an .onnx file" if onnx else "one image; give them one by one"
        raise UserError(f"--dicom writes the answer of {what}")
    if arguments.versus is not None and onnx:
        raise UserError("--versus shows training images of both classes; explain the run folder with it")
    if arguments.versus is not None and arguments.dicom is not None:
        raise UserError("--dicom writes why the predicted class; leave out --versus, or give --out instead")


def check_label(arguments: ExplainArguments, *, several: bool) -> None:
    """An error for what goes with one class per image only, or with several labels only."""
    if arguments.label is not None and not several:
        raise UserError("--label is for runs with several labels per image; this run knows one class")
    if several and arguments.versus is not None:
        raise UserError("--versus compares two classes of one image; labels are no rivals: leave it out")
    if several and arguments.dicom is not None:
        raise UserError("--dicom writes the answer of one class; give --out DIR for several labels")


def chosen_preset(name: str, iterations: int | None, samples: int | None = None) -> Any:
    """The preset's name, or with other iterations or samples a preset of one's own."""
    from dprotonet.interpretation.mdm import preset

    if iterations is not None and iterations < 1:
        raise UserError(f"--iterations is {iterations}; it must be at least 1")
    if samples is not None and samples < 2:
        raise UserError(f"--samples is {samples}; it must be at least 2")
    given = {"iterations": iterations, "samples": samples}
    changes = {key: value for key, value in given.items() if value is not None}
    return preset(name, **changes) if changes else name


def show_contrast(found: Sequence[dict[str, Any]]) -> None:
    """For people: both sides of what tells the two classes apart, what is against the explained one first."""
    from dprotonet.figures.style import number

    for item in found:
        _warn(item)
        print(f"{item['name']}: {item['class_name']} ({percent(item['probability'])}), not {item['versus']}")
        for row in item["rows"]:
            sides = f"{number(row['points'])} and {number(row['versus_points'])}"
            careful = f", careful: {row['place_warning']}" if row["place_warning"] else ""
            difference = number(row["difference"], signed=True)
            print(f"  {row['name']}: {sides}, {difference}, {row['reliability_word']}{careful}")
        rest = item["folded"]
        if rest["count"]:
            sides = f"{number(rest['ahead'], signed=True)} for, {number(rest['behind'], signed=True)} against"
            print(f"  {rest['count']} more, none of them larger: {sides}")
        print(f"  logits: {number(item['explained_logit'])} and {number(item['versus_logit'])}")
        print(f"  {item['sentence']}")
        _show_end(item)


def show_explained(found: Sequence[dict[str, Any]]) -> None:
    """For people: the prediction, what spoke for and against it, and where the sheet is."""
    from dprotonet.figures.words import looks_like

    for item in found:
        _warn(item)
        print(f"{item['name']}: {item['class_name']} ({percent(item['probability'])})")
        for row in item["rows"]:
            name = f"{row['class_name']} #{row['prototype']} of {row['source']}"
            ahead = row["ahead"] and f" ({row['ahead']})"
            print(f"  {looks_like(row['part'])} {name}: {row['contribution']:+.3f}{ahead}{_marks(row)}")
        _show_end(item)


def show_findings(found: Sequence[dict[str, Any]]) -> None:
    """For people: every finding, what spoke for it, and where the sheet is."""
    for item in found:
        _warn(item)
        print(f"{item['name']}")
        for one in item["findings"]:
            present = "" if one["present"] else ", not present"
            print(f"  {one['name']} ({percent(one['probability'])}{present})")
            for row in one["rows"]:
                said = f"{row['contribution']:+.3f}{_marks(row)}"
                print(f"    looks like #{row['prototype']} of {row['source']}: {said}")
            sums = f"{one['rest']:+.3f}: logit {one['logit']:.3f}"
            print(f"    bias {one['bias']:+.3f}, all others with it {sums}")
        _show_end(item)


def tell_replaced(found: Sequence[dict[str, Any]], versus: str | None) -> None:
    """On stderr: which answers are the class to compare with themselves, and how many."""
    from dprotonet.experiment.trained.versus import replaced_words

    replaced = [item for item in found if item.get("versus_replaced")]
    for item in replaced:
        said = replaced_words(item["class_name"], item["versus"])
        print(f"dprotonet: {item['name']}: {said}", file=sys.stderr)
    if replaced:
        what = f"{len(replaced)} of {len(found)}"
        print(f"dprotonet: {what} could not be compared with {versus} itself", file=sys.stderr)


def _marks(row: dict[str, Any]) -> str:
    """Whether a row stays under noise, and a warning where its two places do not look alike."""
    steady = f", {row['reliability_word']}" if "reliability_word" in row else ""
    return steady + (", careful: the two places do not look alike" if row.get("places_differ") else "")


def _warn(item: dict[str, Any]) -> None:
    """Before anything else: whether the image is unlike the training images."""
    from dprotonet.experiment.runs.familiarity import warning_of

    if said := warning_of(item["distance"]):
        print(f"{item['name']}: {said}")


def _show_end(item: dict[str, Any]) -> None:
    """Where the sheet and the DICOM answer of an image are."""
    if "sheet" in item:
        print(f"  sheet: {Path(item['folder'], item['sheet'])}")
    if "dicom" in item:
        print(f"  DICOM: {item['dicom']['file']}")
