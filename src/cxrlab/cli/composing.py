"""`cxrlab data compose`: one corpus out of several."""

from __future__ import annotations

from pathlib import Path

from cxrlab.cli.result import Result
from cxrlab.core.errors import ConfigError
from cxrlab.data.config import ComposeConfig


def compose(config: ComposeConfig, out: Path | None = None, dry_run: bool = False) -> Result:
    """Merge corpora, or parts of them, into one: filters and subsets as a tree, with a table of what was taken.

    Images are reached through links. A patient in two splits is an error. An interrupted composition is completed by
    running the command again.

    Args:
        config: Settings.
        out: Folder of the new corpus.
        dry_run: Print the tree and the table, write nothing.
    """
    from cxrlab.data.composing import as_text, compose_corpus, plan

    if out is None and not dry_run:
        raise ConfigError("--out is missing; name the folder of the new corpus, or give --dry-run to look first.")
    composition = plan(config)
    text = "\n".join([*composition.lines, "", as_text(composition.rows), *composition.notes])
    data: dict[str, object] = {
        "tree": composition.lines,
        "table": composition.rows,
        "notes": composition.notes,
        "path": None,
    }
    if out is not None and not dry_run:
        corpus = compose_corpus(composition, out)
        text += f"\n\n{len(composition.seen.ids):,} studies in {corpus.path}"
        data |= {"path": corpus.path, "counts": corpus.card.counts, "remarks": corpus.card.remarks}
    return Result(text, data)
