"""What a benchmark leaves: the table as Markdown, LaTeX and CSV, all results, and how accuracy went."""

import json
from typing import Any

from dprotonet.errors import UserError
from dprotonet.experiment.benchmark.localisation import Localisation
from dprotonet.experiment.benchmark.localisation_figures import save_figures
from dprotonet.experiment.benchmark.localisation_table import LocalisationTable
from dprotonet.experiment.benchmark.run import Benchmark
from dprotonet.experiment.benchmark.table import BenchmarkTable, Results
from dprotonet.experiment.explaining.pictures import save_picture
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.figures import AccuracyCurve, network_curves
from dprotonet.files import write_text


def save_benchmark(benchmark: Benchmark) -> dict[str, Any]:
    """Write everything; what results.json says, with the paths."""
    folder, results = benchmark.folder, benchmark.results()
    table = BenchmarkTable.of(benchmark.plan, results)
    content: dict[str, Any] = {
        "title": table.title,
        "finished": len(results),
        "runs": len(benchmark.plan.cells),
        "results": [
            {"row": row, "column": column, "seed": seed, **result}
            for (row, column, seed), result in results.items()
        ],
        "files": {kind: str(folder / f"table.{kind}") for kind in ("md", "tex", "csv")} | _curves(benchmark),
    }
    if benchmark.plan.localisation is not None:
        found = _save_localisation(Localisation(benchmark, benchmark.plan.localisation), results)
        content |= {"localisation": found["localisation"], "files": content["files"] | found["files"]}
    content["files"] |= _pictures(benchmark)
    write_text(folder / "table.md", table.markdown())
    write_text(folder / "table.tex", table.latex())
    write_text(folder / "table.csv", table.csv())
    write_text(folder / "results.json", json.dumps(content, ensure_ascii=False, indent=1))
    return content


def _save_localisation(localisation: Localisation, trained: Results) -> dict[str, Any]:
    """The table of heatmaps and its pictures; what it adds to results.json."""
    folder = localisation.benchmark.folder
    columns = localisation.benchmark.plan.columns
    results = {column: localisation.results(column) for column in columns}
    results = {column: found for column, found in results.items() if any(found.records.values())}
    table = LocalisationTable.of(localisation, results, trained)
    content = json.dumps(table.content(), ensure_ascii=False, indent=1)
    written = {"md": table.markdown(), "tex": table.latex(), "csv": table.csv(), "json": content}
    for kind, text in written.items():
        write_text(folder / f"localisation.{kind}", text)
    files = {f"localisation {kind}": str(folder / f"localisation.{kind}") for kind in written}
    if localisation.plan.named:  # every row by every method would be too many lines for a figure
        for place, (column, found) in enumerate(results.items(), start=1):
            files |= save_figures(localisation, column, found, stem=f"localisation-{place}")
    return {"localisation": table.summary(), "files": files}


def _pictures(benchmark: Benchmark) -> dict[str, str]:
    """Those that `[figures]` asks for and that are made."""
    found: dict[str, str] = {}
    for item in benchmark.pictures():
        paths = {f"{kind} on {item.column}": item.path(kind) for kind in item.wanted()}
        found |= {name: str(path) for name, path in paths.items() if path.is_file()}
    return found


def _curves(benchmark: Benchmark) -> dict[str, str]:
    """For every column one picture: accuracy of all rows over epochs, first seed and fold, pushes marked."""
    saved = {}
    for place, column in enumerate(benchmark.plan.columns):
        curves = {
            cell.row: curve
            for cell in reversed(benchmark.plan.cells)  # so that the first seed is kept
            if cell.column == column and (curve := _curve(RunFolder(benchmark.explained(cell)))) is not None
        }
        if curves:
            path = benchmark.folder / f"curves-{place + 1}.png"
            ordered = {row: curves[row] for row in benchmark.plan.rows if row in curves}
            save_picture(network_curves(ordered, title=f"Validation accuracy on {column}"), path)
            saved[f"curves on {column}"] = str(path)
    return saved


def _curve(run: RunFolder) -> AccuracyCurve | None:
    if not (run.path / "metrics.jsonl").exists():
        return None
    try:
        records = run.read_metrics()
    except UserError:  # told by its run; the others have their curves
        return None
    epochs = [item for item in records if item["event"] == "EpochDone" and item["phase"] != "last"]
    pushes = [item for item in records if item["event"] == "PushDone"]
    judged = {item["epoch"]: item["val_accuracy"] for item in records if item["event"] == "RoundDone"}
    if not epochs:
        return None
    return AccuracyCurve(
        [item["epoch"] for item in epochs],
        [item["val_accuracy"] for item in epochs],
        [item["epoch"] for item in pushes],
        [item["val_after"] for item in pushes],
        [judged[item["epoch"]] for item in pushes if item["epoch"] in judged],
    )
