"""How long does an import take, beside reading the same table plainly and writing it as JSON lines?

    python benchmarks/imports.py [--n 20000] [--real DATA]

A table in the layout of NIH ChestX-ray14 without images is imported, and read by the csv module and written line by
line: what labels, boxes, priors, checks, notes and a kill at any moment cost on top. With --real, the iu_xray folder
of DATA (views from the pictures, and from the table), openi and nih_cxr14 are imported too; iu-xray promises 30 s on
two cores.
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
    """A folder with a table of n images, four to a patient."""
    root.mkdir()
    rows = [
        f"{k // 4:08d}_{k % 4:03d}.png,{LABELS[k % len(LABELS)]},{k % 4},{k // 4},{20 + k % 70},F,PA,1,1,1,1"
        for k in range(n)
    ]
    (root / "Data_Entry_2017_v2020.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return root


def plainly(root: Path, out: Path) -> None:
    """The table as JSON lines, nothing understood."""
    source = root / "Data_Entry_2017_v2020.csv"
    with source.open(newline="") as stream, out.open("w") as lines:
        for row in csv.DictReader(stream):
            lines.write(json.dumps(row) + "\n")


def main() -> None:
    """Print studies a second for both, and the real data sets where they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=20_000, help="images in the table")
    parser.add_argument("--real", type=Path, help="folder with iu_xray, openi and nih_cxr14")
    given = parser.parse_args()
    n = given.n
    with tempfile.TemporaryDirectory() as place:
        root = table(Path(place, "root"), n)
        start = time.monotonic()
        import_corpus("nih-cxr14", ImportConfig(root), Path(place, "corpus"))
        ours = time.monotonic() - start
        start = time.monotonic()
        plainly(root, Path(place, "plain.jsonl"))
        peer = time.monotonic() - start
        print(f"{n} images: {ours:.2f} s imported, {peer:.2f} s read and written plainly: {ours / peer:.1f} times")
        if given.real is not None:
            _real(given.real, Path(place))


def _real(data: Path, place: Path) -> None:
    projections = data / "openi" / "indiana_projections.csv"
    for label, name, config in (
        ("iu-xray, views from the pictures", "iu-xray", ImportConfig(data / "iu_xray")),
        ("iu-xray, views from the table", "iu-xray", ImportConfig(data / "iu_xray", projections=projections)),
        ("openi", "openi", ImportConfig(data / "openi")),
        ("nih-cxr14", "nih-cxr14", ImportConfig(data / "nih_cxr14")),
    ):
        start = time.monotonic()
        corpus = import_corpus(name, config, place / label)
        print(f"{label}: {len(corpus):,} studies in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
