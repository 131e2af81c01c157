"""PALM as data with two labels per image, from the names of its files alone: a folder with labels.csv.

    python benchmarks/palm_labels.py --palm FOLDER --out FOLDER2

P… is pathological myopia, which is a high myopia, H… high myopia without pathology, N… neither. So the first
label never comes without the second: this shows labels that go together, not two diseases. Images are linked,
not copied; which are test images is drawn by the reader of labels.csv.
"""

import argparse
from pathlib import Path

LABELS = {"P": "pathological myopia;high myopia", "H": "high myopia", "N": ""}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--palm", type=Path, required=True, help="the folder with the images, at any depth")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    rows = ["file,labels"]
    for path in sorted(options.palm.resolve().rglob("*.jpg")):
        (options.out / path.name).symlink_to(path)
        rows.append(f"{path.name},{LABELS[path.name[0].upper()]}")
    (options.out / "labels.csv").write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
