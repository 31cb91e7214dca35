"""Models as an audit sees them: what they say of films, and what may be asked of them by an attack.

ReportTarget    open weights that write reports and answer closed questions
EncoderTarget   a contrastive encoder: zero-shot classes, no reports
WordsTarget     anything that gives words alone; only black-box attacks reach it
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cxrlab.attacks.objective import Objective
from cxrlab.attacks.objectives import MoveEmbedding, RaiseReportLoss, ReportHarm, WrongAnswers
from cxrlab.core.errors import ConfigError
from cxrlab.evaluation.answering import Writer
from cxrlab.evaluation.zero_shot import load_sentences, mean_direction
from cxrlab.findings.reader import read
from cxrlab.robustness.evidence import FilmAnswer
from cxrlab.robustness.labels import AskedLabel, labels_in
from cxrlab.robustness.wished_reports import wished
from cxrlab.robustness.wishes import ANSWERS, BY_WISH, REPORT, Wishes

if TYPE_CHECKING:
    from cxrlab.core.protocols import Generated
    from cxrlab.models.decoding import Decoding
    from cxrlab.models.dual_encoder import DualEncoder
    from cxrlab.models.hf.wrapper import HfModel
    from cxrlab.models.loading import Loading
    from cxrlab.robustness.cases import Case


class Target(ABC):
    """One model under audit.

    Args:
        key: Its short name in the evidence: a, b, …
        name: As the user wrote it.
        labels: What is asked about.
    """

    gradients = True
    scores = True
    writes_reports = True
    aims: tuple[str, ...] = ()

    def __init__(self, key: str, name: str, labels: Sequence[AskedLabel]) -> None:
        self.key, self.name, self.labels = key, name, tuple(labels)

    @property
    def device(self) -> torch.device:
        """Where films have to be."""
        return torch.device("cpu")

    @abstractmethod
    def examine(self, films: Tensor, cases: Sequence[Case]) -> list[FilmAnswer]:
        """What the model says of each film.

        Args:
            films: [B, C, H, W] float32 in [0, 1].
            cases: The study of each.
        """

    @abstractmethod
    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[FilmAnswer], films: Tensor) -> Objective:
        """An attacker's aim on these films.

        Args:
            aim: One of `aims`.
            cases: The studies.
            clean: What the model says of the clean films.
            films: The clean films.
        """


class _Remembered:
    """Reports of the films that were last asked about: what decides success need not be written again."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._last: dict[bytes, Generated] = {}

    def write(self, films: Tensor, cases: Sequence[Case]) -> list[Generated]:
        """One answer a film."""
        keys = [f"{case.id}\0".encode() + film.cpu().numpy().tobytes() for film, case in zip(films, cases, strict=True)]
        new = [place for place, key in enumerate(keys) if key not in self._last]
        if new:
            images = [_array(films[place]) for place in new]
            answers = self._writer.write(images, [cases[place].indication for place in new])
            known = {keys[place]: several[0] for place, several in zip(new, answers, strict=True)}
            self._last = known | {key: self._last[key] for key in keys if key in self._last}
        return [self._last[key] for key in keys]


class WordsTarget(Target):
    """A model that gives words alone.

    Args:
        key: See `Target`.
        name: See `Target`.
        labels: See `Target`.
        model: What writes.
        decoding: How.
    """

    gradients = False
    scores = False
    aims: tuple[str, ...] = ("report",)

    def __init__(self, key: str, name: str, labels: Sequence[AskedLabel], model: Any, decoding: Decoding) -> None:
        super().__init__(key, name, labels)
        self.model = model
        self._reports = _Remembered(Writer(model, decoding))

    def examine(self, films: Tensor, cases: Sequence[Case]) -> list[FilmAnswer]:
        """Reports, and the labels that they state."""
        return [self._answer(said) for said in self._reports.write(films, cases)]

    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[FilmAnswer], films: Tensor) -> Objective:
        """Harm by the words of the reports."""
        truths = [_present(case) for case in cases]
        return ReportHarm(truths, [answer.report or "" for answer in clean], self._writes(cases))

    def _writes(self, cases: Sequence[Case]) -> Any:
        return lambda images, rows: [said.text for said in self._reports.write(images, [cases[row] for row in rows])]

    def _answer(self, said: Generated, loss: float | None = None, probs: dict[str, float] | None = None) -> FilmAnswer:
        return FilmAnswer(
            report=said.text,
            mean_logprob=said.mean_logprob,
            tokens=said.tokens,
            loss=loss,
            label_probs=probs or {},
            labels=labels_in(read(said.text).findings, self.labels),
        )


class ReportTarget(WordsTarget):
    """Open weights: reports, their loss, and closed answers.

    Args:
        key: See `Target`.
        name: See `Target`.
        labels: See `Target`.
        model: The report model.
        decoding: How it writes.
        against: reference or own: the report whose loss an attack raises.
        wishes: What the aims target, remove and invent want.
    """

    gradients = True
    scores = True

    def __init__(
        self,
        key: str,
        name: str,
        labels: Sequence[AskedLabel],
        model: HfModel,
        decoding: Decoding,
        against: str,
        wishes: Wishes,
    ) -> None:
        super().__init__(key, name, labels, model, decoding)
        self.gradients = model.capabilities.gradients
        self.against = against
        self._asks = all(label.questions for label in self.labels)
        self.wishes = wishes
        self.aims = tuple(aim for aim in (REPORT, ANSWERS, *BY_WISH) if aim != ANSWERS or self._asks)

    @property
    def device(self) -> torch.device:
        """That of the weights."""
        found: torch.device = self.model.device
        return found

    def examine(self, films: Tensor, cases: Sequence[Case]) -> list[FilmAnswer]:
        """Reports, the loss of the references, and P(yes) of every label."""
        said = self._reports.write(films, cases)
        with torch.no_grad():
            losses = self._losses(films, cases)
            probs = self._probabilities(films) if self._asks else [{} for _ in cases]
        return [self._answer(*told) for told in zip(said, losses, probs, strict=True)]

    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[FilmAnswer], films: Tensor) -> Objective:
        """The true report unlikely, the closed answers wrong, or a report that the attacker wishes for."""
        if aim == ANSWERS:
            return WrongAnswers(self.margins, truth_table(cases, self.labels), wrong_answers(cases, clean))
        if aim in BY_WISH:
            before = [answer.report or "" for answer in clean]
            indications = [case.indication for case in cases]
            return wished(self.wishes, aim, self.model, before, indications, self._writes(cases))
        own = self.against == "own"
        reports = [(answer.report if own else case.reference) or "" for case, answer in zip(cases, clean, strict=True)]
        before = [answer.report or "" for answer in clean]
        indications = [case.indication for case in cases]
        return RaiseReportLoss(self.model, reports, indications, before, self._writes(cases))

    def margins(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """[B, labels], log p(yes) - log p(no); of a label with several questions the largest."""
        columns = []
        for label in self.labels:
            asked = [self.model.yes_margins(images, question) for question in label.questions]
            columns.append(torch.stack(asked, dim=1).amax(dim=1))
        return torch.stack(columns, dim=1)

    def _probabilities(self, films: Tensor) -> list[dict[str, float]]:
        rows = torch.sigmoid(self.margins(films, range(len(films)))).double().cpu().tolist()
        return [{label.name: value for label, value in zip(self.labels, row, strict=True)} for row in rows]

    def _losses(self, films: Tensor, cases: Sequence[Case]) -> list[float | None]:
        told = [place for place, case in enumerate(cases) if case.reference]
        found: list[float | None] = [None] * len(cases)
        if told:
            values = self.model.losses(
                films[told], [cases[place].reference for place in told], [cases[place].indication for place in told]
            )
            for place, value in zip(told, values.double().cpu().tolist(), strict=True):
                found[place] = value
        return found


class EncoderTarget(Target):
    """A contrastive encoder: is a film nearer to presence or to absence?

    Args:
        key: See `Target`.
        name: See `Target`.
        labels: See `Target`.
        encoder: The encoder.
        sentences: Row of the zero-shot sentences.
    """

    writes_reports = False
    aims = ("answers", "embedding")

    def __init__(self, key: str, name: str, labels: Sequence[AskedLabel], encoder: DualEncoder, sentences: str) -> None:
        super().__init__(key, name, labels)
        self.encoder = encoder
        encoder.model.requires_grad_(False)
        self.gradients = encoder.pixels.differentiable
        self._directions = [self._of(label, sentences) for label in self.labels]

    @property
    def device(self) -> torch.device:
        """That of the weights."""
        found: torch.device = self.encoder.device
        return found

    def examine(self, films: Tensor, cases: Sequence[Case]) -> list[FilmAnswer]:
        """Probability of every label: the logistic of the scaled difference of cosines."""
        with torch.no_grad():
            rows = torch.sigmoid(self.margins(films, range(len(films)))).double().cpu().tolist()
        return [
            FilmAnswer(label_probs={label.name: value for label, value in zip(self.labels, row, strict=True)})
            for row in rows
        ]

    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[FilmAnswer], films: Tensor) -> Objective:
        """Zero-shot classes wrong, or the vector moved."""
        if aim == "embedding":
            with torch.no_grad():
                homes = self.encoder.image_vectors(films)
            return MoveEmbedding(self.encoder.image_vectors, homes)
        return WrongAnswers(self.margins, truth_table(cases, self.labels), wrong_answers(cases, clean))

    def margins(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """[B, labels]: difference of cosines to presence and absence times the scale; of several names the largest."""
        vectors = self.encoder.image_vectors(images)
        columns = [(vectors @ directions.T).amax(dim=1) for directions in self._directions]
        return self.encoder.scale * torch.stack(columns, dim=1)

    def _of(self, label: AskedLabel, sentences: str) -> Tensor:
        """[names, D]: from absence to presence of each name that stands for the label."""
        wording = load_sentences(sentences)
        rows = []
        for name in label.sentences:
            there, absent = (mean_direction(self.encoder.embed_texts(side)) for side in wording.of(name))
            rows.append(torch.from_numpy(there - absent).float())
        return torch.stack(rows).to(self.device)


def load_target(
    key: str, name: str, labels: Sequence[AskedLabel], settings: Any, *, sentences: str = "report/1"
) -> Target:
    """The model of this name as a target.

    Args:
        key: Its short name.
        name: As the user wrote it; an encoder where it opens as one.
        labels: What is asked about.
        settings: A `RobustnessConfig`.
        sentences: Wording of the zero-shot classes.
    """
    from cxrlab.evaluation.loading import load_model
    from cxrlab.models.hf.wrapper import HfModel
    from cxrlab.models.names import load_encoder

    if is_encoder(name, settings.loading):
        return EncoderTarget(key, name, labels, load_encoder(name, settings.loading), sentences)
    model = load_model(name, settings.loading)
    if model.capabilities.black_box and not settings.i_am_authorised:
        raise ConfigError(
            f"'{name}' runs elsewhere; an audit of it needs the owner's leave. Say who may test it and why with "
            "--i-am-authorised, which is kept and shown on the page."
        )
    if isinstance(model, HfModel):
        return ReportTarget(key, name, labels, model, settings.decoding, settings.against, settings.wishes)
    return WordsTarget(key, name, labels, model, settings.decoding)


def is_encoder(name: str, loading: Loading) -> bool:
    """Whether a name stands for a contrastive encoder: the built-in one, or a folder that says so."""
    from cxrlab.core.files import read_json
    from cxrlab.models.hf.source import locate
    from cxrlab.models.local_files import DUAL_ENCODERS

    kind, _, argument = name.partition(":")
    if kind != "hf":
        return name == "builtin:encoder"
    file = locate(argument, loading) / "config.json"
    found = read_json(file) if file.is_file() else None
    return isinstance(found, dict) and found.get("model_type") in (*DUAL_ENCODERS, "clip", "siglip", "siglip2")


def truth_table(cases: Sequence[Case], labels: Sequence[AskedLabel]) -> Tensor:
    """[N, labels] of 1, 0 and not-a-number for unknown."""
    nan = float("nan")
    return torch.tensor([[case.truth.get(label.name, nan) for label in labels] for case in cases], dtype=torch.float32)


def wrong_answers(cases: Sequence[Case], answers: Sequence[FilmAnswer]) -> list[int]:
    """Known labels that each answer gets wrong."""
    return [
        sum((answer.label_probs[name] > 0.5) != bool(value)
            for name, value in case.truth.items() if name in answer.label_probs)
        for case, answer in zip(cases, answers, strict=True)
    ]  # fmt: skip


def _present(case: Case) -> frozenset[str]:
    findings = case.findings if case.findings is not None else read(case.reference).findings
    return frozenset(finding.observation for finding in findings if finding.present)


def _array(film: Tensor) -> Any:
    """[C, H, W] → [H, W] or [H, W, 3] as models take films."""
    plain = film.detach().cpu().numpy()
    return plain[0] if len(plain) == 1 else plain.transpose(1, 2, 0)
