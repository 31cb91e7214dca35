"""From a model's name to what an audit sees of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cxrlab.attacks.objectives import (
    LowerReportLoss,
    MoveEmbedding,
    Objective,
    RaiseReportLoss,
    ReportHarm,
    WrongAnswers,
    invent_finding,
    present_observations,
    remove_finding,
)
from cxrlab.core.endpoints import (
    MIN_PERMISSION_WORDS,
    EgressData,
    hide_credentials,
    is_address,
    is_loopback,
    is_valid_permission,
)
from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json
from cxrlab.evaluation.generate import ReportGenerator
from cxrlab.evaluation.open_models import open_model
from cxrlab.evaluation.retrieve import load_sentences, mean_direction
from cxrlab.findings.reader import read
from cxrlab.models.hf.model import HfModel
from cxrlab.models.local_files import DUAL_ENCODERS, locate
from cxrlab.models.names import load_encoder
from cxrlab.robustness.cases import AskedLabel, labels_in
from cxrlab.robustness.evidence import ImageAnswer
from cxrlab.robustness.settings import (
    ANSWERS,
    BY_WISH,
    EMBEDDING,
    INVENT,
    REMOVE,
    REPORT,
    TARGET,
    Wishes,
    parse_smoothed,
)
from cxrlab.robustness.smoothing import Smoothing, over_copies

if TYPE_CHECKING:
    from cxrlab.attacks.objectives import GenerateReports, Rows
    from cxrlab.core.protocols import Generated
    from cxrlab.models.decoding import Decoding
    from cxrlab.models.dual_encoder import DualEncoder
    from cxrlab.models.load_settings import LoadSettings
    from cxrlab.robustness.cases import Case
    from cxrlab.robustness.settings import RobustnessConfig


def load_target(
    key: str,
    name: str,
    labels: Sequence[AskedLabel],
    settings: RobustnessConfig,
    *,
    shown: Sequence[EgressData] = (),
    sentences: str = "report/1",
) -> Target:
    """The model of this name as a target.

    Args:
        key: Its short name.
        name: As the user wrote it; an encoder where it opens as one, smoothed where it says so.
        labels: What is asked about.
        settings: Of the audit.
        shown: What it will be shown; an address elsewhere is asked nothing where that is not known.
        sentences: Wording of the zero-shot classes.
    """
    smoothed = parse_smoothed(name)
    _, inner = smoothed or (None, name)
    if is_encoder(inner, settings.loading):
        if smoothed:
            raise ConfigError(f"'{name}' smooths an encoder; only closed answers of report models are smoothed.")
        return EncoderTarget(key, name, labels, load_encoder(name, settings.loading), sentences)
    if is_address(inner):
        _check_leave(name, settings, remote=not is_loopback(inner))  # before anything connects
    model = open_model(inner, settings.loading, shown)
    if not is_address(inner):
        _check_leave(name, settings, remote=model.capabilities.black_box)
    if smoothed:
        if not isinstance(model, HfModel):
            raise ConfigError(f"'{name}' cannot be smoothed: {inner} answers no closed questions; name open weights.")
        if not all(label.questions for label in labels):
            raise ConfigError(f"'{name}' votes on closed questions and none is asked; leave out --questions none.")
        return SmoothedTarget(key, name, labels, model, settings, sigma=smoothed[0])
    if isinstance(model, HfModel):
        return ReportTarget(key, name, labels, model, settings.decoding, settings.against, settings.wishes)
    return WordsTarget(key, name, labels, model, settings.decoding)


def _check_leave(name: str, settings: RobustnessConfig, *, remote: bool) -> None:
    """Refuse to test what runs elsewhere without its owner's leave; what answers on this machine needs none."""
    if remote and not is_valid_permission(settings.i_am_authorised):
        raise ConfigError(
            f"'{hide_credentials(name)}' runs elsewhere; an audit of it needs the owner's leave. Say who may test it and "
            f'why with --i-am-authorised "WHO AND WHY" (at least {MIN_PERMISSION_WORDS} words), which is kept and shown on the '
            "page."
        )


def is_encoder(name: str, loading: LoadSettings) -> bool:
    """Whether a name stands for a contrastive encoder: the built-in one, or a folder that says so."""
    kind, _, argument = name.partition(":")
    if kind != "hf":
        return name == "builtin:encoder"
    file = locate(argument, loading) / "config.json"
    found = read_json(file) if file.is_file() else None
    return isinstance(found, dict) and found.get("model_type") in (*DUAL_ENCODERS, "clip", "siglip", "siglip2")


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
        """Where images have to be."""
        return torch.device("cpu")

    def forget(self) -> None:  # noqa: B027 - most remember nothing
        """Drop what was remembered of images, so that the next look is a new one."""

    @abstractmethod
    def examine(self, images: Tensor, cases: Sequence[Case]) -> list[ImageAnswer]:
        """What the model says of each image.

        Args:
            images: [B, C, H, W] float32 in [0, 1].
            cases: The study of each.
        """

    @abstractmethod
    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[ImageAnswer], images: Tensor) -> Objective:
        """An attacker's aim on these images.

        Args:
            aim: One of `aims`.
            cases: The studies.
            clean: What the model says of the clean images.
            images: The clean images.
        """

    def text_objective(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        """Harm by the words of reports, for attacks that look at nothing else; arguments as of `objective`."""
        raise ConfigError(f"'{self.name}' writes no reports that an attack could go by; leave out attacks by report.")


class _Remembered:
    """Reports of the images that were last asked about: what decides success need not be written again."""

    def __init__(self, writer: ReportGenerator) -> None:
        self._writer = writer
        self._last: dict[bytes, Generated] = {}

    def forget(self) -> None:
        """Nothing is remembered any more."""
        self._last = {}

    def write(self, images: Tensor, cases: Sequence[Case]) -> list[Generated]:
        """One answer an image."""
        keys = [
            f"{case.id}\0".encode() + image.cpu().numpy().tobytes() for image, case in zip(images, cases, strict=True)
        ]
        new = [place for place, key in enumerate(keys) if key not in self._last]
        if new:
            all_images = [_array(images[place]) for place in new]
            answers = self._writer.generate(all_images, [cases[place].indication for place in new])
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
        self._reports = _Remembered(ReportGenerator(model, decoding))

    def forget(self) -> None:
        """Reports are written anew."""
        self._reports.forget()

    def examine(self, images: Tensor, cases: Sequence[Case]) -> list[ImageAnswer]:
        """Reports, and the labels that they state."""
        return [self._answer(said) for said in self._reports.write(images, cases)]

    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[ImageAnswer], images: Tensor) -> Objective:
        """Harm by the words of the reports."""
        return self.text_objective(cases, clean)

    def text_objective(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        """Findings missed and invented; where the truth is not known, findings that the clean report did not have."""
        before = [answer.report or "" for answer in clean]
        truths = [_present(case, text) for case, text in zip(cases, before, strict=True)]
        return ReportHarm(truths, before, self._writes(cases, clean))

    def _writes(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Any:
        """What is written on changed images; a refusal is no report and no success.

        In its place stands what was written on the clean image, and so it does where that was refused: there is nothing
        to compare with then.
        """

        def write(images: Tensor, rows: Sequence[int]) -> list[str]:
            said = self._reports.write(images, [cases[row] for row in rows])
            return [
                clean[row].report or "" if one.refused or clean[row].refused else one.text
                for one, row in zip(said, rows, strict=True)
            ]

        return write

    def _answer(self, said: Generated, loss: float | None = None, probs: dict[str, float] | None = None) -> ImageAnswer:
        if said.refused:
            return ImageAnswer(loss=loss, label_probs=probs or {}, refused=True)
        return ImageAnswer(
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
        self._asks = bool(self.labels) and all(label.questions for label in self.labels)
        self.wishes = wishes
        self.aims = tuple(aim for aim in (REPORT, ANSWERS, *BY_WISH) if aim != ANSWERS or self._asks)

    @property
    def device(self) -> torch.device:
        """That of the weights."""
        found: torch.device = self.model.device
        return found

    def examine(self, images: Tensor, cases: Sequence[Case]) -> list[ImageAnswer]:
        """Reports, the loss of the references, and P(yes) of every label."""
        said = self._reports.write(images, cases)
        with torch.no_grad():
            losses = self._losses(images, cases)
            probs = self._probabilities(images, cases) if self._asks else [{} for _ in cases]
        return [self._answer(*told) for told in zip(said, losses, probs, strict=True)]

    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[ImageAnswer], images: Tensor) -> Objective:
        """The true report unlikely, the closed answers wrong, or a report that the attacker wishes for."""
        found = self._answered(cases, clean) if aim == ANSWERS else self._written(aim, cases, clean)
        found.gradients = self.gradients
        return found

    def _answered(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        """Closed answers wrong."""
        return WrongAnswers(self.margins, truth_table(cases, self.labels), wrong_answers(cases, clean))

    def _written(self, aim: str, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        """Another report than before."""
        before = [answer.report or "" for answer in clean]
        indications = [case.indication for case in cases]
        if aim in BY_WISH:
            return wished(self.wishes, aim, self.model, before, indications, self._writes(cases, clean))
        reports = before if self.against == "own" else [case.reference or "" for case in cases]
        return RaiseReportLoss(self.model, reports, indications, before, self._writes(cases, clean))

    def margins(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """[B, labels], log p(yes) - log p(no); of a label with several questions the largest."""
        columns = []
        for label in self.labels:
            asked = [self.model.yes_margins(images, question) for question in label.questions]
            columns.append(torch.stack(asked, dim=1).amax(dim=1))
        return torch.stack(columns, dim=1)

    def _probabilities(self, images: Tensor, cases: Sequence[Case]) -> list[dict[str, float]]:
        return by_name(self.labels, torch.sigmoid(self.margins(images, range(len(images)))))

    def _losses(self, images: Tensor, cases: Sequence[Case]) -> list[float | None]:
        told = [place for place, case in enumerate(cases) if case.reference]
        found: list[float | None] = [None] * len(cases)
        if told:
            values = self.model.losses(
                images[told], [cases[place].reference for place in told], [cases[place].indication for place in told]
            )
            for place, value in zip(told, values.double().cpu().tolist(), strict=True):
                found[place] = value
        return found


def by_name(labels: Sequence[AskedLabel], probabilities: Tensor) -> list[dict[str, float]]:
    """[B, labels] as label → probability, image by image."""
    rows = probabilities.double().cpu().tolist()
    return [{label.name: value for label, value in zip(labels, row, strict=True)} for row in rows]


def truth_table(cases: Sequence[Case], labels: Sequence[AskedLabel]) -> Tensor:
    """[N, labels] of 1, 0 and not-a-number for unknown."""
    nan = float("nan")
    return torch.tensor([[case.truth.get(label.name, nan) for label in labels] for case in cases], dtype=torch.float32)


def wrong_answers(cases: Sequence[Case], answers: Sequence[ImageAnswer]) -> list[int]:
    """Known labels that each answer gets wrong."""
    return [
        sum((answer.label_probs[name] > 0.5) != bool(value)
            for name, value in case.truth.items() if name in answer.label_probs)
        for case, answer in zip(cases, answers, strict=True)
    ]  # fmt: skip


def _present(case: Case, said: str) -> frozenset[str]:
    """What is there by the exact findings, by the reference, or for want of both by what was said of the clean image."""
    if case.findings is not None:
        return frozenset(finding.observation for finding in case.findings if finding.present)
    return present_observations(said if case.reference is None else case.reference)


def _array(image: Tensor) -> Any:
    """[C, H, W] → [H, W] or [H, W, 3] as models take images."""
    plain = image.detach().cpu().numpy()
    return plain[0] if len(plain) == 1 else plain.transpose(1, 2, 0)


class SmoothedTarget(ReportTarget):
    """Reports of a model, and its closed answers by majority.

    An image has the same noise before and after an attack: the id of its study decides it.

    Args:
        key: See `Target`.
        name: See `Target`.
        labels: See `Target`.
        model: The report model.
        config: Settings of the audit.
        sigma: Standard deviation of the noise, where black is 0 and white 1.
    """

    def __init__(
        self, key: str, name: str, labels: Sequence[AskedLabel], model: HfModel, config: RobustnessConfig,
        sigma: float,
    ) -> None:  # fmt: skip
        super().__init__(key, name, labels, model, config.decoding, config.against, config.wishes)
        votes = config.smoothing
        self.smoothing = Smoothing(sigma, votes.copies, votes.alpha, config.seed, votes.batch_size)
        self.attack_copies = votes.attack_copies

    def shares(self, images: Tensor, keys: Sequence[str]) -> Tensor:
        """[B, labels], share of the copies of each image that are answered by yes.

        Args:
            images: [B, C, H, W].
            keys: Name of each image.
        """
        with torch.no_grad():
            said = over_copies(self._look, images, keys, self.smoothing.n, self.smoothing)
        return (said > 0).double().mean(dim=1)

    def expected_margins(self, images: Tensor, keys: Sequence[str]) -> Tensor:
        """[B, labels], log of the mean probability of yes minus that of no over the first copies; differentiable.

        The vote itself has no gradient; this is above 0 where the copies on the whole say yes.
        """
        said = over_copies(self._look, images, keys, self.attack_copies, self.smoothing)
        return torch.logsumexp(logsigmoid(said), dim=1) - torch.logsumexp(logsigmoid(-said), dim=1)

    def _look(self, images: Tensor) -> Tensor:
        """Margins of single looks, [B, labels]."""
        return self.margins(images, range(len(images)))

    def _probabilities(self, images: Tensor, cases: Sequence[Case]) -> list[dict[str, float]]:
        return by_name(self.labels, self.shares(images, [case.id for case in cases]))

    def _answered(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        def along(images: Tensor, rows: Sequence[int]) -> Tensor:
            return self.expected_margins(images, [cases[row].id for row in rows])

        def voted(images: Tensor, rows: Sequence[int]) -> Tensor:
            return self.shares(images, [cases[row].id for row in rows]) - 0.5

        return WrongAnswers(along, truth_table(cases, self.labels), wrong_answers(cases, clean), voted)


class EncoderTarget(Target):
    """A contrastive encoder: is an image nearer to presence or to absence?

    Args:
        key: See `Target`.
        name: See `Target`.
        labels: See `Target`.
        encoder: The encoder.
        sentences: Row of the zero-shot sentences.
    """

    writes_reports = False
    aims = (ANSWERS, EMBEDDING)

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

    def examine(self, images: Tensor, cases: Sequence[Case]) -> list[ImageAnswer]:
        """Probability of every label: the logistic of the scaled difference of cosines."""
        with torch.no_grad():
            found = torch.sigmoid(self.margins(images, range(len(images))))
        return [ImageAnswer(label_probs=probs) for probs in by_name(self.labels, found)]

    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[ImageAnswer], images: Tensor) -> Objective:
        """Zero-shot classes wrong, or the vector moved."""
        found: Objective
        if aim == EMBEDDING:
            with torch.no_grad():
                homes = self.encoder.image_vectors(images)
            found = MoveEmbedding(self.encoder.image_vectors, homes)
        else:
            found = WrongAnswers(self.margins, truth_table(cases, self.labels), wrong_answers(cases, clean))
        found.gradients = self.gradients
        return found

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


def wished(
    wishes: Wishes,
    aim: str,
    model: Any,
    before: Sequence[str],
    indications: Sequence[str | None],
    writes: GenerateReports,
) -> Objective:
    """The objective of an aim.

    Args:
        wishes: What is wanted.
        aim: target, remove or invent.
        model: With `losses(images, reports, indications)`.
        before: What it wrote for each clean image.
        indications: Of each image.
        writes: How it writes.
    """
    there = [present_observations(text) for text in before]
    if aim == TARGET:
        able = [found != present_observations(wishes.report) for found in there]
        inner: Objective = LowerReportLoss(model, [wishes.report] * len(before), indications, writes)
    elif aim == REMOVE:
        names = [wishes.remove or _first(text) for text in before]
        able = [name in found for name, found in zip(names, there, strict=True)]
        safe = [name or "pleural effusion" for name in names]  # never asked about where `able` is False
        inner = remove_finding(model, before, safe, indications, writes)
    else:
        assert aim == INVENT
        able = [wishes.invent not in found for found in there]
        inner = invent_finding(model, before, [wishes.invent] * len(before), indications, writes)
    return WhereAble(inner, able)


def _first(report: str) -> str:
    """The finding that a report names first; empty where it names none."""
    return next((one.observation for one in read(report) if one.present), "")


class WhereAble(Objective):
    """Another objective on the images where it makes sense.

    Args:
        inner: The objective.
        able: Whether it makes sense, of each row.
    """

    def __init__(self, inner: Objective, able: Sequence[bool]) -> None:
        self.name, self._inner, self._able = inner.name, inner, list(able)
        self.gradients, self.scores = inner.gradients, inner.scores

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Those of the objective; 0 where it makes no sense."""
        found = self._inner.losses(images, rows)
        return torch.where(self._of(rows).to(found.device), found, torch.zeros_like(found))

    def succeeded(self, images: Tensor, rows: Rows) -> Tensor:
        """As the objective says; False where it makes no sense."""
        return self._inner.succeeded(images, rows) & self._of(rows)

    def _of(self, rows: Rows) -> Tensor:
        return torch.tensor([self._able[row] for row in rows])
