"""`dprotonet COMMAND`: finds the command's file, and turns errors into one line and an exit code.

Commands are imported when they are called, so that `dprotonet --help` does not wait for torch.
"""

import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module

from dprotonet.cli.launched import check_launch, leave_launch, others_silent
from dprotonet.compat import keep_freed_memory
from dprotonet.errors import ComputationError, Ended, UserError
from dprotonet.launch import is_main, process

COMMANDS = {
    "train": "train a DProtoNet on the built-in birds, a folder of images or a public data set",
    "evaluate": "measure the accuracy, confusion matrix and more of a trained run",
    "predict": "classify images and show the evidence",
    "explain": "draw heatmaps of the deciding prototypes, in the image and in their training images",
    "saliency": "draw class heatmaps of any timm classifier, or of a trained run",
    "compare": "measure faithfulness and localisation of the heatmaps of several methods",
    "sanity": "check that heatmaps change when the network's weights are randomised",
    "quality": "measure a run's prototypes: overlap, parts, consistency, stability, purity, duplicates",
    "benchmark": "train and evaluate a whole table of networks, data sets and seeds",
    "reproduce": "run the paper's tables and figures and show our numbers beside the paper's",
    "import": "make a run folder of a ProtoPNet, TesNet, ST-ProtoPNet, PIP-Net or CaBRNet model",
    "report": "write accuracy, explanations and prototypes of a run into one HTML file",
    "data": "check a data set: counts, sizes, truth, broken and missing files, leaks",
    "prototypes": "list a run's prototypes by class: purity, how often they decide, duplicates",
    "parts": "show what part each prototype stands for, in many images, and name it",
    "prune": "drop prototypes: by number, by purity, or by ProtoPNet's rule",
    "reliability": "set the limit beyond which the two places of an evidence row do not look alike",
    "familiarity": "set the threshold at which `predict` warns of an image unlike the training images",
    "calibrate": "fit the temperature that makes the probabilities of `predict` true",
    "export": "write a run as an ONNX file or a torch.export program, with its evidence",
    "push": "upload a run to the Hugging Face hub, with a model card",
    "serve": "show a trained run as a page in the browser, and as an API",
    "demo": "train, evaluate and explain a DProtoNet on the built-in birds, in minutes",
}


_GOING_ON = {
    "train": "; go on with --resume",
    "benchmark": "; the same command goes on from there",
    "compare": "; the same command goes on from there",
    "predict": "; with --out FILE.csv or FILE.parquet the same command goes on from there",
    "reproduce": "; the same command goes on from there",
}
"""What to do after Ctrl-C, where the command does not know better."""

_ENDED = 143  # what shells say of a process that SIGTERM ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 for success, 2 for a user's mistake, 1 for a failed computation or check."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _speak_warnings()
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        from dprotonet.version import __version__

        print(f"dprotonet {__version__}")
        return 0
    if words[0] not in COMMANDS:
        return _fail(_unknown_command(words[0]), 2)
    return _guarded(words[0], words[1:])


class _CurrentStderr(logging.Handler):
    """Warnings to whatever stderr is now: a progress bar replaces it while it moves."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"{record.levelname.lower()}: {record.getMessage()}", file=sys.stderr)


def _speak_warnings() -> None:
    """Ours in words; not Pillow's of large images, whose memory is reckoned before they are decoded."""
    warnings.filterwarnings("ignore", message="Image size .* exceeds limit")
    logger = logging.getLogger("dprotonet")
    if not any(isinstance(handler, _CurrentStderr) for handler in logger.handlers):
        logger.addHandler(_CurrentStderr(level=logging.WARNING))


def _guarded(command: str, words: list[str]) -> int:
    keep_freed_memory()
    try:
        _check_text(words)
        check_launch(command, words)
        with _ended_as_interrupted(), others_silent():
            code = import_module(f"dprotonet.cli.{command}").main(words) or 0
            leave_launch()
            return code
    except UserError as error:
        return _fail(str(error), 2)
    except ComputationError as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt as stop:
        notes = getattr(stop, "__notes__", ())
        advice = f"; {notes[0]}" if notes else _GOING_ON.get(command, "")
        if isinstance(stop, Ended):
            return _fail(f"{command} was ended by SIGTERM{advice}", _ENDED)
        return _fail(f"{command} was interrupted{advice}", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader went away, as `head` does
    except OSError as error:
        return _fail(_of_files(error), 2)
    except Exception as error:
        if os.environ.get("DPROTONET_DEBUG"):
            raise
        return _fail(f"unexpected {type(error).__name__}: {error}; DPROTONET_DEBUG=1 shows where", 1)
    return 0


def _check_text(words: Sequence[str]) -> None:
    """Names of files may be any bytes; half of a surrogate pair names no file."""
    for word in words:
        try:
            word.encode(errors="surrogateescape")
        except UnicodeEncodeError:
            raise UserError(f"{word!a} is not text: it has half of a character; write it anew") from None


@contextmanager
def _ended_as_interrupted() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: half-written files are removed and claims given back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # launchers send it twice; tidying up takes a moment
    raise Ended


def _of_files(error: OSError) -> str:
    """What a file refused, by the name that the user knows: ours end in .tmp while they are written."""
    place = re.sub(r"\.[0-9a-f]{12}\.tmp$", "", str(error.filename or "no file named"))
    advice = "check that it exists and that there is room"
    if isinstance(error, PermissionError):
        advice = "its rights do not allow it, name another place"
    elif isinstance(error, FileExistsError | NotADirectoryError):
        advice = "a file is where a folder should be, name another place"
    return f"{error.strerror or error}: {place}; {advice}"


def _fail(message: str, code: int) -> int:
    who = "dprotonet" if is_main() else f"dprotonet (process {process()})"
    print(f"{who}: {' '.join(message.split())}", file=sys.stderr)
    return code


def _unknown_command(word: str) -> str:
    close = get_close_matches(word, COMMANDS, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"unknown command '{word}'; {hint}commands: {', '.join(COMMANDS)}"


def _usage() -> str:
    lines = [f"  {name:<11} {summary}" for name, summary in COMMANDS.items()]
    head = "usage: dprotonet COMMAND [options]\n\nImage classifiers that show their reasons.\n\ncommands:\n"
    return head + "\n".join(lines) + "\n\n`dprotonet COMMAND --help` lists the options of a command."


def script() -> None:
    """Entry point of the console script."""
    code = main()
    if "RANK" in os.environ:  # under torchrun a thread of gloo may outlive its group and abort the way out
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
