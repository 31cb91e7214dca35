"""The command table: what a user may type, and where the function behind it lives.

Listing it imports nothing. A row's flags come from the signature of its function; the module is
imported when the command is run or asked for its help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Command:
    """One row.

    Args:
        help: One line for the list of commands.
        target: `"module:function"`.
        example: A command line that works.
        positional: Parameters of the function that are given without a flag, in order.
    """

    help: str
    target: str
    example: str
    positional: tuple[str, ...] = ()


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "tour": Command(
            "the whole chain on phantoms; ends with a page",
            "cxrlab.studies.tour:run_tour",
            "cxrlab tour --quick --out runs/tour",
        ),
        "study": Command(
            "a whole experiment from one file, such as the ablations",
            "cxrlab.studies.run_study:run_study",
            "cxrlab study configs/studies/ablations_phantom.yaml --quick --out runs/ablations",
            ("study",),
        ),
        "data ls": Command(
            "corpora that can be made, and those in a folder",
            "cxrlab.cli.data:list_corpora",
            "cxrlab data ls corpora",
            ("folder",),
        ),
        "data make phantom": Command(
            "synthetic chest radiographs with reports whose truth is known",
            "cxrlab.cli.data:make_phantom",
            "cxrlab data make phantom --n 1000 --size 224 --seed 7 --out corpora/phantom",
        ),
        "data make scenes": Command(
            "captioned pictures without any chest",
            "cxrlab.cli.data:make_scenes",
            "cxrlab data make scenes --n 1000 --size 128 --seed 7 --out corpora/scenes",
        ),
        "data about": Command(
            "what a data set holds, its licence, how to obtain it, its defects",
            "cxrlab.cli.data:tell_about",
            "cxrlab data about padchest",
            ("name",),
        ),
        "data import": Command(
            "a downloaded data set in its true format into a corpus",
            "cxrlab.cli.data:import_data",
            "cxrlab data import nih-cxr14 --root downloads/nih --out corpora/nih",
            ("name",),
        ),
        "data export": Command(
            "a corpus in the layout of a public data set",
            "cxrlab.cli.data:export",
            "cxrlab data export mimic-cxr corpora/phantom --out exported/phantom_as_mimic",
            ("layout", "corpus"),
        ),
        "data compose": Command(
            "one corpus out of several: merge, subset, filter; CXR-697K",
            "cxrlab.cli.data:compose",
            "cxrlab data compose --config configs/data/cxr697k.yaml --out corpora/cxr697k",
        ),
        "data structure": Command(
            "clean sections beside the source's text, by rules or a model",
            "cxrlab.cli.data:structure",
            "cxrlab data structure corpora/openi --model rules --out corpora/openi_structured",
            ("corpus",),
        ),
        "data show": Command(
            "a contact sheet with what is known under each image",
            "cxrlab.cli.data:show",
            "cxrlab data show corpora/phantom --n 40 --out sheet.png",
            ("corpus",),
        ),
        "data check": Command(
            "every defect of a corpus, and the corpus in numbers",
            "cxrlab.cli.data:check",
            "cxrlab data check corpora/phantom --out runs/phantom_card",
            ("corpus",),
        ),
        "data scrub": Command(
            "what in images may name a patient, told or taken out",
            "cxrlab.cli.data:scrub",
            "cxrlab data scrub downloads/images --blank --out runs/scrubbed",
            ("source",),
        ),
        "train encoder": Command(
            "stage 1: images and reports in one space, by contrast",
            "cxrlab.cli.training:train",
            "cxrlab train encoder --config configs/training/encoder_phantom.yaml --data corpora/phantom "
            "--out runs/encoder",
        ),
        "train align": Command(
            "stage 2: a projector between vision encoder and language model",
            "cxrlab.cli.training:align",
            "cxrlab train align --config configs/training/align_phantom.yaml --data corpora/phantom --out runs/align",
        ),
        "train finetune": Command(
            "stage 3: reports from image and indication, by adapters",
            "cxrlab.cli.training:finetune",
            "cxrlab train finetune --data corpora/phantom --start runs/align --out runs/finetune",
        ),
        "models ls": Command(
            "how to name a model, and the built-in ones",
            "cxrlab.models.names:list_models",
            "cxrlab models ls",
        ),
        "models merge": Command(
            "an adapter into the weights that it stands on",
            "cxrlab.cli.models:merge",
            "cxrlab models merge runs/finetune/checkpoint --out models/reporter",
            ("adapter",),
        ),
        "models convert": Command(
            "a published checkpoint's layout into that of transformers",
            "cxrlab.cli.models:convert",
            "cxrlab models convert open-clip downloads/biomedclip --out models/biomedclip",
            ("layout", "source"),
        ),
        "generate": Command(
            "write a report for every study of a split",
            "cxrlab.cli.evaluation:generate",
            "cxrlab generate --model stub:normal --data corpora/phantom --split test --out runs/normal",
        ),
        "read": Command(
            "findings of a report with the words that say them",
            "cxrlab.cli.reading:read",
            'cxrlab read "Small left effusion, no pneumothorax."',
            ("text",),
        ),
        "score": Command(
            "predictions against references, with intervals and floors",
            "cxrlab.cli.evaluation:score",
            "cxrlab score --references corpora/phantom --predictions runs/normal --out runs/normal_scored",
            ("references", "predictions"),
        ),
        "compare": Command(
            "scored runs, paired study by study; exit 1 when a gate fails",
            "cxrlab.cli.evaluation:compare",
            "cxrlab compare runs/normal_scored runs/retrieval_scored --noninferior findings.f1=0.02",
            ("runs",),
        ),
        "explain": Command(
            "where a model looked when it wrote a word, over the image",
            "cxrlab.cli.evaluation:explain",
            "cxrlab explain --model hf:runs/finetune/checkpoint --image image.png --word effusion --out runs/explained",
        ),
        "pointing": Command(
            "do those maps point at the finding? scored on exact masks",
            "cxrlab.cli.evaluation:pointing",
            "cxrlab pointing --model hf:runs/finetune/checkpoint --data corpora/phantom --n 200 --out runs/pointing",
        ),
        "metrics ls": Command(
            "every metric with direction, range and convention",
            "cxrlab.cli.evaluation:list_metrics",
            "cxrlab metrics ls",
        ),
        "metrics validate": Command(
            "the metrics against radiologists or known errors",
            "cxrlab.cli.evaluation:validate",
            "cxrlab metrics validate --benchmark phantom --n 500 --out runs/validation",
        ),
        "retrieve": Command(
            "images find their reports and reports their images; zero-shot",
            "cxrlab.cli.training:retrieve",
            "cxrlab retrieve --model hf:runs/encoder/checkpoint --data corpora/phantom --out runs/retrieval",
        ),
        "prefer sample": Command(
            "several drawn reports a study: candidates for a judge",
            "cxrlab.cli.preference:sample",
            "cxrlab prefer sample --model hf:runs/finetune/checkpoint --data corpora/phantom --out runs/candidates",
        ),
        "prefer judge": Command(
            "a reward for every candidate: a metric, a mix, or a comparison",
            "cxrlab.cli.preference:judge",
            "cxrlab prefer judge --candidates runs/candidates --data corpora/phantom --judge green:rules "
            "--out runs/rewards",
        ),
        "prefer pair": Command(
            "preference pairs from rewards, or from what people said",
            "cxrlab.cli.preference:pair",
            "cxrlab prefer pair --rewards runs/rewards --longest-ratio 1.2 --out runs/pairs",
        ),
        "prefer train": Command(
            "a model aligned by pairs; what that has gained and cost",
            "cxrlab.cli.preference:train",
            "cxrlab prefer train --config configs/preference/dpo_phantom.yaml --data corpora/phantom "
            "--pairs runs/pairs --start builtin:reporter --out runs/aligned",
        ),
        "harden": Command(
            "make a vision encoder harder to fool: adversarial fine-tuning",
            "cxrlab.cli.robustness:harden",
            "cxrlab harden --config configs/robustness/harden_phantom.yaml --data corpora/phantom "
            "--model builtin:reporter --out runs/hardened",
        ),
        "robustness": Command(
            "attack a model: accuracy and confidence, clean against perturbed",
            "cxrlab.cli.robustness:robustness",
            "cxrlab robustness --model builtin:reporter --data corpora/phantom --n 50 --attacks fgsm,pgd,noise "
            "--eps 1/255,2/255 --out runs/robustness",
        ),
        "extract": Command(
            "copy a model by queries: what it costs, how good the copy is",
            "cxrlab.cli.extraction:extract",
            "cxrlab extract --config configs/extraction/ada_steal_phantom.yaml --victim builtin:reporter "
            "--data corpora/phantom --out runs/ada_steal",
        ),
        "detect": Command(
            "would copying be noticed? detectors on what was asked",
            "cxrlab.cli.extraction:detect",
            "cxrlab detect runs/knockoff --benign corpora/phantom --out runs/detected",
            ("streams",),
        ),
        "defend": Command(
            "defences against copying: their cost, and who gets past them",
            "cxrlab.cli.extraction:defend",
            "cxrlab defend --victim builtin:reporter --data corpora/phantom --out runs/defended",
        ),
        "defend test-watermark": Command(
            "does a suspect's text carry the watermark?",
            "cxrlab.cli.extraction:test_watermark",
            "cxrlab defend test-watermark suspect/predictions.jsonl --key-file key.txt",
            ("suspect",),
        ),
        "serve": Command(
            "a model behind an OpenAI-compatible address, for this machine",
            "cxrlab.cli.serving:serve",
            "cxrlab serve --model builtin:reporter --port 8000",
        ),
        "serve rehearse": Command(
            "a server tried out here: who is answered, how fast, who is cut off",
            "cxrlab.cli.serving:rehearse",
            "cxrlab serve rehearse --model builtin:reporter --data corpora/phantom --out runs/rehearsed",
        ),
        "serve key": Command(
            "a key for somebody who may ask a server",
            "cxrlab.cli.serving:make_key",
            "cxrlab serve key clinic-a --keys keys.yaml",
            ("name",),
        ),
        "serve forgive": Command(
            "let an account ask again that a server's guard has stopped",
            "cxrlab.cli.serving:forgive",
            "cxrlab serve forgive clinic-a --out runs/serve",
            ("name",),
        ),
        "page": Command(
            "one HTML file from run folders",
            "cxrlab.render.page:write_page",
            "cxrlab page runs/normal --out page.html",
            ("runs",),
        ),
        "doctor": Command(
            "what is installed, what is missing, how to get it",
            "cxrlab.cli.doctor:doctor",
            "cxrlab doctor",
        ),
    }
)
