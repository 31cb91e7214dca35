"""Tiny DICOM images with just enough header."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pydicom
from pydicom.dataset import FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid


def write_image(path: Path, rows: int = 8, columns: int = 6, **elements: object) -> None:
    """A grey image of this size; `elements` are further header elements (PatientAge="061Y")."""
    image = pydicom.Dataset()
    image.file_meta = FileMetaDataset()
    image.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    image.SOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
    image.SOPInstanceUID = generate_uid(entropy_srcs=[path.name])
    image.file_meta.MediaStorageSOPClassUID = image.SOPClassUID
    image.file_meta.MediaStorageSOPInstanceUID = image.SOPInstanceUID
    image.Modality, image.PhotometricInterpretation = "DX", "MONOCHROME2"
    image.Rows, image.Columns, image.SamplesPerPixel = rows, columns, 1
    image.BitsAllocated = image.BitsStored = 8
    image.HighBit, image.PixelRepresentation = 7, 0
    image.PixelData = np.zeros((rows, columns), np.uint8).tobytes()
    for name, value in elements.items():
        setattr(image, name, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save_as(path, enforce_file_format=True)
