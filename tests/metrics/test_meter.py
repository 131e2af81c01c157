"""Meters remember: batches, undefined values, and what other processes have seen."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from dprotonet.metrics.classification import auroc, confusion_matrix
from dprotonet.metrics.meter import AurocMeter, Average, ConfusionMeter, CurveMeter, Meter

SCRIPT = Path(__file__).with_name("two_processes.py")


def metered(*batches: Tensor) -> Meter:
    meter = Meter()
    for batch in batches:
        meter.update(batch)
    return meter


def test_the_mean_leaves_undefined_values_out_and_counts_them() -> None:
    meter = metered(torch.tensor([1.0, torch.nan]), torch.tensor([4.0, 4.0, torch.nan, torch.nan]))
    assert meter.compute() == Average(mean=3.0, count=3, left_out=3)


def test_without_a_defined_value_the_mean_is_unknown() -> None:
    for meter in (Meter(), metered(torch.zeros(0)), metered(torch.tensor([torch.nan]))):
        assert math.isnan(meter.compute().mean)
        assert meter.compute().count == 0
    assert metered(torch.tensor([torch.nan])).compute().left_out == 1


def test_sums_are_in_double_precision() -> None:
    meter = metered(torch.tensor([2.0**24]), *[torch.ones(1)] * 3)  # single precision stays at 2²⁴
    assert meter.compute().mean == (2**24 + 3) / 4
    assert metered(torch.full((300,), 1000.0).half()).compute().mean == 1000  # 300,000 is infinite in half


def test_reset_forgets() -> None:
    meter = metered(torch.tensor([1.0, torch.nan]))
    meter.reset()
    meter.update(torch.tensor([5.0]))
    assert meter.compute() == Average(5.0, 1, 0)


def test_merged_parts_are_the_whole_and_a_state_is_a_copy() -> None:
    values = torch.rand(50, generator=torch.Generator().manual_seed(0))
    values[7] = torch.nan
    left, right, total = metered(values[:13]), metered(values[13:]), Meter()
    states = [left.state(), right.state()]
    left.update(torch.tensor([9.0]))  # after the state was taken
    for state in states:
        total.merge(state)
    assert total.compute() == metered(values).compute()
    assert total.compute().left_out == 1


def test_the_confusion_meter_adds_up_and_merges() -> None:
    labels, predictions = (
        torch.randint(3, (40,), generator=torch.Generator().manual_seed(s)) for s in (0, 1)
    )
    first, second = ConfusionMeter(3), ConfusionMeter(3)
    first.update(labels[:9], predictions[:9])
    first.update(labels[9:20], predictions[9:20])
    second.update(labels[20:], predictions[20:])
    first.merge(second.state())
    assert first.compute().equal(confusion_matrix(labels, predictions, 3))
    first.compute().zero_()
    assert first.compute().sum() == 40
    first.reset()
    assert first.compute().equal(torch.zeros(3, 3, dtype=torch.int64))


def test_the_auroc_meter_keeps_every_score() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(9, (60,), generator=generator) / 9  # with ties
    positive = torch.rand(60, generator=generator) < 0.3
    first, second = AurocMeter(), AurocMeter()
    assert math.isnan(first.compute())
    first.update(scores[:11], positive[:11])
    first.update(scores[11:20], positive[11:20].long())
    second.update(scores[20:], positive[20:])
    state = second.state()
    first.merge(state)
    state.zero_()
    assert first.compute() == auroc(scores, positive)
    assert len(first.state()) == 60
    first.reset()
    assert math.isnan(first.compute())


def test_the_curve_meter_leaves_broken_curves_out_whole() -> None:
    curves = torch.rand(30, 5, generator=torch.Generator().manual_seed(0))
    curves[[3, 17], [0, 4]] = torch.nan
    first, second = CurveMeter(5), CurveMeter(5)
    assert first.compute().mean.isnan().all()
    first.update(curves[:8])
    first.update(curves[8:20])
    second.update(curves[20:])
    first.merge(second.state())
    found, known = first.compute(), curves[~curves.isnan().any(dim=1)]
    assert (found.count, found.left_out) == (28, 2)
    assert torch.allclose(found.mean, known.double().mean(dim=0))
    first.reset()
    assert first.compute().count == 0


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\); they must be \(N,\)"):
        Meter().update(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"this meter's kind is \(3,\) torch.float64"):
        Meter().merge(torch.zeros((), dtype=torch.float64))
    with pytest.raises(ValueError, match=r"this meter's kind is \(2, 2\)"):
        ConfusionMeter(2).merge(ConfusionMeter(3).state())
    with pytest.raises(ValueError, match=r"curves have shape \(2, 3\); they must be \(N, 4\)"):
        CurveMeter(4).update(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"this meter's kind is \(6,\)"):
        CurveMeter(4).merge(CurveMeter(3).state())
    for wrong in (torch.zeros(5, 3, dtype=torch.float64), torch.zeros(5, 2), torch.tensor(1.0)):
        with pytest.raises(ValueError, match=r"this meter's kind is \(., 2\) torch.float64"):
            AurocMeter().merge(wrong)
    with pytest.raises(ValueError, match="contain NaN"):
        AurocMeter().update(torch.tensor([torch.nan]), torch.tensor([True]))


def test_two_processes_measure_exactly_what_one_does(tmp_path: Path) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    result = subprocess.run(
        [sys.executable, *launcher, str(SCRIPT), str(tmp_path / "out")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found = load_file(tmp_path / "out")
    assert found["processes"] == 2
    assert found["seen by the first"] == 40  # only its share: the even images, a multiple of ten undefined
    assert found["mean"].equal(found["mean alone"])
    assert found["counts"].tolist() == found["counts alone"].tolist() == [90, 11]
    assert found["confusion"].equal(found["confusion alone"])
    assert found["confusion"].sum() == 101
    assert found["auroc"].equal(found["auroc alone"])
    assert 0.3 < found["auroc"] < 0.7
    assert found["curve"].equal(found["curve alone"])
