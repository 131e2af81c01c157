"""What `decoder_before.py` found: means, costs, and paired differences, from what it kept image by image."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from decoder import mean
from torch import Tensor

from dprotonet.metrics.comparison import paired_bootstrap

BEFORE = "before"  # the other checkout's `fast`
FALLS = ("deletion", "AD", "AD50")
Results = list[dict[str, Any]]


def compared(values: Mapping[str, Mapping[str, Tensor]], methods: list[str]) -> dict[str, Any]:
    """Ours minus before, ours minus a CAM; above zero is better for us in every column."""
    return {
        "compared": {
            f"{ours} vs {rival}": {
                column: paired_bootstrap(
                    *(_signed(column, item[column]) for item in (values[ours], values[rival]))
                )._asdict()
                for column in values[ours]
                if column in values[rival]
            }
            for ours in methods
            for rival in values
            if rival not in methods
        }
    }


def _signed(column: str, values: Tensor) -> Tensor:
    return -values if column in FALLS else values


def columns_of(items: Results, *, without: Sequence[str] = ()) -> dict[str, Tensor]:
    names = dict.fromkeys(name for item in items for name in item["values"] if name not in without)
    return {name: torch.tensor([item["values"].get(name, torch.nan) for item in items]) for name in names}


def row_of(items: Results, values: Mapping[str, Tensor], before: Results) -> dict[str, Any]:
    seconds = sum(item["seconds"] for item in items)
    passes = torch.tensor([item["passes"] for item in items], dtype=torch.double).mean(dim=0)
    correlations = [item["rank correlation"] for item in items if "rank correlation" in item]
    return {
        "mean": {name: mean(column) for name, column in values.items()},
        "seconds": seconds / len(items),
        "of before": seconds / sum(item["seconds"] for item in before),
        "passes": [round(number) for number in passes.tolist()],
        **({"rank correlation": float(np.mean(correlations))} if correlations else {}),
    }


def all_together(found: Mapping[str, dict[str, Any]], methods: list[str]) -> dict[str, Any]:
    """The columns that every data set has, over all their images."""
    shared: dict[str, dict[str, Tensor]] = {}
    for method in (BEFORE, *methods):
        names = set.intersection(*(set(item["values"][method]) for item in found.values()))
        order = [name for name in next(iter(found.values()))["values"][method] if name in names]
        shared[method] = {
            name: torch.tensor(
                [
                    torch.nan if one is None else one
                    for item in found.values()
                    for one in item["values"][method][name]
                ]
            )
            for name in order
        }
    rows = {
        method: {"mean": {name: mean(column) for name, column in item.items()}}
        for method, item in shared.items()
    }
    return {
        "images": sum(item["images"] for item in found.values()),
        "rows": rows,
        **compared(shared, methods),
    }
