"""Scores of the built-in models on held-out phantoms.

    python experiments/builtin_scores.py [--n 2000] [--encoder NAME=MODEL …] [--out runs/builtin_scores] [--rehearse]

Makes held-out images with the standard renderer and a quarter as many with the shifted one, generates reports, and
prints their scores, the F1 of every finding with its side, the seconds per hundred reports on the CPU, and the
retrieval recall of encoders in both directions: always one with random weights, and those given by name
(general=hf:runs/ablations_builtin/seed1/general-encoder/encoder/checkpoint). An interrupted run is resumed.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Any

from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.runs import state
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.evaluation.config import GenerateConfig, RetrieveConfig, ScoreConfig
from cxrlab.findings.reader import read
from cxrlab.models.decoding import Decoding
from cxrlab.models.load_settings import LoadSettings

METRICS = ("findings.f1.side", "findings.f1", "findings.f1.full", "green:rules", "rougeL:google")
PRESETS = {"standard": 1.0, "shifted": 0.25}  # renderer → share of the images
DRAWN = 12  # studies made per test study; the test split has one in ten on average
TIMED = 100  # reports


def main() -> None:
    """Make images, generate reports, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin:reporter")
    parser.add_argument("--encoder", action="append", default=[], metavar="NAME=MODEL")
    parser.add_argument("--n", type=int, default=2000, help="held-out images of the standard renderer")
    parser.add_argument("--out", type=Path, default=Path("runs/builtin_scores"))
    parser.add_argument("--seed", type=int, default=909)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rehearse", action="store_true", help="a few images without a model, to check that it runs")
    given = parser.parse_args()
    if given.rehearse:
        given.n, given.model = 8, "stub:normal"
    corpora = {preset: draw(preset, share, given) for preset, share in PRESETS.items()}
    runs = {preset: generate_and_score(preset, corpus, given) for preset, corpus in corpora.items()}
    print(f"| renderer | {' | '.join(METRICS)} | macro over kinds | least |")
    print("|---" * (len(METRICS) + 3) + "|")
    for preset, scored in runs.items():
        kinds = by_kind(corpora[preset], given.out / preset)
        metrics = read_json(scored / "scores.json")["metrics"]
        cells = " | ".join(_cell(metrics[name]) for name in METRICS)
        mean = sum(value for value, _ in kinds.values()) / max(1, len(kinds))
        least = min(kinds, key=lambda kind: kinds[kind][0], default="–")
        print(f"| {preset} | {cells} | {mean:.3f} | {least} {kinds[least][0] if kinds else 0:.3f} |")
    for preset, corpus in corpora.items():
        print(f"\n{preset}, F1 of finding and side\n\n| finding | F1 | reported or present |\n|---|---|---|")
        for kind, (value, count) in sorted(by_kind(corpus, given.out / preset).items(), key=lambda row: row[1]):
            print(f"| {kind} | {value:.3f} | {count} |")
    print(f"\n{TIMED} reports on the CPU: {seconds(corpora['standard'], given):.1f} s")
    print_retrieval(corpora["standard"], given)


def draw(preset: str, share: float, given: argparse.Namespace) -> Corpus:
    """A corpus whose test split has the requested number of images."""
    workers = 1 if given.rehearse else 0
    n = max(60, int(DRAWN * share * given.n))
    config = PhantomConfig(n=n, size=128, seed=given.seed, preset=preset, masks=False, workers=workers)
    return make_phantom(config, given.out / f"{preset}_images")


def generate_and_score(preset: str, corpus: Corpus, given: argparse.Namespace) -> Path:
    """Generate and score reports of the test split, control images included."""
    from cxrlab.evaluation.generate import generate
    from cxrlab.evaluation.score import run_score

    top: Path = given.out
    run, scored = top / preset, top / f"{preset}_scored"
    n = min(len(corpus.ids("test")), max(1, int(PRESETS[preset] * given.n)))
    if state(run) != "finished":
        settings = {"n": n, "batch_size": given.batch, "examples": 0, **_decoding(given.model)}
        generate(GenerateConfig(given.model, corpus.path, **settings), run)
    if state(scored) != "finished":
        run_score(ScoreConfig(references=corpus.path, predictions=run, allow_missing=True), scored)
    return scored


def by_kind(corpus: Corpus, run: Path) -> dict[str, tuple[float, int]]:
    """Finding → F1 of its statements with side, and their number in reports and references together."""
    hits: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for _, line in read_jsonl(run / "predictions.jsonl"):
        truth = Counter((one.observation, one.side) for one in corpus[str(line["id"])].findings or () if one.present)
        found = Counter((one.observation, one.side) for one in read(str(line["report"])) if one.present)
        for (kind, _), count in (truth & found).items():
            hits[kind] += count
        for (kind, _), count in (truth + found).items():
            total[kind] += count
    return {kind: (2 * hits[kind] / count, count) for kind, count in total.items()}


def seconds(corpus: Corpus, given: argparse.Namespace) -> float:
    """Seconds for a hundred reports on the CPU, loading the model included."""
    from cxrlab.core.terminal import silenced
    from cxrlab.evaluation.load_model import load_model

    start = time.perf_counter()
    model = load_model(given.model, LoadSettings("cpu"))
    studies = [study for study, _ in zip(corpus.studies(), range(TIMED), strict=False)]
    with silenced():
        for first in range(0, len(studies), 16):
            block = studies[first : first + 16]
            indications = [study.sections.indication if study.sections else None for study in block]
            model.generate([corpus.image(study) for study in block], indications)
    return time.perf_counter() - start


def print_retrieval(corpus: Corpus, given: argparse.Namespace) -> None:
    """Recall in both directions for every encoder, with chance and fixed_order retrieval."""
    from cxrlab.evaluation.retrieve import retrieve

    named = dict(pair.split("=", 1) for pair in given.encoder)
    encoders = {"untrained": f"hf:{untrained(given.out / 'untrained', given.seed)}", **named}
    if not given.rehearse:
        encoders["stage 1"] = "builtin:encoder"
    print(
        "\n| encoder | direction | recall@1 | recall@5 | recall@10 | chance@1 | fixed_order@1 |\n|---|---|---|---|---|---|---|"
    )
    for name, model in encoders.items():
        out = given.out / f"retrieval_{name.replace(' ', '_')}"
        if state(out) != "finished":
            n = min(len(corpus.ids("test")), given.n)
            config = RetrieveConfig(
                model, corpus.path, n=n, statements="present", zero_shot=None, batch_size=given.batch
            )
            retrieve(config, out)
        for direction, found in read_json(out / "retrieval.json")["recalls"].items():
            text = found["text"]
            cells = " | ".join(_cell(value) for value in text.values())
            first = next(iter(text.values()))
            print(f"| {name} | {direction} | {cells} | {first['chance']:.3f} | {first['fixed_order']:.3f} |")


def untrained(folder: Path, seed: int) -> Path:
    """An encoder of the built-in size with random weights."""
    from cxrlab.models.local_files import quiet_loading
    from cxrlab.models.model_parts import fresh_tokenizer
    from cxrlab.models.random_init import (
        PHANTOM,
        build_dual_encoder,
        build_image_processor,
        build_text_encoder,
        build_vision_encoder,
    )

    if not (folder / "config.json").is_file():
        tokenizer = fresh_tokenizer(PHANTOM)
        text = build_text_encoder(tokenizer, PHANTOM, seed)
        with quiet_loading():
            build_dual_encoder(build_vision_encoder(PHANTOM, seed), text, PHANTOM.shared, seed).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        build_image_processor(PHANTOM.image).save_pretrained(folder)
    return folder


def _decoding(model: str) -> dict[str, Any]:
    generates = model.startswith(("hf:", "builtin:"))  # the baselines have no decoding
    return {"decoding": Decoding(max_new_tokens=200)} if generates else {}


def _cell(value: Any) -> str:
    if value["value"] is None:
        return "–"
    ends = "" if value["low"] is None else f" [{value['low']:.3f}, {value['high']:.3f}]"
    return f"{value['value']:.3f}{ends}"


if __name__ == "__main__":
    main()
