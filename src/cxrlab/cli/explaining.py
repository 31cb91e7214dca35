"""`cxrlab explain` and `cxrlab pointing`: where a model looks when it writes a word."""

from __future__ import annotations

from pathlib import Path

from cxrlab.cli.result import Result, columns
from cxrlab.evaluation.config import ExplainConfig, PointingConfig


def explain(config: ExplainConfig, out: Path) -> Result:
    """Lay over an image where the model looked when it wrote a word, as pictures and as arrays.

    Attention is that of the position that emits the word, to the patches of the image; a gradient says on which
    pixels the word's probability hangs. RUN/explain holds a picture and the numbers of each word, RUN/words.png
    all of them on one page, RUN/explain.json what they are.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.evaluation.explain import explain as run

    done = run(config, out)
    lines = [(word.word, f"{len(word.spans)} x", out / word.picture) for word in done.words]
    count = "1 word" if len(done.words) == 1 else f"{len(done.words)} words"
    return Result(f"{columns(lines)}\n{count} explained; see {out}", done)


def pointing(config: PointingConfig, out: Path) -> Result:
    """Score maps against the exact masks of a corpus: does the hottest place lie on the finding that the word names?

    RUN/pointing.json gives for each map the share of hits with its interval by patient, beside what a random cell
    would hit, and the share of the map inside the mask beside the mask's share of the image.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.evaluation.pointing import pointing as run

    table = run(config, out)
    head = ("map", "hits", "95 % interval", "chance", "mass", "area", "findings")
    rows = [
        (
            name,
            f"{row.localised['hit'].value:.3f}",
            f"{row.localised['hit'].low:.3f} to {row.localised['hit'].high:.3f}",
            *(f"{row.localised[key].value:.3f}" for key in ("chance", "mass", "area")),
            row.localised["hit"].n,
        )
        for name, row in table.maps.items()
    ]
    note = (
        f"localised findings (mask at most {table.localised:.0%} of the image) that the {table.report} report tells: "
        f"{table.reported} of {table.present} findings on {table.studies} images are told"
    )
    return Result(f"{columns([head, *rows])}\n{note}", table)
