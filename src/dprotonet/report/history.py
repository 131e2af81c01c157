"""How training went: accuracy over epochs and what the pushes did, from metrics.jsonl."""

import logging

from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.report.content import Curve, PushMark

logger = logging.getLogger(__name__)


def history(run: RunFolder) -> Curve | None:
    """None where nothing was logged, or the log is damaged: it is told, not trusted."""
    try:
        records = run.read_metrics()
        epochs = [item for item in records if item["event"] == "EpochDone" and item["phase"] != "last"]
        kept = [item["epoch"] for item in records if item["event"] == "RoundDone" and item["kept"]]
        found = Curve(
            epochs=tuple(int(item["epoch"]) for item in epochs),
            train=tuple(float(item["train_accuracy"]) for item in epochs),
            val=tuple(float(item["val_accuracy"]) for item in epochs),
            pushes=tuple(
                PushMark(int(item["epoch"]), float(item["val_before"]), float(item["val_after"]))
                for item in records
                if item["event"] == "PushDone"
            ),
            kept=kept[-1] if kept else None,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("%s is damaged (%s); the report goes without its curve", run.metrics, error)
        return None
    return found if found.epochs else None
