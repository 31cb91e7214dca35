"""Phantoms as a hospital exports them: DICOM files and an Excel table with column names of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from dicom_images import write_image
from openpyxl import Workbook

from cxrlab.core.vocabulary import View
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.phantom.corpus import make_phantom

HEADER = ("Fall", "Pat-Nr", "Datei", "Befundtext", "Projektion", "Untersuchung am", "Datensatz")


def export_phantoms(folder: Path, n: int, size: int = 64, seed: int = 7) -> Corpus:
    """Write `scans/` and `reports.xlsx` into the folder; returns the corpus that they come from."""
    corpus = make_phantom(PhantomConfig(n=n, size=size, seed=seed, workers=1), folder / "phantom")
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append(HEADER)
    for number, study in enumerate(corpus):
        name = f"scans/{study.patient}/IMG{number:04}"
        pixels = np.round(corpus.image(study) * 4095).astype(np.uint16)
        write_image(
            folder / name,
            *pixels.shape,
            StudyInstanceUID=f"1.2.826.{number + 1}",
            AccessionNumber=f"A{number:04}",
            PatientID=study.patient,
            StudyDate=f"2024{1 + number // 28 % 12:02}{1 + number % 28:02}",
            ViewPosition="PA" if study.images[0].view is None else study.images[0].view.value,
            PatientSex=study.sex or "",
            PatientAge=f"{int(study.age or 0):03}Y",
            BitsAllocated=16,
            BitsStored=12,
            HighBit=11,
            PixelData=pixels.tobytes(),
        )
        sections = study.sections
        assert sections is not None
        text = f"FINDINGS: {sections.findings}\n\nIMPRESSION: {sections.impression}"
        row = (
            float(number + 1),  # as a spreadsheet stores a number
            study.patient,
            name,
            text,
            "a.p." if study.images[0].view is View.AP else "p.a.",
            f"{1 + number % 28}.{1 + number // 28 % 12}.2024",
            study.split,
        )
        sheet.append(row)
    book.save(folder / "reports.xlsx")
    return corpus
