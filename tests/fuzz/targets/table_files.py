"""What data sets say of their images: RSNA's and Cars' CSV, CUB's lists; and a table of predictions begun."""

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from PIL import Image
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Case

from dprotonet.config import DataConfig
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.trained.unfinished_table import UnfinishedTable

_IMAGES = 8
_CELLS = (
    "",
    "-1",
    "nan",
    "inf",
    "1e400",
    "٣",
    "1_0",
    "0x1",
    "a" * 140_000,
    '"',
    "'",
    "\0",
    "../../x",
    "1 2",
    "½",
)


class TableFiles:
    """A data set of a few tiny images whose lists are damaged, one at a time."""

    def __init__(self, place: Path) -> None:
        self.place = place / "data"
        self.good: dict[str, tuple[Path, bytes]] = {}
        self._table("rsna", *_rsna(self.place / "rsna"))
        self._table("cars", *_cars(self.place / "cars"))
        for name, path, text in _cub(self.place / "cub"):
            self._table(f"cub {name}", path, text)
        self._table("predictions", place / "out.csv.part", _PREDICTIONS)
        self.names = {path for path in self.place.rglob("*")}

    def _table(self, kind: str, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        self.good[kind] = path, text.encode()

    def draw(self, generator: random.Random) -> Case:
        kind = generator.choice(list(self.good))
        text = self.good[kind][1]
        draw = generator.random()
        if draw < 0.6:
            return Case(kind, _odd_cells(generator, text.decode()).encode())
        return Case(kind, mutated(generator, text))

    def feed(self, case: Case) -> None:
        path, good = self.good[case.kind]
        try:
            path.write_bytes(case.content)
            self._reader(case.kind)()
        finally:
            path.write_bytes(good)

    def _reader(self, kind: str) -> Callable[[], object]:
        if kind == "predictions":
            return self._gone_on_with
        name = kind.split()[0]
        return lambda: _opened(f"{name}:{self.place / name}")

    def _gone_on_with(self) -> None:
        table = UnfinishedTable(self.place.parent / "out.csv", {"model": "a", "columns": ["b"]}, 2)
        table.begin(overwrite=False)
        list(table.rows(list(table.places)))

    def left(self) -> Iterable[str]:
        return [path.name for path in self.place.rglob("*") if path not in self.names]


def _opened(data: str) -> None:
    """Read the lists and one image of each split with all that is known of it."""
    splits = build_splits(DataConfig(data=data, image_size=32, val_fraction=0.4, allow_leaks=True))
    for part in (splits.train, splits.val, splits.test):
        if len(part):
            part[0]


def _image(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 256, (10, 12, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def _rsna(root: Path) -> tuple[Path, str]:
    rows = ["patientId,x,y,width,height,Target"]
    for number in range(_IMAGES):
        _image(root / "stage_2_train_images" / f"p{number}.png", number)
        rows.append(f"p{number},100.0,200.0,300.0,400.0,1" if number % 2 else f"p{number},,,,,0")
    return root / "stage_2_train_labels.csv", "\n".join(rows)


def _cars(root: Path) -> tuple[Path, str]:
    rows: dict[str, list[str]] = {"train": [], "test": []}
    for number in range(_IMAGES):
        for split in rows:
            _image(root / split / f"Car {number % 2}" / f"{number:05d}.jpg", number + 100 * (split == "test"))
            rows[split].append(f"{number:05d}.jpg,1,2,8,9,{number % 2 + 1}")
    (root / "anno_test.csv").write_text("\n".join(rows["test"]))
    return root / "anno_train.csv", "\n".join(rows["train"])


def _cub(root: Path) -> Iterable[tuple[str, Path, str]]:
    numbers = range(1, _IMAGES + 1)
    names = {n: f"00{n % 2 + 1}.Bird_{n % 2}/b{n}.jpg" for n in numbers}
    for number, name in names.items():
        _image(root / "images" / name, number)
    tables = {
        "images.txt": [f"{n} {names[n]}" for n in numbers],
        "image_class_labels.txt": [f"{n} {n % 2 + 1}" for n in numbers],
        "classes.txt": ["1 001.Bird_0", "2 002.Bird_1"],
        "train_test_split.txt": [f"{n} {int(n < 7)}" for n in numbers],
        "bounding_boxes.txt": [f"{n} 1.0 1.0 8.0 7.0" for n in numbers],
        "parts/parts.txt": ["1 back", "2 beak"],
        "parts/part_locs.txt": [f"{n} {part} 4.0 5.0 1" for n in numbers for part in (1, 2)],
    }
    for name, lines in tables.items():
        yield name, root / name, "\n".join(lines)


def _odd_cells(generator: random.Random, text: str) -> str:
    """Cells with other words, lines twice, gone, or cut."""
    lines = text.splitlines()
    sign = "," if "," in text else " "
    for _ in range(generator.choice((1, 1, 2, 4))):
        at, draw = generator.randrange(len(lines)), generator.random()
        if draw < 0.7:
            cells = lines[at].split(sign)
            cells[generator.randrange(len(cells))] = generator.choice(_CELLS)
            lines[at] = sign.join(cells)
        elif draw < 0.8:
            lines.insert(at, lines[at])
        elif draw < 0.9 and len(lines) > 1:
            del lines[at]
        else:
            lines[at] = lines[at][: generator.randrange(len(lines[at]) + 1)]
    return generator.choice(("\n", "\n", "\r\n", "\r")).join(lines)


_PREDICTIONS = """{"model": "a", "columns": ["b"]}
[["s1", ["x", 1.0]], ["s2", ["y", 2.0]]]
[["s3", ["z", 3.0]]]
"""
