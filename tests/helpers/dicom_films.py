"""Tiny DICOM films with just enough header."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pydicom
from pydicom.dataset import FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid


def write_film(path: Path, rows: int = 8, columns: int = 6, **elements: object) -> None:
    """A grey film of this size; `elements` are further header elements (PatientAge="061Y")."""
    film = pydicom.Dataset()
    film.file_meta = FileMetaDataset()
    film.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    film.SOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
    film.SOPInstanceUID = generate_uid(entropy_srcs=[path.name])
    film.file_meta.MediaStorageSOPClassUID = film.SOPClassUID
    film.file_meta.MediaStorageSOPInstanceUID = film.SOPInstanceUID
    film.Modality, film.PhotometricInterpretation = "DX", "MONOCHROME2"
    film.Rows, film.Columns, film.SamplesPerPixel = rows, columns, 1
    film.BitsAllocated = film.BitsStored = 8
    film.HighBit, film.PixelRepresentation = 7, 0
    for name, value in elements.items():
        setattr(film, name, value)
    film.PixelData = np.zeros((rows, columns), np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    film.save_as(path, enforce_file_format=True)
