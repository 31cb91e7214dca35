"""The command table: every command, its function and an example.

Importing it imports no function: the module of a row is imported when the command runs or prints its help. The flags
come from the signature of the function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Command:
    """One row."""

    help: str  # For the list of commands
    target: str  # "module:function"
    example: str  # A command line that works
    positional: tuple[str, ...] = ()  # Parameters of the function that are given without a flag, in order
    tables: bool = False  # Whether the result holds tables, which --format prints as CSV, Markdown or LaTeX


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "tour": Command(
            "run the whole chain on phantoms and make a page",
            "cxrlab.studies.tour:run_tour",
            "cxrlab tour --quick --out runs/tour",
        ),
        "study": Command(
            "run a whole experiment from one file, such as the ablations",
            "cxrlab.cli.training:study",
            "cxrlab study configs/studies/ablations_phantom.yaml --quick --out runs/ablations",
            ("study",),
        ),
        "data ls": Command(
            "list corpora: those that can be made, and those in a folder",
            "cxrlab.cli.data:list_corpora",
            "cxrlab data ls corpora",
            ("folder",),
        ),
        "data make phantom": Command(
            "make synthetic chest radiographs with reports and exact findings",
            "cxrlab.cli.data:make_phantom",
            "cxrlab data make phantom --n 1000 --size 224 --seed 7 --out corpora/phantom",
        ),
        "data make scenes": Command(
            "make captioned images without any chest",
            "cxrlab.cli.data:make_scenes",
            "cxrlab data make scenes --n 1000 --size 128 --seed 7 --out corpora/scenes",
        ),
        "data about": Command(
            "describe a data set: contents, licence, how to obtain it, defects",
            "cxrlab.cli.data:about",
            "cxrlab data about padchest",
            ("name",),
        ),
        "data import": Command(
            "convert a downloaded data set in its original format into a corpus",
            "cxrlab.cli.data:import_data",
            "cxrlab data import nih-cxr14 --root downloads/nih --out corpora/nih",
            ("name",),
        ),
        "data import table": Command(
            "import a table of image paths and reports: CSV, Excel, JSON, Parquet",
            "cxrlab.cli.own_data:import_table",
            "cxrlab data import table reports.xlsx --images scans --columns auto --out corpora/mine",
            ("table",),
        ),
        "data import dicom": Command(
            "import a folder of DICOM images, with reports from a table or DICOM",
            "cxrlab.cli.own_data:import_dicom",
            "cxrlab data import dicom --root scans --reports reports.csv --columns auto --out corpora/mine",
        ),
        "data import parquet": Command(
            "make a corpus again from Parquet shards of 'data export parquet'",
            "cxrlab.cli.own_data:import_parquet",
            "cxrlab data import parquet --root exported/phantom_shards --out corpora/phantom_again",
        ),
        "data card": Command(
            "write or complete the card of a corpus",
            "cxrlab.cli.own_data:write_card",
            "cxrlab data card corpora/mine --name mine --licence 'internal use'",
            ("corpus",),
        ),
        "data export": Command(
            "write a corpus in a public data set's layout, or as Parquet shards",
            "cxrlab.cli.data:export",
            "cxrlab data export mimic-cxr corpora/phantom --out exported/phantom_as_mimic",
            ("layout", "corpus"),
        ),
        "data compose": Command(
            "merge, subset and filter corpora into one, such as CXR-697K",
            "cxrlab.cli.data:compose",
            "cxrlab data compose --config configs/llava_rad/02_compose_cxr697k.yaml --out corpora/cxr697k",
        ),
        "data structure": Command(
            "add structured sections beside the source's text, by rules or a model",
            "cxrlab.cli.data:structure",
            "cxrlab data structure corpora/openi --model rules --out corpora/openi_structured",
            ("corpus",),
        ),
        "data show": Command(
            "draw a contact sheet with what is known about each image",
            "cxrlab.cli.data:show",
            "cxrlab data show corpora/phantom --n 40 --out sheet.png",
            ("corpus",),
        ),
        "data check": Command(
            "find every defect of a corpus and compute its statistics",
            "cxrlab.cli.data:check",
            "cxrlab data check corpora/phantom --out runs/phantom_card",
            ("corpus",),
        ),
        "data scrub": Command(
            "find or remove what may identify a patient in images",
            "cxrlab.cli.data:scrub",
            "cxrlab data scrub downloads/images --blank --out runs/scrubbed",
            ("source",),
        ),
        "train encoder": Command(
            "stage 1: train image and text encoders contrastively",
            "cxrlab.cli.training:train",
            "cxrlab train encoder --config configs/training/encoder_phantom.yaml --data corpora/phantom "
            "--out runs/encoder",
        ),
        "train align": Command(
            "stage 2: train a projector between vision encoder and language model",
            "cxrlab.cli.training:align",
            "cxrlab train align --config configs/training/align_phantom.yaml --data corpora/phantom --out runs/align",
        ),
        "train finetune": Command(
            "stage 3: train the language model on reports, by adapters",
            "cxrlab.cli.training:finetune",
            "cxrlab train finetune --data corpora/phantom --start runs/align --out runs/finetune",
        ),
        "models ls": Command(
            "list the built-in models, and how models are named",
            "cxrlab.models.model_registry:list_models",
            "cxrlab models ls",
        ),
        "models merge": Command(
            "merge an adapter into the weights of its base model",
            "cxrlab.cli.models:merge",
            "cxrlab models merge runs/finetune/checkpoint --out models/reporter",
            ("adapter",),
        ),
        "models convert": Command(
            "convert a published checkpoint for transformers",
            "cxrlab.cli.models:convert",
            "cxrlab models convert open-clip downloads/biomedclip --out models/biomedclip",
            ("layout", "source"),
        ),
        "generate": Command(
            "generate a report for every study of a split",
            "cxrlab.cli.evaluation:generate",
            "cxrlab generate --model stub:normal --data corpora/phantom --split test --out runs/normal",
        ),
        "read": Command(
            "list the findings of a report with the words that state them",
            "cxrlab.cli.read:read",
            'cxrlab read "Small left effusion, no pneumothorax."',
            ("text",),
        ),
        "score": Command(
            "score predictions against references, with intervals and controls",
            "cxrlab.cli.evaluation:score",
            "cxrlab score --references corpora/phantom --predictions runs/normal --out runs/normal_scored",
            ("references", "predictions"),
            tables=True,
        ),
        "certify": Command(
            "test whether predictions are what they claim; exit 1 when not",
            "cxrlab.cli.evaluation:certify",
            "cxrlab certify predictions.csv --references corpora/openi --training corpora/openi --out runs/certified",
            ("predictions",),
            tables=True,
        ),
        "compare": Command(
            "compare scored runs study by study; exit 1 when a gate fails",
            "cxrlab.cli.evaluation:compare",
            "cxrlab compare runs/normal_scored runs/retrieval_scored --noninferior findings.f1=0.02",
            ("runs",),
            tables=True,
        ),
        "explain": Command(
            "draw attention and gradient maps of a word over the image",
            "cxrlab.cli.evaluation:explain",
            "cxrlab explain --model hf:runs/finetune/checkpoint --image image.png --word effusion --out runs/explained",
        ),
        "pointing": Command(
            "score such maps against exact masks (pointing game)",
            "cxrlab.cli.evaluation:pointing",
            "cxrlab pointing --model hf:runs/finetune/checkpoint --data corpora/phantom --n 200 --out runs/pointing",
            tables=True,
        ),
        "metrics ls": Command(
            "list every metric with direction, range and convention",
            "cxrlab.cli.evaluation:list_metrics",
            "cxrlab metrics ls",
            tables=True,
        ),
        "metrics validate": Command(
            "validate the metrics against radiologists or known errors",
            "cxrlab.cli.evaluation:validate",
            "cxrlab metrics validate --benchmark phantom --n 500 --out runs/validation",
            tables=True,
        ),
        "retrieve": Command(
            "measure retrieval between images and reports, and zero-shot labels",
            "cxrlab.cli.training:retrieve",
            "cxrlab retrieve --model hf:runs/encoder/checkpoint --data corpora/phantom --out runs/retrieval",
        ),
        "classify": Command(
            "measure which observations an encoder finds in images",
            "cxrlab.cli.training:classify",
            "cxrlab classify --model hf:runs/findings/best --data corpora/phantom --out runs/classified",
        ),
        "prefer sample": Command(
            "generate several candidate reports per study",
            "cxrlab.cli.preference:sample",
            "cxrlab prefer sample --model hf:runs/finetune/checkpoint --data corpora/phantom --out runs/candidates",
        ),
        "prefer judge": Command(
            "give every candidate a reward: a metric, a mix, or a comparison",
            "cxrlab.cli.preference:judge",
            "cxrlab prefer judge --candidates runs/candidates --data corpora/phantom --judge green:rules "
            "--out runs/rewards",
        ),
        "prefer pair": Command(
            "make preference pairs from rewards or from readers' choices",
            "cxrlab.cli.preference:pair",
            "cxrlab prefer pair --rewards runs/rewards --longest-ratio 1.2 --out runs/pairs",
        ),
        "prefer train": Command(
            "align a model with pairs, and measure gain and cost",
            "cxrlab.cli.preference:train",
            "cxrlab prefer train --config configs/preference/dpo_phantom.yaml --data corpora/phantom "
            "--pairs runs/pairs --start builtin:reporter --out runs/aligned",
        ),
        "harden": Command(
            "fine-tune a vision encoder on attacked images for robustness",
            "cxrlab.cli.robustness:harden",
            "cxrlab harden --config configs/robustness/harden_phantom.yaml --data corpora/phantom "
            "--model builtin:reporter --out runs/hardened",
        ),
        "robustness": Command(
            "attack a model's images: reports and answers, clean and perturbed",
            "cxrlab.cli.robustness:robustness",
            "cxrlab robustness --model builtin:reporter --data corpora/phantom --n 50 --attacks fgsm,pgd,noise "
            "--eps 1/255,2/255 --out runs/robustness",
        ),
        "leaderboard": Command(
            "rank models by robustness under one fixed protocol of attacks",
            "cxrlab.cli.robustness:leaderboard",
            "cxrlab leaderboard builtin:reporter hf:runs/hardened/checkpoint --out runs/leaderboard",
            ("models",),
            tables=True,
        ),
        "extract": Command(
            "copy a model by queries: cost, and quality of the copy",
            "cxrlab.cli.extraction:extract",
            "cxrlab extract --config configs/extraction/ada_steal_phantom.yaml --victim builtin:reporter "
            "--data corpora/phantom --out runs/ada_steal",
        ),
        "detect": Command(
            "run detectors of copying on recorded queries",
            "cxrlab.cli.extraction:detect",
            "cxrlab detect runs/knockoff --benign corpora/phantom --out runs/detected",
            ("streams",),
        ),
        "defend": Command(
            "test defences against copying: their cost and their effect",
            "cxrlab.cli.extraction:defend",
            "cxrlab defend --victim builtin:reporter --data corpora/phantom --out runs/defended",
        ),
        "defend test-watermark": Command(
            "test whether a suspect's reports carry the watermark",
            "cxrlab.cli.extraction:test_watermark",
            "cxrlab defend test-watermark suspect/predictions.jsonl --key-file key.txt",
            ("suspect",),
        ),
        "serve": Command(
            "serve a model through an OpenAI-compatible API",
            "cxrlab.cli.serving:serve",
            "cxrlab serve --model builtin:reporter --port 8000",
        ),
        "serve rehearse": Command(
            "test a server here: benign answers, speed, blocked attackers",
            "cxrlab.cli.serving:rehearse",
            "cxrlab serve rehearse --model builtin:reporter --data corpora/phantom --out runs/rehearsed",
        ),
        "serve key": Command(
            "make a key for an account of a server",
            "cxrlab.cli.serving:make_key",
            "cxrlab serve key clinic-a --keys keys.yaml",
            ("name",),
        ),
        "serve unblock": Command(
            "unblock an account that a server's guard has blocked",
            "cxrlab.cli.serving:unblock",
            "cxrlab serve unblock clinic-a --out runs/serve",
            ("name",),
        ),
        "page": Command(
            "make one HTML file from run folders",
            "cxrlab.render.page:write_page",
            "cxrlab page runs/normal --out page.html",
            ("runs",),
        ),
        "completion": Command(
            "print a script that completes commands, flags and values in a shell",
            "cxrlab.cli.completion:completion",
            "cxrlab completion bash",
            ("shell",),
        ),
        "doctor": Command(
            "show what is installed, what is missing, how to get it", "cxrlab.cli.doctor:doctor", "cxrlab doctor"
        ),
    }
)
