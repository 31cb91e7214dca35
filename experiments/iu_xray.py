"""All three stages on real images: the IU X-ray corpus, from the built-in starts.

    cxrlab data import iu-xray --root FOLDER --out corpora/iu_xray
    python experiments/iu_xray.py --data corpora/iu_xray [--out runs/iu_xray] [--rehearse]

Trains on the train split, generates and scores reports for val, and prints aggregates only: the trained model, the
model before training on real images, the nearest training image and the constant report, each with its interval and its
image dependence. Minutes on a GPU. An interrupted run is resumed.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from cxrlab.core.files import read_json
from cxrlab.core.runs import state
from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.evaluation.config import GenerateConfig, RetrieveConfig, ScoreConfig
from cxrlab.models.decoding import Decoding
from cxrlab.training.config import AlignConfig, EncoderConfig, FinetuneConfig, Optimisation

METRICS = ("findings.f1.side", "findings.f1", "chexpert14.micro.f1:uncertain-positive", "bleu4:coco", "rougeL:coco")
COMMON = Optimisation(batch_size=64, precision="bfloat16", max_length=512, save_every=500, log_every=20)
STAGE_1 = replace(COMMON, learning_rate=2e-4, warmup=0.1, weight_decay=0.1, epochs=40, batch_size=256,
                  max_length=160, group_by_length=False)  # fmt: skip
STAGE_2 = replace(COMMON, learning_rate=1e-3, epochs=3)
STAGE_3 = replace(COMMON, learning_rate=1e-3, epochs=12)


def main() -> None:
    """Train, generate, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the imported corpus; --rehearse uses phantoms by default")
    parser.add_argument("--out", type=Path, default=Path("runs/iu_xray"))
    parser.add_argument("--encoder", default="builtin:encoder")
    parser.add_argument("--language-model", default="builtin:general")
    parser.add_argument("--before", default="builtin:reporter", help="the model before training on real images")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rehearse", action="store_true", help="a few steps and studies, to check that it runs")
    given = parser.parse_args()
    if given.data is None:
        if not given.rehearse:
            parser.error("give --data, the imported corpus")
        given.data = given.out / "phantoms"
        make_phantom(PhantomConfig(n=60, size=64, seed=given.seed, masks=False, workers=1), given.data)
    trained = train(given)
    models = {
        "trained": f"hf:{trained}",
        "before": given.before,
        "nearest": f"retrieval:{given.data}",
        "constant": "stub:normal",
    }
    for name, model in models.items():
        generate_and_score(name, model, given)
    print_table(list(models), given.out)
    print_retrieval(given)


def train(given: argparse.Namespace) -> Path:
    """The adapter folder after three stages."""
    from cxrlab.training.align_finetune import align, finetune
    from cxrlab.training.encoder import train_encoder

    def adjusted(settings: Optimisation) -> Optimisation:
        few = {"steps": 2, "batch_size": 4, "precision": "float32"} if given.rehearse else {}
        return replace(settings, seed=given.seed, **few)

    data, out = given.data, given.out
    cache = out / "cache"
    fresh = given.encoder.startswith("fresh:")
    parts = {"vision_encoder": given.encoder, "text_encoder": given.encoder} if fresh else {"start": given.encoder}
    train_encoder(
        EncoderConfig(data, **parts, statements="present", optimisation=adjusted(STAGE_1), cache=cache), out / "encoder"
    )
    vision_encoder = f"hf:{out / 'encoder' / 'checkpoint'}"
    align(
        AlignConfig(
            data,
            encoder=vision_encoder,
            language_model=given.language_model,
            optimisation=adjusted(STAGE_2),
            cache=cache,
        ),
        out / "align",
    )
    finetune(
        FinetuneConfig(
            data, start=str(out / "align"), lora_rank=32, lora_alpha=64.0, optimisation=adjusted(STAGE_3), cache=cache
        ),
        out / "finetune",
    )
    return out / "finetune" / "checkpoint"


def generate_and_score(name: str, model: str, given: argparse.Namespace) -> None:
    """Generate and score one model's reports for val, control images included."""
    from cxrlab.evaluation.generate import generate
    from cxrlab.evaluation.score import run_score

    run, scored = given.out / name, given.out / f"{name}_scored"
    n = 4 if given.rehearse else None
    if state(run) != "finished":
        generates = model.startswith(("hf:", "builtin:"))  # the baselines have no decoding
        decoding = Decoding(max_new_tokens=8 if given.rehearse else 160) if generates else Decoding()
        controls = 4 if given.rehearse else 296
        generate(
            GenerateConfig(
                model, given.data, split="val", n=n, batch_size=64, examples=0, decoding=decoding,
                control_studies=controls, allow_missing=True,
            ),
            run,
        )  # fmt: skip
    if state(scored) != "finished":
        run_score(ScoreConfig(references=given.data, predictions=run, allow_missing=n is None), scored)


def print_table(names: list[str], out: Path) -> None:
    """Print every model with its intervals, then its image dependence."""
    print("| model | " + " | ".join(METRICS) + " |")
    print("|---" * (len(METRICS) + 1) + "|")
    for name in names:
        metrics = read_json(out / f"{name}_scored" / "scores.json")["metrics"]
        print(f"| {name} | " + " | ".join(_cell(metrics.get(metric)) for metric in METRICS) + " |")
    for name in names:
        control = read_json(out / f"{name}_scored" / "scores.json")["controls"].get("image_dependence", {})
        print(f"image dependence, {name}: {control.get('verdict', 'not measured')}")


def print_retrieval(given: argparse.Namespace) -> None:
    """Print retrieval recall in both directions on val, before and after stage 1 on real images."""
    from cxrlab.evaluation.retrieve import retrieve

    encoders = {"before": given.encoder, "after": f"hf:{given.out / 'encoder' / 'checkpoint'}"}
    if given.encoder.startswith("fresh:"):
        del encoders["before"]  # its encoders are not aligned
    for name, model in encoders.items():
        out = given.out / f"retrieval_{name}"
        if state(out) != "finished":
            # The same statements as in stage 1. No zero-shot classification: this corpus has no labels.
            config = RetrieveConfig(model, given.data, split="val", statements="present", zero_shot=None)
            retrieve(replace(config, allow_missing=True), out)
        for direction, found in read_json(out / "retrieval.json")["recalls"].items():
            cells = ", ".join(
                f"{k} {_cell(value)} (fixed order {value['fixed_order']:.3f})" for k, value in found["text"].items()
            )
            print(f"retrieval {name} stage 1, {direction}: {cells}")


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


if __name__ == "__main__":
    main()
