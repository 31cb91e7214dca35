"""Import time, compared with reading the same table with the csv module and writing it as JSON lines.

    python benchmarks/imports.py [--n 20000] [--real DATA]

The table has the layout of NIH ChestX-ray14, without images. The difference is the cost of labels, boxes, prior studies,
checks, notes and resuming after a kill. With --real, the folders iu_xray (views from the images, and from the table),
openi and nih_cxr14 of DATA are imported too. The target for iu-xray is 30 s on two cores.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
import time
from pathlib import Path

from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import import_corpus

HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Sex,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)
LABELS = ("No Finding", "Cardiomegaly|Effusion", "Infiltration", "Atelectasis|Mass")


def table(root: Path, n: int) -> Path:
    """A folder with a table of n images, four per patient."""
    root.mkdir()
    rows = [
        f"{k // 4:08d}_{k % 4:03d}.png,{LABELS[k % len(LABELS)]},{k % 4},{k // 4},{20 + k % 70},F,PA,1,1,1,1"
        for k in range(n)
    ]
    (root / "Data_Entry_2017_v2020.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return root


def copy_as_json(root: Path, out: Path) -> None:
    """Write the rows as JSON lines, without interpreting them."""
    source = root / "Data_Entry_2017_v2020.csv"
    with source.open(newline="") as stream, out.open("w") as lines:
        for row in csv.DictReader(stream):
            lines.write(json.dumps(row) + "\n")


def main() -> None:
    """Print the time of both, and of the real data sets if given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=20_000, help="images in the table")
    parser.add_argument("--real", type=Path, help="folder with iu_xray, openi and nih_cxr14")
    given = parser.parse_args()
    n = given.n
    with tempfile.TemporaryDirectory() as folder:
        root = table(Path(folder, "root"), n)
        start = time.monotonic()
        import_corpus("nih-cxr14", ImportConfig(root), Path(folder, "corpus"))
        import_s = time.monotonic() - start
        start = time.monotonic()
        copy_as_json(root, Path(folder, "plain.jsonl"))
        copy_s = time.monotonic() - start
        print(f"{n} images: import {import_s:.2f} s, csv to JSON lines {copy_s:.2f} s; ratio {import_s / copy_s:.1f}")
        if given.real is not None:
            _import_real(given.real, Path(folder))


def _import_real(data: Path, folder: Path) -> None:
    projections = data / "openi" / "indiana_projections.csv"
    for label, name, config in (
        ("iu-xray, views from the images", "iu-xray", ImportConfig(data / "iu_xray")),
        ("iu-xray, views from the table", "iu-xray", ImportConfig(data / "iu_xray", projections=projections)),
        ("openi", "openi", ImportConfig(data / "openi")),
        ("nih-cxr14", "nih-cxr14", ImportConfig(data / "nih_cxr14")),
    ):
        start = time.monotonic()
        corpus = import_corpus(name, config, folder / label)
        print(f"{label}: {len(corpus):,} studies in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
