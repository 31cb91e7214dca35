"""LLaVA-Rad at its full size with random weights: convert, stage 2, stage 3, save, open again, generate.

    python benchmarks/llava_rad_7b.py --out DIR      one GPU of 80 GB, 50 GB of disk, about 7 minutes
    python benchmarks/llava_rad_7b.py --tiny         any machine: a check that it runs; the numbers mean nothing

Weights are random, in the files, names and sizes of the published checkpoints: Vicuna 7B v1.5 in float16, the LoRA and
projector of LLaVA-Rad, a ViT-B/14 at 518 px (1,369 image tokens). Images and reports are phantoms. Every step runs the
command that a user would run, with the settings of configs/training; only the number of steps is smaller.

Samples per second of a training are measured between its first and its last step, with the GPU synchronised at each;
loading and saving are in the column of seconds. GPU memory is the peak of torch's allocator, host memory the peak of
anonymous memory (without cached files), utilisation the mean of nvidia-smi while samples are processed.

The paper generates on one V100, which has 32 GB and no bfloat16. The step "generate, float16" runs with the allocator
limited to 31 GB and without the attention kernels that a V100 lacks. It fails if a log-probability is not finite.
"""

from __future__ import annotations

import argparse
import gc
import math
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))
from published_checkpoints import (
    SEVEN_BILLION,
    TINY,
    Sizes,
    llava_rad_folder,
    open_clip_folder,
    vicuna_tokenizer,
)

from cxrlab.cli.main import main as cxrlab
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.views import load_selected_image
from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.model import HfModel
from cxrlab.models.load_settings import LoadSettings
from cxrlab.training.run_folder import RunFolder

GB = 1e9
V100 = 31 * GB  # of 32: the rest is taken by CUDA itself
HEADER = "| step | seconds | samples | samples/s | GPU memory | host memory | utilisation | what was checked |"


@dataclass(frozen=True)
class Plan:
    """Sizes of the model and of the measurement.

    Args:
        sizes: Of the model.
        heads: Attention heads of the language model.
        vocabulary: Of the language model.
        context: Its positions.
        studies: Phantoms.
        batch: Samples per forward pass in stage 2, stage 3 and generation.
        accumulate: Forward passes per step in stage 2.
        steps: Of stage 2 and of stage 3.
        float16: Images in the float16 step.
        tokens: Longest report that is generated.
        rank: Of the adapters.
        precision: Of training.
    """

    sizes: Sizes
    heads: int
    vocabulary: int
    context: int
    studies: int
    batch: tuple[int, int, int]
    accumulate: int
    steps: tuple[int, int]
    float16: int
    tokens: int
    rank: int
    precision: str

    @property
    def image(self) -> int:
        """Side of the image in pixels."""
        return 14 * self.sizes.side


FULL = Plan(SEVEN_BILLION, 32, 32_000, 4096, 560, (32, 16, 32), 2, (6, 14), 8, 256, 64, "bfloat16")
SMALL = Plan(TINY, 2, 900, 512, 24, (4, 4, 4), 2, (2, 3), 2, 8, 4, "bfloat16")


@dataclass
class Meter:
    """Measures one step: time, memory, utilisation, and the moments at which samples were done.

    Args:
        name: Of the step.
        marks: (time, samples done) since the step began.
        checked: What the step showed, in words.
    """

    name: str
    marks: list[tuple[float, int]] = field(default_factory=list)
    checked: str = ""
    seconds: float = 0.0
    gpu: float = math.nan
    host: float = math.nan
    busy: list[tuple[float, float]] = field(default_factory=list)  # (time, utilisation in percent)

    def mark(self, samples: int) -> None:
        """Note that so many samples are done."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.marks.append((time.perf_counter(), samples))

    def row(self) -> str:
        """The row of the table."""
        done = rate = used = "–"
        if len(self.marks) > 1:
            (start, first), (end, last) = self.marks[0], self.marks[-1]
            done, rate = f"{last:,}", f"{(last - first) / (end - start):.2f}"
            within = [share for at, share in self.busy if start <= at <= end]
            used = f"{fmean(within):.0f} %" if within else "–"
        gpu = "–" if math.isnan(self.gpu) else f"{self.gpu / GB:.1f} GB"
        host = "–" if math.isnan(self.host) else f"{self.host / GB:.1f} GB"
        return f"| {self.name} | {self.seconds:.0f} | {done} | {rate} | {gpu} | {host} | {used} | {self.checked} |"


@contextmanager
def measured(name: str, rows: list[str], out: Path) -> Iterator[Meter]:
    """Measure a block, print its row and add it to OUT/table.md, so that a stopped run leaves what it has measured."""
    release()
    meter, stop = Meter(name), threading.Event()
    watchers = [threading.Thread(target=watch, args=(meter, stop), daemon=True) for watch in (watch_host, watch_gpu)]
    for watcher in watchers:
        watcher.start()
    start = time.perf_counter()
    print(f"{name} …", file=sys.stderr, flush=True)
    try:
        yield meter
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join()
    meter.seconds = time.perf_counter() - start
    if torch.cuda.is_available():
        meter.gpu = torch.cuda.max_memory_allocated()
    rows.append(meter.row())
    print(rows[-1], flush=True)
    (out / "table.md").write_text("\n".join(table(rows)) + "\n")


def release() -> None:
    """Free memory, and reset the peak of the GPU's."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def watch_host(meter: Meter, stop: threading.Event) -> None:
    """Follow the anonymous memory of this process; unknown without /proc."""
    status = Path("/proc/self/status")
    while status.is_file() and not stop.wait(0.05):
        line = next((line for line in status.read_text().splitlines() if line.startswith("RssAnon:")), None)
        if line is None:
            return
        meter.host = max(int(line.split()[1]) * 1024, 0 if math.isnan(meter.host) else meter.host)


def watch_gpu(meter: Meter, stop: threading.Event) -> None:
    """Follow the utilisation that nvidia-smi reports twice a second."""
    if not torch.cuda.is_available() or shutil.which("nvidia-smi") is None:
        return
    words = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-i", "0"]
    while not stop.wait(0.5):
        with suppress(ValueError, subprocess.SubprocessError):
            share = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True).stdout
            meter.busy.append((time.perf_counter(), float(share)))


def run(*words: object) -> None:
    """Run a command of cxrlab in this process; it must succeed."""
    given = [str(word) for word in words]
    print(f"cxrlab {' '.join(given)}", file=sys.stderr, flush=True)
    if code := cxrlab(given):
        raise SystemExit(f"'cxrlab {' '.join(given)}' ended with {code}")


@contextmanager
def marked_steps(meter: Meter) -> Iterator[None]:
    """Within it a training marks every step that it records."""
    record = RunFolder.record

    def marking(self: RunFolder, line: dict[str, Any]) -> None:
        meter.mark(int(line.get("samples", 0)))
        record(self, line)

    RunFolder.record = marking  # type: ignore[method-assign]
    try:
        yield
    finally:
        RunFolder.record = record  # type: ignore[method-assign]


def publish(folder: Path, plan: Plan, texts: list[str]) -> None:
    """Write the three published folders: Vicuna, the encoder, and LLaVA-Rad."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = vicuna_tokenizer("first", texts, plan.vocabulary - 256)
    config = LlamaConfig(
        vocab_size=plan.vocabulary,
        hidden_size=plan.sizes.width,
        intermediate_size=plan.sizes.inner,
        num_hidden_layers=plan.sizes.layers,
        num_attention_heads=plan.heads,
        max_position_embeddings=plan.context,
        rms_norm_eps=1e-5,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    before = torch.get_default_dtype()
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float16)
    try:
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    model.save_pretrained(folder / "vicuna", max_shard_size="5GB")
    tokenizer.save_pretrained(folder / "vicuna")
    open_clip_folder(folder / "biomedclip_cxr", sizes=plan.sizes)
    llava_rad_folder(folder / "llava_rad", plan.sizes, scale=0.02)


def stage(meter: Meter, command: str, batch: int, accumulate: int, steps: int, plan: Plan, *words: object) -> None:
    """Run a training with LLaVA-Rad's settings, but so many steps."""
    settings = {
        "batch-size": batch,
        "accumulate": accumulate,
        "steps": steps,
        "precision": plan.precision,
        "max-length": min(2048, plan.context),
        "log-every": 1,
        "workers": 8 if torch.cuda.is_available() else 0,
    }
    flags = [word for name, value in settings.items() for word in (f"--optimisation.{name}", value)]
    with marked_steps(meter):
        run("train", command, *words, "--cache-features", "off", "--optimisation.gradient-checkpointing", *flags)


@dataclass(frozen=True)
class Sample:
    """Images with their indications and reports."""

    images: list[np.ndarray]
    indications: list[str | None]
    reports: list[str]


def some_studies(corpus: Corpus, count: int) -> Sample:
    """The first studies of a corpus."""
    studies = [study for _, study in zip(range(count), corpus.studies(), strict=False)]
    images = [load_selected_image(corpus, study) for study in studies]
    sections = [study.sections for study in studies]
    return Sample(
        [np.asarray(image, np.float32) for image in images],
        [one.indication if one else None for one in sections],
        [(one.findings if one else None) or "The lungs are clear." for one in sections],
    )


def generate(meter: Meter, model: HfModel, studies: Sample, plan: Plan) -> None:
    """Generate twice, the first time to warm up; every answer must have a finite confidence."""
    decoding = Decoding(max_new_tokens=plan.tokens)
    for count in (0, len(studies.images)):
        answers = model.answers(studies.images, studies.indications, decoding)
        meter.mark(count)
    tokens = [answer.tokens or 0 for one in answers for answer in one]
    confidence = [answer.mean_logprob for one in answers for answer in one]
    if not all(value is not None and math.isfinite(value) for value in confidence):
        raise SystemExit(f"{meter.name}: a confidence is not finite: {confidence}")
    seconds = meter.marks[-1][0] - meter.marks[0][0]
    meter.checked = (
        f"{sum(tokens):,} tokens, {1000 * seconds / max(tokens):.0f} ms per step; confidences finite, mean "
        f"{fmean(value for value in confidence if value is not None):.2f}"
    )


def score(model: HfModel, studies: Sample) -> torch.Tensor:
    """Mean log-probability of each report, all of its tokens' finite."""
    with torch.no_grad():
        found = [
            model.log_probabilities([image], [report], [indication])
            for image, report, indication in zip(studies.images, studies.reports, studies.indications, strict=True)
        ]
    if not all(bool(one.values.isfinite().all()) for one in found):
        raise SystemExit("a log-probability is not finite")
    return torch.cat([one.means for one in found]).double().cpu()


@contextmanager
def v100() -> Iterator[None]:
    """Within it the GPU has the memory of a V100, and attention runs without the kernels of newer GPUs."""
    if not torch.cuda.is_available():
        yield
        return
    total = torch.cuda.get_device_properties(0).total_memory
    kernels = (torch.backends.cuda.enable_flash_sdp, torch.backends.cuda.enable_cudnn_sdp)
    torch.cuda.set_per_process_memory_fraction(min(1.0, V100 / total))
    for enable in kernels:
        enable(False)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        for enable in kernels:
            enable(True)


def table(rows: list[str]) -> list[str]:
    """The lines of the table, with the machine and versions above it."""
    import transformers

    where = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU"
    rule = "|---|" + "--:|" * 6 + "---|"
    return [f"{where}, torch {torch.__version__}, transformers {transformers.__version__}", "", HEADER, rule, *rows]


def experiment(plan: Plan, work: Path, out: Path) -> list[str]:
    """All steps in order; folders are removed as soon as no later step needs them."""
    rows: list[str] = []
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def step(name: str, block: Callable[[Meter], None]) -> None:
        with measured(name, rows, out) as meter:
            block(meter)

    def opened(path: Path, dtype: str) -> HfModel:
        return HfModel.load(str(path), loading=LoadSettings(device=device, dtype=dtype))  # type: ignore[arg-type]

    corpus = work / "phantom"
    run("data", "make", "phantom", "--n", plan.studies, "--size", plan.image, "--no-masks", "--out", corpus)
    texts = [
        text
        for study in load_corpus(corpus).studies()
        if study.sections
        for text in (study.sections.findings, study.sections.indication)
        if text
    ]
    studies = some_studies(load_corpus(corpus), plan.batch[2])
    few = Sample(*(part[: plan.float16] for part in (studies.images, studies.indications, studies.reports)))

    def write_published(meter: Meter) -> None:
        publish(work, plan, texts)
        size = sum(path.stat().st_size for path in work.rglob("*") if path.is_file() and corpus not in path.parents)
        meter.checked = f"{size / GB:.1f} GB"

    step("write random weights", write_published)
    step(
        "convert open-clip",
        lambda meter: run("models", "convert", "open-clip", work / "biomedclip_cxr", "--out", work / "encoder"),
    )
    converted = work / "converted"
    step(
        "convert llava-rad",
        lambda meter: run(
            "models", "convert", "llava-rad", work / "llava_rad", "--base", work / "vicuna", "--out", converted
        ),
    )
    scores: dict[str, torch.Tensor] = {}

    def generate_float16(meter: Meter) -> None:
        with v100():
            model = opened(converted, "float16")
            generate(meter, model, few, plan)
            scores["float16"] = score(model, few)

    def compare(meter: Meter) -> None:
        scores["float32"] = score(opened(converted, "float32"), few)
        worst = float((scores["float16"] - scores["float32"]).abs().max())
        meter.checked = f"mean log-probability {float(scores['float32'].mean()):.3f}; float16 differs by {worst:.0e}"

    step("generate, float16, 31 GB", generate_float16)
    step("score, float32", compare)
    shutil.rmtree(converted)
    parts = ("--encoder", f"hf:{work / 'encoder'}", "--language-model", f"hf:{work / 'vicuna'}")
    align, tuned = work / "align", work / "finetune"

    def stage2(meter: Meter) -> None:
        stage(meter, "align", plan.batch[0], plan.accumulate, plan.steps[0], plan, "--data", corpus, *parts,
              "--optimisation.learning-rate", 1e-3, "--out", align)  # fmt: skip
        meter.checked = losses(align)

    def stage3(meter: Meter) -> None:
        stage(meter, "finetune", plan.batch[1], 1, plan.steps[1], plan, "--data", corpus, "--start", align,
              "--lora-rank", plan.rank, "--conversation", "vicuna-v1", "--out", tuned)  # fmt: skip
        meter.checked = losses(tuned)

    step("stage 2: train align", stage2)
    shutil.rmtree(work / "vicuna")
    step("stage 3: train finetune", stage3)
    step(
        "open again, generate",
        lambda meter: generate(meter, opened(tuned / "checkpoint", "stored"), studies, plan),
    )
    return rows


def losses(folder: Path) -> str:
    """First and last loss of a training, and its longest sample."""
    from cxrlab.core.files import read_json
    from cxrlab.core.jsonl import read_jsonl

    found = [record["loss"] for _, record in read_jsonl(folder / "history.jsonl") if "loss" in record]
    if not all(math.isfinite(loss) for loss in found):
        raise SystemExit(f"{folder}: a loss is not finite: {found}")
    longest = read_json(folder / "summary.json")["extra"]["longest_sample"]
    return f"loss {found[0]:.3f} → {found[-1]:.3f}; at most {longest:,} tokens per sample"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, on any machine")
    parser.add_argument("--out", type=Path, help="folder for table.md; not written by default")
    parser.add_argument("--work", type=Path, help="folder for weights and runs, 50 GB; a temporary one by default")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        work = Path(folder)
        out = args.out or work
        out.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        rows = experiment(SMALL if args.tiny else FULL, work, out)
        print("\n".join(["", *table(rows), "", f"{time.perf_counter() - start:.0f} seconds in all"]))


if __name__ == "__main__":
    main()
