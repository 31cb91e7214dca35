"""Open a table for import: a file, or the folder of a Hugging Face data set (`save_to_disk`, Parquet, imagefolder)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_json, unreadable
from cxrlab.core.table_rows import Table, TableRow, arrow_rows, open_table
from cxrlab.data.corpus import check_inside
from cxrlab.data.table_columns import SPLIT_WORDS

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
FILE_NAME = "file_name"  # the column of an imagefolder's metadata that names the image
SPLIT = "split"  # the column that the names of folders and shards give
_SHARD = re.compile(r"(?P<split>[A-Za-z]+)(?:-\d+-of-\d+)?(?:-[0-9a-f]+)?")


def open_import_table(path: Path, sheet: str | None = None) -> Table:
    """The table of a file or folder. In a folder, the split that a folder or shard is named after becomes a column."""
    if not path.is_dir():
        return open_table(path, sheet)
    if sheet is not None:
        raise ConfigError(f"sheet={sheet!r} has no effect on a folder; only .xlsx files have sheets.")
    if (path / "dataset_dict.json").is_file():
        return _joined("datasets.save_to_disk", [(path / name, _saved(path / name), name) for name in _splits(path)])
    if (path / "state.json").is_file():
        return _joined("datasets.save_to_disk", [(path, _saved(path), None)])
    folders = [path, *sorted(entry for entry in path.iterdir() if entry.is_dir())]
    found = [next(filter(Path.is_file, (folder / name for name in METADATA)), None) for folder in folders]
    if tables := [file for file in found if file is not None]:
        return _joined(
            "imagefolder", [(file.parent, _image_folder(path, file), _split_of(file.parent.name)) for file in tables]
        )
    shards = sorted(path.rglob("*.parquet"))
    if shards:
        named = [(shard, open_table(shard), _split_of(shard.stem) or _split_of(shard.parent.name)) for shard in shards]
        return _joined("Parquet shards", named)
    raise DataError(
        f"{path} is a folder without a table; give a file, or a folder with dataset_dict.json, state.json, "
        f"{METADATA[0]}, {METADATA[1]} or *.parquet."
    )


def _splits(path: Path) -> list[str]:
    splits = read_json(path / "dataset_dict.json").get("splits")
    if not isinstance(splits, list) or not splits:
        raise DataError(f"{path / 'dataset_dict.json'} lists no splits; save the data set again.")
    return [str(name) for name in splits]


def _split_of(name: str) -> str | None:
    """The split in the name of a folder or shard (`train-00000-of-00003`), as it is written there."""
    match = _SHARD.fullmatch(name)
    return match["split"] if match and match["split"].lower() in SPLIT_WORDS else None


def _joined(kind: str, parts: list[tuple[Path, Table, str | None]]) -> Table:
    """Several tables as one; every part must have the same columns, and all of them a split or none."""
    columns = parts[0][1].columns
    for place, table, _ in parts:
        if set(table.columns) != set(columns):
            other = sorted(set(table.columns) ^ set(columns))[0]
            raise DataError(f"{place} and {parts[0][0]} have different columns (such as '{other}'); import them apart.")
    split = all(name is not None for _, _, name in parts) and SPLIT not in columns

    def rows() -> Iterator[TableRow]:
        for _, table, name in parts:
            for row in table.rows:
                yield TableRow(row.place, {**row.values, SPLIT: name}) if split else row

    files = tuple(file for _, table, _ in parts for file in table.files)
    return Table(kind, (*columns, SPLIT) if split else columns, rows(), files)


def _image_folder(root: Path, file: Path) -> Table:
    """The metadata of an imagefolder; its file names are relative to its own folder, and become so to the root."""
    table, prefix = open_table(file), file.parent.relative_to(root)
    named = [name for name in table.columns if name == FILE_NAME or name.endswith("_" + FILE_NAME)]

    def rows() -> Iterator[TableRow]:
        for row in table.rows:
            paths = {name: (prefix / str(row.values[name])).as_posix() for name in named if row.values.get(name)}
            yield TableRow(row.place, {**row.values, **paths})

    return Table(table.kind, table.columns, rows(), table.files)


def _saved(folder: Path) -> Table:
    """One split of `save_to_disk`: Arrow streams that state.json lists."""
    require("tables")
    import pyarrow as pa

    listed = read_json(folder / "state.json").get("_data_files")
    names = [str(one.get("filename")) for one in listed] if isinstance(listed, list) else []
    if not names:
        raise DataError(f"{folder / 'state.json'} lists no data files; save the data set again.")
    for name in names:
        check_inside(name)
    files = [folder / name for name in names]

    def opened(file: Path) -> Any:
        try:
            return pa.ipc.open_stream(pa.memory_map(str(file)))
        except OSError as error:
            raise unreadable(error, file) from error
        except pa.ArrowException as error:
            raise _damaged(file, error) from None

    def batches(file: Path) -> Iterator[Any]:
        try:
            yield from opened(file)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(file, error) from None

    def rows() -> Iterator[TableRow]:
        for file in files:
            yield from arrow_rows(batches(file), schema, file)

    schema = opened(files[0]).schema
    return Table("datasets.save_to_disk", tuple(schema.names), rows(), tuple(files))


def _damaged(file: Path, error: Exception) -> DataError:
    return DataError(f"{file} is damaged or no Arrow file ({type(error).__name__}); save the data set again.")
