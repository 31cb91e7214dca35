"""`cxrlab leaderboard`: a table of models under one fixed protocol of attacks, to which anyone can add a row.

    protocol.yaml          the protocol, whose hash every row carries
    corpora/NAME           its corpus, where the protocol draws one
    audits/MODEL           the audit of each model; a stopped one continues
    rows/MODEL.json        one row per model, also those given with --rows
    leaderboard.json, leaderboard.md, leaderboard.html

A row of another protocol or of other images is refused: its figures could not be compared.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab import __version__
from cxrlab.core.atomic_folders import lock_folder
from cxrlab.core.config import parse_group, raise_problems, read_yaml
from cxrlab.core.egress import is_address
from cxrlab.core.environment import source_commit
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import make_folder, read_json, write_json, write_text
from cxrlab.core.json_values import dumps, plain
from cxrlab.core.tables import Column, Interval, Table
from cxrlab.models.load_settings import LoadSettings
from cxrlab.render import components
from cxrlab.render.metric_titles import direction, heading
from cxrlab.render.page import render_template
from cxrlab.robustness.audit_records import TRUTH_FILE, read_truth
from cxrlab.robustness.config import RobustnessConfig, parse_defended, parse_smoothed, undefended
from cxrlab.studies.corpora import corpus_folders, make_corpora

PROTOCOL = Path(__file__).parent / "leaderboard_protocol.yaml"
TABLE = "leaderboard"
FORMAT = 1  # of a row
USES_IMAGE, IGNORES_IMAGE = "uses_image", "ignores_image"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class LeaderboardConfig:
    """Models audited under one protocol.

    Args:
        protocol: YAML file of another protocol; the shipped one when left out.
        rows: Rows made elsewhere under the same protocol: files, or folders with rows/.
        batch_size: Images per batch; results are the same up to rounding.
        loading: How models are loaded.
    """

    protocol: Path | None = None
    rows: tuple[Path, ...] = ()
    batch_size: int = 16
    loading: LoadSettings = LoadSettings()


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What every model of a table is tested with. Nothing that changes a figure is left to a default.

    Args:
        name: Of the protocol.
        version: Raised whenever a setting, or what a setting means, changes.
        corpus: folder with the path of a corpus, or how to draw one: phantom with settings.
        audit: Settings of `cxrlab robustness`.
        metrics: Columns, on clean images and in the worst case of all attacks at each radius.
        rank_by: The metric that orders the table, in the worst case at the largest radius.
    """

    name: str
    version: int
    corpus: Mapping[str, Any]
    audit: Mapping[str, Any]
    metrics: tuple[str, ...]
    rank_by: str
    about: str = ""

    def __post_init__(self) -> None:
        if len(self.corpus) != 1:
            raise ConfigError("corpus has one key: folder, or a kind such as phantom with its settings.")
        if self.rank_by not in self.metrics or not direction(self.rank_by):
            raise ConfigError(f"rank_by='{self.rank_by}' is not one of the metrics that have a better direction.")

    @property
    def sha256(self) -> str:
        """The hash of every setting but the description."""
        values = {name: getattr(self, name) for name in ("name", "version", "corpus", "audit", "metrics", "rank_by")}
        return hashlib.sha256(dumps(plain(values)).encode()).hexdigest()

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.name} v{self.version}"


def read_protocol(file: Path | None = None) -> Protocol:
    """The protocol of a file, or the shipped one."""
    values, _ = read_yaml(file or PROTOCOL)
    found, problems = parse_group(Protocol, values, str(file or PROTOCOL))
    raise_problems(problems)
    assert found is not None
    reserved = ("model", "data", "versus", "batch_size", "loading")
    if taken := [name for name in reserved if name in found.audit]:
        raise ConfigError(f"{file or PROTOCOL}: audit has '{taken[0]}', which belongs to no protocol; leave it out.")
    return found


def make_leaderboard(models: Sequence[str], config: LeaderboardConfig, out: Path) -> dict[str, Any]:
    """Audit every model that has no row yet, add the rows of others, and write the table; returns its content."""
    protocol = read_protocol(config.protocol)
    for model in models:
        if is_address(model):
            raise ConfigError(
                f"'{model}' is behind an address and gives no gradients, which this protocol's attacks need; name weights."
            )
    if twice := [model for model in models if list(models).count(model) > 1]:
        raise ConfigError(f"'{twice[0]}' is named twice; name each model once.")
    corpora = {"corpus": protocol.corpus.get("folder", protocol.corpus)}
    data = corpus_folders(corpora, out / "corpora")["corpus"]
    given = [(file, read_row(file)) for file in row_files(config.rows)]
    if not models and not given and not (out / "rows").is_dir():
        raise ConfigError("there is neither a model nor a row; name models, or rows of others with --rows.")
    make_folder(out)
    with lock_folder(out):
        _keep_protocol(protocol, config.protocol, out)
        kept = {file: read_row(file) for file in row_files([out / "rows"])} if (out / "rows").is_dir() else {}
        for file, row in (*kept.items(), *given):
            check_row(row, protocol, file)
        _check_comparable([*kept.items(), *given])  # before an audit, and before a row is added that no table can hold
        for file, row in given:
            _add_row(row, kept, out, file)
        for model in models:
            make_corpora(corpora, {"corpus": data})
            row = _audited_row(model, protocol, config, data, out)
            file = out / "rows" / f"{slug(model)}.json"
            kept[file] = row
            _check_comparable(kept.items())
            write_json(file, row)
        return _write_table(protocol, list(kept.values()), out)


def _check_comparable(rows: Iterable[tuple[Path, Row]]) -> None:
    """Refuse rows of different images, or with other radii."""
    first: tuple[Path, Row] | None = None
    for file, row in rows:
        first = first or (file, row)
        if row["corpus_sha256"] != first[1]["corpus_sha256"]:
            raise DataError(f"the rows {first[0]} and {file} were measured on different images; audit the models anew.")
        if row["results"].keys() != first[1]["results"].keys():
            raise DataError(
                f"the rows {first[0]} and {file} have different results: {', '.join(first[1]['results'])} and "
                f"{', '.join(row['results'])}; one of the files was changed."
            )


def _keep_protocol(protocol: Protocol, file: Path | None, out: Path) -> None:
    """Copy the protocol beside the table; a folder holds one protocol."""
    kept = out / "protocol.yaml"
    if kept.is_file() and (before := read_protocol(kept)).sha256 != protocol.sha256:
        raise ConfigError(
            f"{out} is a table under the protocol {before.title} ({before.sha256[:12]}), not {protocol.title} "
            f"({protocol.sha256[:12]}); choose another folder with --out."
        )
    write_text(kept, (file or PROTOCOL).read_text(encoding="utf-8"))


def _audited_row(model: str, protocol: Protocol, config: LeaderboardConfig, data: Path, out: Path) -> dict[str, Any]:
    """Audit a model, or take its finished audit, and sum it up."""
    from cxrlab.data.corpus import load_corpus
    from cxrlab.robustness.audit import audit

    loading = plain(config.loading)
    settings = {
        **protocol.audit,
        "model": model,
        "data": str(data),
        "batch_size": config.batch_size,
        "loading": loading,
    }
    checked, problems = parse_group(RobustnessConfig, settings, f"audit of the protocol {protocol.title}")
    raise_problems(problems)
    assert checked is not None
    run = out / "audits" / slug(model)
    weights, kept = weights_hash(model), run.parent / f"{run.name}.weights"
    if kept.is_file() and kept.read_text(encoding="utf-8") != weights:
        raise DataError(
            f"the weights of '{model}' are others than those that its audit began with; copy them to a folder of another "
            f"name, or remove {run} and {kept} to audit them anew."
        )
    write_text(kept, weights)
    found = audit(checked, run)
    (result,) = found["models"].values()
    worst = {f"worst@{size}": row for size, row in result["worst"].items()}
    conditions = {"clean": result["clean"], **worst}
    attacks = sorted({name.partition("@")[0].partition(":")[0] for name in result["attacks"]})
    return dict(
        plain(
            {
                "format": FORMAT,
                "protocol": {"name": protocol.name, "version": protocol.version, "sha256": protocol.sha256},
                "corpus_sha256": corpus_hash(load_corpus(data), run / TRUTH_FILE),
                "model": model,
                "weights_sha256": weights,
                "cxrlab": __version__,
                "commit": source_commit(),
                "results": {
                    name: {metric: _figure(row.get(metric)) for metric in protocol.metrics}
                    for name, row in conditions.items()
                },
                "image_dependence": found["controls"]["image_dependence"].get("a", {}).get("verdict", "not tested"),
                "left_out": [name for name in checked.attacks if name not in attacks],
                "warnings": found["warnings"],
            }
        )
    )


def _figure(found: Any) -> dict[str, Any]:
    return {name: (found or {}).get(name) for name in ("value", "low", "high", "n")}


def slug(model: str) -> str:
    """A file name for a model: its last words, and a hash of the whole name."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", model).strip("-")[-40:].strip("-")
    return f"{words}-{hashlib.sha256(model.encode()).hexdigest()[:8]}"


def weights_hash(model: str) -> str:
    """The hash of every file of weights in a model's folder, by name and content."""
    from cxrlab.models.model_parts import folder_of

    folder, digest = folder_of(undefended(model)), hashlib.sha256()
    for word, defence in (("smoothed", parse_smoothed(model)), ("defended", parse_defended(model))):
        if defence:
            digest.update(f"{word} {defence[0]}".encode())
    for file in sorted(one for kind in ("*.safetensors", "*.bin") for one in folder.glob(kind)):
        digest.update(file.name.encode())
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def corpus_hash(corpus: Any, truth: Path) -> str:
    """The hash of what was audited: ids, labels, references and pixels in 8 bits."""
    import numpy as np

    digest = hashlib.sha256()
    for one in read_truth(truth):
        pixels = np.round(np.asarray(corpus.image(corpus[one.id]), np.float64) * 255).astype(np.uint8)
        digest.update(dumps(plain(one.to_json())).encode() + repr(pixels.shape).encode() + pixels.tobytes())
    return digest.hexdigest()


def row_files(given: Iterable[Path]) -> list[Path]:
    """Files of rows, from files and folders."""
    found: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = path / "rows" if (path / "rows").is_dir() else path
            if not (files := sorted(inside.glob("*.json"))):
                raise DataError(
                    f"{inside} has no row (*.json); name a file, or a folder written by 'cxrlab leaderboard'."
                )
            found += files
        else:
            found.append(path)
    return found


def read_row(file: Path) -> Row:
    """The row of a file."""
    row = read_json(file)
    if not isinstance(row, Mapping):
        raise DataError(f"{file} is not a row of 'cxrlab leaderboard': it is no mapping.")
    if row.get("format", FORMAT) != FORMAT:
        raise DataError(f"{file} is a row in format {row['format']}, and this program reads format {FORMAT}.")
    for name, kind in _FIELDS.items():
        if not isinstance(row.get(name), kind):
            what = "is of another type" if name in row else "is missing"
            raise DataError(f"{file} is not a row of 'cxrlab leaderboard': '{name}' {what}.")
    for condition, found in row["results"].items():
        figures = found.values() if isinstance(found, Mapping) else [found]
        if not all(isinstance(one, Mapping) and all(map(_is_figure, map(one.get, _ENDS))) for one in figures):
            raise DataError(f"{file}: the results of '{condition}' are not numbers with their intervals.")
    return row


_FIELDS: Mapping[str, type] = {
    "format": int, "protocol": Mapping, "corpus_sha256": str, "model": str, "weights_sha256": str, "results": Mapping,
}  # fmt: skip
_ENDS = ("value", "low", "high")


def _is_figure(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and math.isfinite(value))


def check_row(row: Row, protocol: Protocol, file: Path) -> None:
    """Refuse a row of another protocol."""
    own = row["protocol"]
    if own.get("sha256") != protocol.sha256:
        raise DataError(
            f"{file} is a row of the protocol {own.get('name')} v{own.get('version')} ({str(own.get('sha256'))[:12]}), not of "
            f"{protocol.title} ({protocol.sha256[:12]}); rows of two protocols cannot be compared. Give its file with "
            "--protocol, or audit the model anew."
        )
    for metric in protocol.metrics:
        if any(metric not in found for found in row["results"].values()):
            raise DataError(
                f"{file} has no {metric}, a metric of the protocol {protocol.title}; the file is incomplete."
            )


def _add_row(row: Row, kept: dict[Path, Row], out: Path, source: Path) -> None:
    """Copy a row of others; one with the same weights and other figures is refused."""
    for file, other in kept.items():
        if other["weights_sha256"] == row["weights_sha256"]:
            if other["results"] != row["results"]:
                raise DataError(
                    f"{source} has the weights of '{other['model']}' in {file} and other figures; remove one of the two files."
                )
            return
    file = out / "rows" / f"{slug(str(row['model']))}.json"
    if file.exists():  # another model of the same name
        file = file.with_name(f"{file.stem}-{str(row['weights_sha256'])[:8]}.json")
    write_json(file, row)
    kept[file] = row


def _write_table(protocol: Protocol, rows: Sequence[Row], out: Path) -> dict[str, Any]:
    """The ranked table as JSON, Markdown and HTML."""
    conditions = list(dict.fromkeys(name for row in rows for name in row["results"]))
    last = conditions[-1]
    sign = -1.0 if direction(protocol.rank_by) == "higher" else 1.0

    def place(row: Row) -> tuple[bool, float]:
        value = row["results"].get(last, {}).get(protocol.rank_by, {}).get("value")
        return (not is_ranked(row) or value is None, 0.0 if value is None else sign * value)

    ordered = sorted(rows, key=place)
    ranks = [1 + sum(place(other) < place(row) for other in rows) if is_ranked(row) else None for row in ordered]
    content = {
        "protocol": {
            "name": protocol.name,
            "version": protocol.version,
            "sha256": protocol.sha256,
            "about": protocol.about,
        },
        "corpus_sha256": rows[0]["corpus_sha256"],
        "rank_by": f"{protocol.rank_by} at {last}",
        "rows": [{"rank": rank, **row} for rank, row in zip(ranks, ordered, strict=True)],
    }
    write_json(out / f"{TABLE}.json", content)
    table = table_of(content, protocol)
    write_text(
        out / f"{TABLE}.md", f"# Robustness under {protocol.title}\n\n{_notes(content)}\n\n{table.to_markdown()}\n"
    )
    cells = [[components.Cell(text) for text in line] for line in table.cells()]
    shown = components.Table([column.name for column in table.readable_columns], cells, words=2)
    title = f"Robustness under {protocol.title}"
    section = {"table": shown, "notes": _notes(content)}
    page = render_template("page.html", title=title, lead=protocol.about, sections=[("leaderboard.html", section)])
    write_text(out / f"{TABLE}.html", page)
    return content


def is_ranked(row: Row) -> bool:
    """Whether a row has a rank: every attack was possible, and the model does not ignore its images."""
    return not row.get("left_out") and row.get("image_dependence") != IGNORES_IMAGE


def table_of(content: Mapping[str, Any], protocol: Protocol) -> Table:
    """One line per model."""
    metrics = protocol.metrics
    conditions = list(dict.fromkeys(name for row in content["rows"] for name in row["results"]))
    columns = [Column("rank"), Column("model")]
    columns += [Column(f"{heading(metric)}, {condition}") for metric in metrics for condition in conditions]
    columns += [Column("uses its image"), Column("weights"), Column("notes")]
    lines = []
    for row in content["rows"]:
        figures = [row["results"].get(condition, {}).get(metric, {}) for metric in metrics for condition in conditions]
        cells = [Interval(one.get("value"), one.get("low"), one.get("high")) for one in figures]
        verdict = {USES_IMAGE: "yes", IGNORES_IMAGE: "no"}.get(row.get("image_dependence"), "not shown")
        notes = [f"not possible: {', '.join(row['left_out'])}"] if row.get("left_out") else []
        weights = str(row["weights_sha256"])[:12]
        lines.append((row["rank"] or "–", row["model"], *cells, verdict, weights, "; ".join(notes)))
    return Table(tuple(columns), tuple(lines))


def _notes(content: Mapping[str, Any]) -> str:
    return (
        f"Ranked by {content['rank_by']}. Worst case of all attacks at each radius, white box on each model; intervals of "
        f"95 % by patient. A model that ignores its images, or that not every attack applies to, has no rank. Protocol "
        f"{content['protocol']['sha256'][:12]}, images {content['corpus_sha256'][:12]}."
    )
