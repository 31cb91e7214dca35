"""Pointing game on phantoms: how often the saliency map of a finding's words has its maximum inside the finding.

    python experiments/pointing_game.py --model builtin:reporter --n 4000

Every map is scored on the val split; the best map of attention there, chosen by its hits, is the one that is
reported on the test split, together with the fixed maps, which need no choice. Choosing a layer on the test split
would bias its score upwards. `--model untrained` is the control: random weights must stay at chance.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from cxrlab.core.terminal import silenced
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.evaluation.config import PointingConfig
from cxrlab.evaluation.pointing import Figure, PointingTable, pointing
from cxrlab.evaluation.saliency_maps import GRADIENTS, MAX_MEAN
from cxrlab.models.load_settings import LoadSettings

NAMED = (MAX_MEAN, *GRADIENTS)


def main() -> None:
    """Draw phantoms, choose a map on val, report on test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin:reporter", help="a model with weights here, or 'untrained'")
    parser.add_argument("--n", type=int, default=4000, help="phantoms; about a tenth is val and a tenth test")
    parser.add_argument("--size", type=int, default=128, help="pixels a side")
    parser.add_argument("--preset", default="standard", help="how the phantoms are drawn")
    parser.add_argument("--report", default="generated", choices=("generated", "reference"))
    parser.add_argument("--trials", type=int, default=1000, help="resamples behind an interval")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--kinds", action="store_true", help="the chosen map by kind of finding too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, silenced():
        place = Path(folder)
        drawn = PhantomConfig(n=given.n, size=given.size, preset=given.preset, seed=given.seed)
        corpus = make_phantom(drawn, place / "corpus")
        name = f"hf:{untrained(corpus, place / 'model')}" if given.model == "untrained" else given.model
        config = PointingConfig(
            name, corpus.path, "val", report=given.report, trials=given.trials, loading=LoadSettings(given.device)
        )
        every = pointing(config, place / "val")
        chosen = best_of_attention(every)
        maps = tuple(dict.fromkeys((chosen, *NAMED)))
        final = pointing(replace(config, split="test", maps=maps), place / "test")
    show(f"val, every map ({given.model}, {given.report} reports)", every)
    show(f"test; chosen on val: {chosen}", final)
    if given.kinds:
        show_kinds(final, chosen)


def best_of_attention(table: PointingTable) -> str:
    """The map of attention with the most hits on localised findings; the first of several."""
    names = [name for name in table.maps if name not in GRADIENTS]
    return max(names, key=lambda name: table.maps[name].localised["hit"].value)


def untrained(corpus: Corpus, folder: Path) -> Path:
    """A small LLaVA with random weights, whose tokenizer knows the corpus's words."""
    from cxrlab.models.random_init import (
        PHANTOM,
        assemble_llava,
        build_image_processor,
        build_language_model,
        build_vision_encoder,
        train_tokenizer,
    )

    size = replace(PHANTOM, vision_encoder=2, language=2, width=64, vocabulary=600)
    tokenizer = train_tokenizer((s.sections.findings or "" for s in corpus.studies() if s.sections), size.vocabulary)
    parts = (build_vision_encoder(size, 0), build_language_model(tokenizer, size, 1), tokenizer)
    model, processor = assemble_llava(*parts, build_image_processor(size.image), 2)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def show(title: str, table: PointingTable) -> None:
    """A table for the log: hits and mass on localised findings, hits on all."""
    print(f"\n{title}: {table.reported} of {table.present} findings reported, {table.studies} images\n")
    print("| map | hits, localised | chance | mass | area | n | hits, all | chance |")
    print("|---|---|---|---|---|---|---|---|")
    for name, row in table.maps.items():
        near, every = row.localised, row.all
        print(
            f"| {name} | {_ends(near['hit'])} | {near['chance'].value:.3f} | {near['mass'].value:.3f} "
            f"| {near['area'].value:.3f} | {near['hit'].n} | {_ends(every['hit'])} | {every['chance'].value:.3f} |"
        )


def show_kinds(table: PointingTable, name: str) -> None:
    """Hits of one map by kind of finding, best first."""
    print(f"\nhits of {name} by kind of finding\n\n| finding | hits | n |\n|---|---|---|")
    kinds = table.maps[name].by_observation
    for kind in sorted(kinds, key=lambda kind: -kinds[kind].value):
        print(f"| {kind} | {_ends(kinds[kind])} | {kinds[kind].n} |")


def _ends(figure: Figure) -> str:
    ends = f" ({figure.low:.3f} to {figure.high:.3f})" if figure.low == figure.low else ""
    return f"{figure.value:.3f}{ends}"


if __name__ == "__main__":
    main()
