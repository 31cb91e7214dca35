"""Corpora as Parquet shards with their images inside, as Hugging Face `datasets` reads them, and back.

    README.md      data set card: splits, licence, how to read the shards
    card.yaml      card of the corpus, unchanged
    data/          SPLIT-00000-of-00003.parquet: one row per study, in the order of the corpus

The column `study` holds a study's whole record, from which a corpus is made again; the other columns repeat it for those
who read the shards with other programs. A shard carries a digest of its studies: a killed export keeps those that it has
finished.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import re
from array import array
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_text, unreadable, write_pieces
from cxrlab.core.image_codec import encode_png
from cxrlab.core.json_values import InvalidJson, dumps, loads
from cxrlab.core.jsonl import parse_line, read_line, scan_jsonl
from cxrlab.core.records import SECTIONS, SPLITS, ImageFile, Study
from cxrlab.core.terminal import track
from cxrlab.data.bounded_reading import read_bounded
from cxrlab.data.card import CARD, Card, read_card
from cxrlab.data.corpus import Corpus, inside, parse_study, study_files
from cxrlab.data.corpus_writer import NewStudy, Recipe, build_corpus
from cxrlab.data.export import UNFINISHED, Layout
from cxrlab.data.images import as_uint8, decode_picture, is_dicom
from cxrlab.data.parallel import ordered_map

if TYPE_CHECKING:
    import pyarrow as pa

FORM = 1  # increase it when the same corpus yields other shards
SHARDS = "data"
UNASSIGNED = "unassigned"  # the shards of studies without a split
DEFAULT_SHARD_MB = 512
_GROUP_ROWS, _GROUP_BYTES = 64, 16 << 20  # a row group is what a reader holds in memory
_DIGEST = b"cxrlab"
_BATCH = 16
_TEXTS = ("id", "patient", "prior", "sex", *SECTIONS, "report", "caption")
_JSON = ("labels", "own_labels", "exact_findings", "study")


def parquet_layout(corpus: Corpus, shard_mb: int = DEFAULT_SHARD_MB) -> Layout:
    """Every study of a corpus; a corpus without an image has no layout."""
    require("tables")
    if shard_mb < 1:
        raise ConfigError(f"--shard-mb {shard_mb} is not a size; give at least 1.")
    shards, images = plan_shards(corpus, shard_mb << 20)
    if not images:
        return Layout((), {}, {})
    texts = {CARD: read_text(corpus.path / CARD), "README.md": data_set_card(corpus.card, shards)}
    return Layout((), texts, {}, {SHARDS: partial(write_shards, corpus, shards)})


@dataclass
class Shard:
    """Consecutive studies of one split, by where their lines are; `digest` is of the lines and of their files' sizes."""

    split: str
    offsets: array[int] = field(default_factory=partial(array, "q"))
    numbers: array[int] = field(default_factory=partial(array, "q"))  # of their lines in the corpus
    bytes: int = 0
    name: str = ""
    digest: str = ""


def plan_shards(corpus: Corpus, limit: int) -> tuple[list[Shard], int]:
    """Shards of at most about `limit` bytes, or of one study, and the number of images; studies are read one by one."""
    shards: dict[str, list[Shard]] = {name: [] for name in (*SPLITS, UNASSIGNED)}
    digests: dict[str, Any] = {}
    images = 0
    for offset, number, values in scan_jsonl(corpus.file):
        study = parse_study(values, f"{corpus.file}:{number}")
        line = dumps(values).encode()
        sizes = [_size(inside(corpus.path, path)) for path in study_files(study)]
        images += len(study.images)
        split = study.split or UNASSIGNED
        weight = len(line) + sum(sizes)
        if not shards[split] or shards[split][-1].bytes + weight > limit:
            shards[split].append(Shard(split))
            digests[split] = hashlib.sha256(f"{FORM}\n".encode())
        shard = shards[split][-1]
        shard.offsets.append(offset)
        shard.numbers.append(number)
        shard.bytes += weight
        digests[split].update(line + f"\n{sizes}\n".encode())
        shard.digest = digests[split].hexdigest()
    for split, own in shards.items():
        for place, shard in enumerate(own):
            shard.name = f"{split}-{place:05d}-of-{len(own):05d}.parquet"
    return [shard for own in shards.values() for shard in own], images


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise unreadable(error, file) from error


def write_shards(corpus: Corpus, shards: list[Shard], folder: Path, workers: int = 0) -> None:
    """Write the shards that the folder does not hold already, each whole or not at all; other files there are removed."""
    wanted = {shard.name: shard for shard in shards}
    kept = set()
    for file in folder.iterdir() if folder.is_dir() else ():
        if file.name in wanted and _digest_of(file) == wanted[file.name].digest:
            kept.add(file.name)
        else:
            file.unlink()
    rest = [shard for shard in shards if shard.name not in kept]
    with closing(ordered_map(partial(_write_shard, corpus, folder), rest, workers)) as written:
        for _ in track(written, "writing shards", total=len(rest)):
            pass


def _digest_of(file: Path) -> str | None:
    import pyarrow as pa
    from pyarrow.parquet import read_schema

    try:
        return str((read_schema(file).metadata or {}).get(_DIGEST, b""), "utf-8")
    except (pa.ArrowException, OSError):
        return None


def _write_shard(corpus: Corpus, folder: Path, shard: Shard) -> None:
    """Write one shard, a row group at a time."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    schema = _schema().with_metadata({**_schema().metadata, _DIGEST: shard.digest.encode()})
    sink = _Sink()

    def pieces() -> Iterator[bytes]:
        # Statistics and dictionaries would repeat bytes of images.
        with ParquetWriter(pa.PythonFile(sink, "w"), schema, use_dictionary=False, write_statistics=False) as writer:
            for rows in _row_groups(corpus, shard):
                writer.write_table(pa.Table.from_pylist(rows, schema), row_group_size=len(rows))
                yield sink.drain()
        yield sink.drain()

    write_pieces(folder / shard.name, pieces())


class _Sink(io.RawIOBase):
    """What a Parquet writer writes into, handed on piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._length = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        self._length += len(self._pieces[-1])
        return len(self._pieces[-1])

    def tell(self) -> int:
        return self._length

    def drain(self) -> bytes:
        """What was written since the last call."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def _row_groups(corpus: Corpus, shard: Shard) -> Iterator[list[dict[str, Any]]]:
    """The rows of a shard in groups that fit into memory."""
    group: list[dict[str, Any]] = []
    weight = 0
    with corpus.file.open("rb") as stream:
        for offset, number in zip(shard.offsets, shard.numbers, strict=True):
            stream.seek(offset)
            place = f"{corpus.file}:{number}"
            study, files = _embedded(parse_study(parse_line(read_line(stream)[0], place), place), corpus.path)
            size = sum(map(len, files.values()))
            if group and (len(group) == _GROUP_ROWS or weight + size > _GROUP_BYTES):
                yield group
                group, weight = [], 0
            group.append(_row(study, number, files))
            weight += size
    if group:
        yield group


def _embedded(study: Study, folder: Path) -> tuple[Study, dict[str, bytes]]:
    """A study and the bytes of its files; a DICOM image, which `datasets` cannot decode, becomes a PNG of 8 bits."""
    images: list[ImageFile] = []
    files: dict[str, bytes] = {}
    for image in study.images:
        data = read_bounded(inside(folder, image.path))
        if is_dicom(data):
            data = encode_png(as_uint8(decode_picture(data, image.path)))
            image = dataclasses.replace(image, path=f"{image.path}.png")
        files[image.path] = data
        images.append(image)
    for path in study.masks.values():
        files[path] = read_bounded(inside(folder, path))
    return dataclasses.replace(study, images=tuple(images)), files


def _row(study: Study, number: int, files: Mapping[str, bytes]) -> dict[str, Any]:
    """The row of a study; everything besides `number` and bytes follows from the study."""
    sections = study.sections.to_json() if study.sections else dict.fromkeys(SECTIONS)
    return {
        "number": number,
        "id": study.id, "patient": study.patient, "prior": study.prior, "age": study.age, "sex": study.sex,
        "images": [{"bytes": files[image.path], "path": image.path} for image in study.images],
        "views": [None if image.view is None else str(image.view) for image in study.images],
        **sections, "report": study.report, "caption": study.caption,
        "labels": dumps(study.labels), "own_labels": dumps(study.own_labels),
        "exact_findings": None if study.findings is None else dumps(study.findings),
        "masks": [{"finding": finding, "image": {"bytes": files[path], "path": path}}
                  for finding, path in study.masks.items()],
        "study": dumps(study),
    }  # fmt: skip


@lru_cache(maxsize=1)
def _schema() -> pa.Schema:
    """The columns, with the metadata by which `datasets` knows which of them are images."""
    import pyarrow as pa

    picture = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    kinds = {
        "number": pa.int64(), **dict.fromkeys((*_TEXTS, *_JSON), pa.string()), "age": pa.float64(),
        "images": pa.list_(picture), "views": pa.list_(pa.string()),
        "masks": pa.list_(pa.struct({"finding": pa.string(), "image": picture})),
    }  # fmt: skip
    value, image = {"_type": "Value"}, {"_type": "Image"}
    features: dict[str, Any] = {name: {"dtype": "string", **value} for name in (*_TEXTS, *_JSON)}
    features |= {"number": {"dtype": "int64", **value}, "age": {"dtype": "float64", **value}}
    features |= {"images": [image], "views": [{"dtype": "string", **value}]}
    features |= {"masks": [{"finding": {"dtype": "string", **value}, "image": image}]}
    order = list(_row(Study("s", "p"), 0, {}))
    info = {"info": {"features": {name: features[name] for name in order}}}
    return pa.schema([(name, kinds[name]) for name in order], {b"huggingface": json.dumps(info).encode()})


_WARNING = """
> **These are patients' images and reports, unless you know otherwise.** Their licence holds for every copy, these
> shards included. Data that were given to you as a credentialed user (such as MIMIC-CXR) may be shared only with people
> who have signed the same agreement: do not upload this folder, not even to a private repository, without checking it.
"""


def data_set_card(card: Card, shards: list[Shard]) -> str:
    """The README.md by which `load_dataset` finds the splits, with what the corpus card states on source and licence."""
    counts: dict[str, int] = {}
    for shard in shards:
        counts[shard.split] = counts.get(shard.split, 0) + len(shard.offsets)
    files = "".join(f"  - split: {name}\n    path: {SHARDS}/{name}-*.parquet\n" for name in counts)
    table = "".join(f"| {name} | {count:,} |\n" for name, count in counts.items())
    stated = {"Source": card.source, "Licence": card.licence, "Citation": card.citation}
    origin = "\n\n".join(f"**{name}**: {' '.join(text.split()) or 'not stated'}" for name, text in stated.items())
    return (
        f"---\npretty_name: {json.dumps(card.name)}\nlicense: other\nconfigs:\n- config_name: default\n  data_files:\n"
        f"{files}---\n\n# {card.name}\n\nChest radiographs with reports, one row per study.\n"
        f"{'' if card.synthetic else _WARNING}\n{origin}\n\n| split | studies |\n|---|--:|\n{table}\n"
        '```python\nfrom datasets import load_dataset\n\nstudies = load_dataset("FOLDER", split='
        f'"{next(iter(counts))}", streaming=True)\n```\n\n'
        "`images` holds every view of a study and `views` what they are; `findings`, `impression` and so on are the "
        "sections of its report. `labels`, `own_labels`, `exact_findings` and `study` are JSON; a label that is missing "
        "is unknown, not negative. `study` is the whole record, `card.yaml` the card of the corpus: 'cxrlab data import "
        "parquet' makes the corpus from them again.\n"
    )


def import_parquet(root: Path, out: Path, workers: int = 0) -> Corpus:
    """Make the corpus again from its shards, images as files; studies are in their old order, with the old card.

    A column that disagrees with the record in `study` is an error: which of the two was meant is unknown.
    """
    require("tables")
    if not (root / CARD).is_file():
        raise DataError(
            f"{root} is no export of a corpus: it has no {CARD}. Other Parquet files: cxrlab data import table {root}"
        )
    if (root / UNFINISHED).exists():
        raise DataError(
            f"{root} is an export that is not finished; run 'cxrlab data export parquet' again, then import it."
        )
    shards = sorted(root.rglob("*.parquet"))
    if lost := _missing_shard(shards):
        raise DataError(f"{lost} is missing, which the names of the shards beside it count; fetch or export it again.")
    ids, groups, order = _read_index(root, shards)
    card = dataclasses.replace(read_card(root / CARD), counts={}, dropped={})
    recipe: Recipe[tuple[str, Path, int, int]] = Recipe(
        items=((ids[k], shards[groups[k, 0]], int(groups[k, 1]), int(groups[k, 2])) for k in order),
        ids=lambda item: (item[0],),
        make_studies=_read_study,
        label=f"importing {card.name}",
        total=len(ids),
        batch=_BATCH,
    )
    return build_corpus(out, card, recipe, workers)


def _missing_shard(shards: list[Path]) -> Path | None:
    """The first shard that others count: of `train-00001-of-00002.parquet`, `train-00000-of-00002.parquet`."""
    there = set(shards)
    for shard in shards:
        if numbered := re.fullmatch(r"(.*-)\d{5}-of-(\d{5})\.parquet", shard.name):
            names = (f"{numbered[1]}{k:05d}-of-{numbered[2]}.parquet" for k in range(int(numbered[2])))
            if lost := next((name for name in names if shard.with_name(name) not in there), None):
                return shard.with_name(lost)
    return None


def _read_index(root: Path, shards: list[Path]) -> tuple[list[str], Any, Any]:
    """Ids of all rows, [rows, 3] of shard, row group and row in it, and the rows in the order of the corpus."""
    ids: list[str] = []
    places: list[Any] = []
    numbers: list[Any] = []
    for at, shard in enumerate(shards):
        file = _open(shard)
        if missing := {"study", "id", "number", "images", "masks"} - set(file.schema_arrow.names):
            raise DataError(
                f"{shard} is no shard of an exported corpus: it has no column '{sorted(missing)[0]}'. Other Parquet "
                f"files: cxrlab data import table {root}"
            )
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, ["id", "number"])
            ids += table["id"].to_pylist()
            numbers.append(table["number"].to_numpy())
            places.append(np.array([(at, group, row) for row in range(len(table))]).reshape(-1, 3))
    if not ids:
        raise DataError(f"{root} holds no study: no *.parquet file with a row is in it.")
    # Stable: rows of a data set that others have changed keep their order where the numbers are equal.
    return ids, np.concatenate(places), np.argsort(np.concatenate(numbers), kind="stable")


def _open(shard: Path) -> Any:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(shard)
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{shard} is damaged or no Parquet file ({type(error).__name__}); write or fetch it again."
        ) from None


# One for each split: studies come in the order of the corpus, in which splits alternate.
@lru_cache(maxsize=len(SPLITS) + 1)
def _read_group(shard: Path, group: int) -> Any:
    return _open(shard).read_row_group(group)


def _read_study(item: tuple[str, Path, int, int]) -> list[NewStudy]:
    """One study with its files, from its row. Runs in a worker."""
    _, shard, group, at = item
    row = _read_group(shard, group).slice(at, 1).to_pylist()[0]
    place = f"{shard}, study '{row['id']}'"
    try:
        values = loads(str(row["study"]))
    except InvalidJson as error:
        raise DataError(f"{place}: the column 'study' is not valid JSON ({error}); export the corpus again.") from None
    study = parse_study(values, place)
    stored = [*row["images"], *(mask["image"] for mask in row["masks"])]
    files = {str(one["path"]): one["bytes"] for one in stored}
    if lost := [path for path in study_files(study) if not files.get(path)]:
        raise DataError(f"{place}: the bytes of {lost[0]} are not in the shard; export the corpus again.")
    expected = _row(study, row["number"], files)
    if changed := [name for name in expected if name in row and row[name] != expected[name]]:
        raise DataError(
            f"{place}: the column '{changed[0]}' differs from the record in 'study'; change both or neither."
        )
    return [NewStudy(study, {path: files[path] for path in study_files(study)})]
