"""What the folds of one run come to: every training image is judged once, by a network that has not seen it.

The counts of right and wrong answers are added up, so that the accuracy is a share of all images. AUROC
compares scores, which those of two networks do not bear: it is the mean over folds, by their images.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch

from dprotonet.experiment.benchmark.plan import AT_THE_END, STOPPED
from dprotonet.experiment.evaluation.evaluation import counted

_LENGTHS = ("epochs", "kept epoch", "steps")


def pooled(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One result of those of all folds, each as `Evaluation.summary` has it; a single one is itself."""
    if len(results) == 1:
        return dict(results[0])
    first, images = results[0], [result["images"] for result in results]
    confusion = torch.stack([torch.tensor(result["confusion"]) for result in results]).sum(dim=0)
    return {
        "config": first["config"] | {"data": first["config"]["data"] | {"fold": 0}},
        **({"baseline": first["baseline"]} if "baseline" in first else {}),
        "seconds": sum(result["seconds"] for result in results),
        **{name: _mean([result.get(name) for result in results]) for name in _LENGTHS},
        STOPPED: [word for result in results for word in result.get(STOPPED, [])],
        "push changes": [change for result in results for change in result["push changes"]],
        "split": f"{len(results)} folds",
        **counted(confusion, list(first["per_class"]), positive=first["positive"]),
        "positive_reason": first.get("positive_reason"),
        **{name: _mean([result[name] for result in results], images) for name in ("auroc", AT_THE_END)},
        "folds": [{"images": result["images"], "accuracy": result["accuracy"]} for result in results],
    }


def _mean(values: Sequence[float | None], weights: Sequence[float] | None = None) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known, weights) if len(known) == len(values) else None
