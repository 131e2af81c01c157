"""Run by test_meter.py under torchrun: each measures its share; the first merges and writes."""

import os
import sys
from typing import NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch import distributed as group

from dprotonet.metrics.meter import AurocMeter, ConfusionMeter, CurveMeter, Meter

IMAGES, CLASSES, POINTS = 101, 4, 6


class Meters(NamedTuple):
    """One of each kind."""

    mean: Meter
    confusion: ConfusionMeter
    auroc: AurocMeter
    curve: CurveMeter


def fresh() -> Meters:
    return Meters(Meter(), ConfusionMeter(CLASSES), AurocMeter(), CurveMeter(POINTS))


def measured(images: Tensor) -> Meters:
    """Meters that have seen these images, in small batches; every tenth value is undefined."""
    generator = torch.Generator().manual_seed(0)
    values = 100 * torch.rand(IMAGES, generator=generator)
    values[::10] = torch.nan
    labels, predictions = torch.randint(CLASSES, (2, IMAGES), generator=generator)
    scores, curves = torch.rand(IMAGES, generator=generator), torch.rand(IMAGES, POINTS, generator=generator)
    meters = fresh()
    for batch in images.split(7):
        meters.mean.update(values[batch])
        meters.confusion.update(labels[batch], predictions[batch])
        meters.auroc.update(scores[batch], labels[batch] == 0)
        meters.curve.update(curves[batch])
    return meters


def gathered(state: Tensor) -> list[Tensor]:
    """As objects: the states of AUROC differ in length, 51 images here and 50 there."""
    states: list[Tensor] = [state] * group.get_world_size()
    group.all_gather_object(states, state)
    return states


def numbers(meters: Meters, suffix: str) -> dict[str, Tensor]:
    average = meters.mean.compute()
    return {
        f"mean{suffix}": torch.tensor(average.mean, dtype=torch.float64),
        f"counts{suffix}": torch.tensor([average.count, average.left_out]),
        f"confusion{suffix}": meters.confusion.compute(),
        f"auroc{suffix}": torch.tensor(meters.auroc.compute(), dtype=torch.float64),
        f"curve{suffix}": meters.curve.compute().mean,
    }


def main(out: str) -> None:
    group.init_process_group("gloo")
    own, merged = measured(torch.arange(group.get_rank(), IMAGES, group.get_world_size())), fresh()
    for meter, total in zip(own, merged, strict=True):
        for state in gathered(meter.state()):
            total.merge(state)
    if group.get_rank() == 0:
        facts = {"processes": group.get_world_size(), "seen by the first": own.mean.compute().count}
        results = numbers(merged, "") | numbers(measured(torch.arange(IMAGES)), " alone")
        save_file(results | {name: torch.tensor(fact) for name, fact in facts.items()}, out)
    group.barrier()
    group.destroy_process_group()
    os._exit(0)  # a thread of gloo may outlive its group and abort the interpreter on its way out


if __name__ == "__main__":
    main(sys.argv[1])
