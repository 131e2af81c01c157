"""The table of a comparison: bold only where it is sure, gaps where there is no value."""

import csv
import io
import json

import pytest
import torch

from dprotonet.experiment.compare.run import Results
from dprotonet.experiment.compare.store import Record
from dprotonet.experiment.compare.table import Table
from dprotonet.metrics.measures import Protocol

PROTOCOL = Protocol()
NAN = float("nan")


def record(**values: float) -> Record:
    """A record whose measures are 0.5 unless given."""
    known = {measure.name: 0.5 for measure in PROTOCOL.measures} | {"part": NAN} | values
    curve = torch.linspace(0, 1, 3)
    return Record(known, curve, curve, {}, 1.5, (3, 2), torch.zeros(2, 2))


def results(**methods: dict[int, Record]) -> Results:
    indices = sorted({index for kept in methods.values() for index in kept})
    return Results(methods, (), {index: f"{index}.png" for index in indices}, 0)


def test_the_best_is_bold_only_where_every_difference_is_sure() -> None:
    count = 30
    noise = torch.randn(count, generator=torch.Generator().manual_seed(0)).tolist()
    first = {i: record(deletion=0.1 + noise[i] / 100, insertion=0.5 + noise[i] / 9) for i in range(count)}
    other = {i: record(deletion=0.2 + noise[i] / 100, insertion=0.5 - noise[i] / 9) for i in range(count)}
    table = Table.of(results(mdm=first, gradcam=other), PROTOCOL)
    assert table.best["deletion"] == "mdm"  # lower is better, and it is on every image
    assert "insertion" not in table.best  # better on average, but by luck
    assert "DICE" not in table.best  # equal
    assert "| mdm | **0.0" in table.markdown()
    assert table.markdown().count("**") == 2
    assert table.latex().count(r"\textbf") == 1


def test_a_control_is_never_the_best() -> None:
    kept = {i: record(deletion=0.3 + i / 100) for i in range(12)}
    worse = {i: record(deletion=0.6 + i / 100) for i in range(12)}
    fake = {i: record(deletion=0.0) for i in range(12)}
    table = Table.of(results(mdm=kept, gradcam=worse, fake=fake), PROTOCOL)
    assert table.best == {"deletion": "mdm"}


def test_only_images_that_both_explained_are_compared() -> None:
    """On its own images alone, gradcam would look the better one."""
    ours = {i: record(deletion=0.1 if i < 10 else 0.9) for i in range(30)}
    theirs = {i: record(deletion=0.2 + i / 1000) for i in range(10)}
    table = Table.of(results(mdm=ours, gradcam=theirs), PROTOCOL)
    assert table.best.get("deletion") != "gradcam"


def test_a_column_without_any_value_is_left_out_and_a_single_gap_is_a_dash() -> None:
    one = {i: record(DICE=NAN if i else 0.4) for i in range(3)}
    none = {i: record(DICE=NAN) for i in range(3)}
    table = Table.of(results(mdm=one, gradcam=none), PROTOCOL)
    assert "part" not in [measure.name for measure in table.measures]
    dice = next(measure for measure in table.measures if measure.name == "DICE")
    assert [table.written(row, dice) for row in table.rows] == ["0.400", "–"]
    assert table.summary()["rows"][1]["measures"]["DICE"] == {"mean": None, "low": None, "high": None}


def test_intervals_hold_the_mean_and_cost_is_told() -> None:
    table = Table.of(results(mdm={i: record(AD=float(i)) for i in range(20)}), PROTOCOL)
    cell = table.rows[0].cells["AD"]
    assert cell.mean == pytest.approx(9.5)
    assert 6 < cell.low < cell.mean < cell.high < 13
    assert (table.rows[0].seconds, table.rows[0].passes) == (1.5, (3, 2))
    assert "rise-28" in table.note()


def test_names_are_safe_in_latex() -> None:
    table = Table.of(results(**{"file:a_b": {0: record()}}), PROTOCOL)
    assert r"file:a\_b &" in table.latex()


def test_few_images_prove_nothing() -> None:
    """Better on each of a few images, and by the same amount: the bootstrap alone would call it sure."""
    for count, sure in ((9, False), (10, True)):
        ours = {i: record(deletion=0.1 + i / 100) for i in range(count)}
        theirs = {i: record(deletion=0.2 + i / 100) for i in range(count)}
        table = Table.of(results(mdm=ours, gradcam=theirs), PROTOCOL)
        assert ("deletion" in table.best) is sure
    assert "on 10 images at least" in table.note()


def test_a_method_that_failed_on_some_says_on_how_many_it_rests() -> None:
    table = Table.of(results(mdm={i: record() for i in range(5)}, gradcam={0: record()}), PROTOCOL)
    assert "| gradcam (1 of 5) |" in table.markdown()
    assert "| mdm |" in table.markdown()
    assert "gradcam (1 of 5) &" in table.latex()


def test_the_best_is_chosen_on_images_that_all_have() -> None:
    """On its own easy images gradcam++ has the best mean; on the common ones mdm has."""
    ours = {i: record(AD=10.0 + i / 9) for i in range(30)}
    theirs = {i: record(AD=20.0 + i / 7) for i in range(30)}
    picky = {i: record(AD=15.0 + i / 5 if i < 12 else 0.0) for i in range(30) if i < 12 or i > 20}
    ours = {i: found for i, found in ours.items() if i < 12}
    table = Table.of(results(mdm=ours, gradcam=theirs, **{"gradcam++": picky}), PROTOCOL)
    assert table.best["AD"] == "mdm"


def test_a_method_without_a_map_leaves_gaps_that_json_can_hold() -> None:
    table = Table.of(results(mdm={0: record()}, gradcam={}), PROTOCOL)
    row = json.loads(json.dumps(table.summary(), allow_nan=False))["rows"][1]
    assert row["seconds"] is None
    assert "nan" not in table.csv()
    assert "nan" not in table.markdown()


def test_flat_maps_are_told() -> None:
    uneven = record()._replace(heatmap=torch.eye(2))
    table = Table.of(results(mdm={0: uneven, 1: uneven}, gradcam={0: record(), 1: uneven}), PROTOCOL)
    assert table.facts["flat maps"] == "gradcam 1"
    assert "flat maps" not in Table.of(results(mdm={0: uneven}), PROTOCOL).facts


def test_protocol_and_network_stand_in_every_form() -> None:
    table = Table.of(results(mdm={0: record()}), Protocol(top=0.125), network="timm:net_1")
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    for text in (rows[0]["protocol"], table.markdown(), table.latex().replace("\\", "")):
        assert "network: timm:net_1" in text
        assert "top 12.5 % of the pixels" in text
        assert "rise-28" in text


def test_an_odd_name_breaks_no_table() -> None:
    table = Table.of(results(**{"file:a|b{c}#1$^~": {0: record()}}), PROTOCOL)
    assert "| file:a\\|b{c}#1$^~ |" in table.markdown()
    assert r"file:a|b\{c\}\#1\$\textasciicircum{}\textasciitilde{} &" in table.latex()
