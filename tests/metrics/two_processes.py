"""Run by test_meter.py under torchrun: each measures its share; the first merges and writes."""

import os
import sys

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch import distributed as group

from dprotonet.metrics.meter import ConfusionMeter, Meter

IMAGES, CLASSES = 101, 4


def measured(images: Tensor) -> tuple[Meter, ConfusionMeter]:
    """Meters that have seen these images, in small batches; every tenth value is undefined."""
    generator = torch.Generator().manual_seed(0)
    values = 100 * torch.rand(IMAGES, generator=generator)
    values[::10] = torch.nan
    labels, predictions = torch.randint(CLASSES, (2, IMAGES), generator=generator)
    meter, confusion = Meter(), ConfusionMeter(CLASSES)
    for batch in images.split(7):
        meter.update(values[batch])
        confusion.update(labels[batch], predictions[batch])
    return meter, confusion


def gathered(state: Tensor) -> list[Tensor]:
    states = [torch.empty_like(state) for _ in range(group.get_world_size())]
    group.all_gather(states, state)
    return states


def numbers(meter: Meter, confusion: ConfusionMeter, suffix: str) -> dict[str, Tensor]:
    average = meter.compute()
    return {
        f"mean{suffix}": torch.tensor(average.mean, dtype=torch.float64),
        f"counts{suffix}": torch.tensor([average.count, average.left_out]),
        f"confusion{suffix}": confusion.compute(),
    }


def main(out: str) -> None:
    group.init_process_group("gloo")
    own = measured(torch.arange(group.get_rank(), IMAGES, group.get_world_size()))
    merged = Meter(), ConfusionMeter(CLASSES)
    for meter, total in zip(own, merged, strict=True):
        for state in gathered(meter.state()):
            total.merge(state)
    if group.get_rank() == 0:
        facts = {"processes": group.get_world_size(), "seen by the first": own[0].compute().count}
        results = numbers(*merged, "") | numbers(*measured(torch.arange(IMAGES)), " alone")
        save_file(results | {name: torch.tensor(fact) for name, fact in facts.items()}, out)
    group.barrier()
    group.destroy_process_group()
    os._exit(0)  # a thread of gloo may outlive its group and abort the interpreter on its way out


if __name__ == "__main__":
    main(sys.argv[1])
