"""The phantom corpus: patients from a seed, their images, masks and reports, in a corpus folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cxrlab.core.image_codec import encode_png, to_uint8
from cxrlab.core.plan import Plan
from cxrlab.core.randomness import generator
from cxrlab.core.records import ImageFile, Study, chexpert_labels
from cxrlab.core.vocabulary import View
from cxrlab.data.card import Card, card_settings
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import Corpus, assign_split
from cxrlab.data.corpus_writer import NewStudy, Recipe, build_corpus, plan_drawing
from cxrlab.data.phantom.render import PhantomPatient, hidden_findings, render, render_lateral
from cxrlab.findings.narrator import narrate
from cxrlab.findings.planted_errors import draw_error_plan, mistaken
from cxrlab.findings.simulated_patients import CaseConfig, draw_patient, visit_count

# Increase it when the same settings yield other images or words than before (`test_phantom_corpus.py` detects that). It is
# on every card, so that a corpus is never continued with another drawing.
DRAWING = 2
LATERAL_DRAWING = 1  # the same for the lateral images, on the card of corpora that have them
MISTAKEN = "mistaken"


def plan_phantom(config: PhantomConfig, out: Path | None = None) -> Plan:
    """Draw two small corpora with the same settings in a scratch folder; a corpus in `out` is completed."""
    return plan_drawing("data make phantom", config.n, lambda n, to: make_phantom(replace(config, n=n), to), out)


class PatientVisits(NamedTuple):
    """A patient to draw, and how many of the visits the corpus still needs."""

    patient: str
    visits: int


def make_phantom(config: PhantomConfig, out: str | Path) -> Corpus:
    """Make or continue a phantom corpus; study k of a seed is the same whatever `n` and the number of workers."""
    settings = card_settings(config)
    if not config.mistakes:
        del settings["mistakes"]  # a corpus without a second text is the same as ever
    if config.lateral:
        settings["lateral_drawing"] = LATERAL_DRAWING
    else:
        del settings["lateral"], settings["hidden"]  # and so is one of frontal images alone
    card = Card(
        name="phantom",
        source="Drawn from a seed by cxrlab; no patient behind it.",
        licence="Synthetic; free to use for any purpose.",
        citation="cxrlab, phantom chest radiographs.",
        settings={"drawing": DRAWING, **settings},
        synthetic=True,
    )
    recipe = Recipe(
        items=patients_with_visits(config),
        ids=lambda item: [study_id(item.patient, number) for number in range(1, item.visits + 1)],
        make_studies=partial(draw_studies, config),
        label="drawing phantoms",
        total=config.n,
    )
    return build_corpus(out, card, recipe, config.workers)


def patients_with_visits(config: PhantomConfig) -> Iterator[PatientVisits]:
    """The patients of a corpus of `config.n` studies, in order."""
    left, number = config.n, 0
    while left > 0:
        patient = f"p{number:06d}"
        visits = min(visit_count(config.seed, patient), left)
        yield PatientVisits(patient, visits)
        left -= visits
        number += 1


def draw_studies(config: PhantomConfig, patient_visits: PatientVisits) -> list[NewStudy]:
    """All studies of one patient with the bytes of their images and masks."""
    case = draw_patient(config.seed, patient_visits.patient, CaseConfig(normal=config.normal, faint=config.faint))
    split = assign_split(case.patient, config.seed)
    studies: list[NewStudy] = []
    for visit in case.visits[: patient_visits.visits]:
        name = study_id(case.patient, visit.number)
        # The first visit's age, so that the body stays the same while the patient grows older.
        patient = PhantomPatient(config.seed, case.patient, visit.sex, case.visits[0].age)
        hidden = hidden_findings(patient, visit.findings, config.hidden)
        image = render(
            patient, visit.number, visit.view, visit.findings, config.size, config.preset, config.masks, hidden
        )
        narrated = narrate(visit, config.seed, name, config.lexicon)
        path = f"images/{name}.png"
        files = {path: encode_png(to_uint8(image.image))}
        images = [ImageFile(path, visit.view)]
        if config.lateral:
            lateral = render_lateral(patient, visit.number, visit.findings, config.size, config.preset, hidden)
            images.append(ImageFile(f"images/{name}_l.png", View.LATERAL))
            files[images[1].path] = encode_png(to_uint8(lateral))
        masks = {str(index): f"masks/{name}_{index}.png" for index in image.masks}
        files.update({masks[str(index)]: encode_png(mask) for index, mask in image.masks.items()})
        structured = {}
        if config.mistakes and split == "train":  # a second report with up to so many mistakes, in the same words
            rng = generator(config.seed, "mistaken", name)
            plan = draw_error_plan(rng, visit, int(rng.integers(config.mistakes + 1)))
            candidate = mistaken(visit, config.seed, name, plan, (config.lexicon, config.lexicon)).candidate
            structured[MISTAKEN] = {"findings": candidate.report.findings or ""}
        # Which findings the frontal image hardly shows, by their index.
        hidden_extra = {"hidden": [k for k, one in enumerate(visit.findings) if one in hidden]} if hidden else {}
        study = Study(
            id=name,
            patient=case.patient,
            images=tuple(images),
            sections=narrated.report,
            split=split,
            age=visit.age,
            sex=visit.sex,
            prior=study_id(case.patient, visit.number - 1) if visit.number > 1 else None,
            labels=chexpert_labels(visit.findings, complete=True),
            findings=narrated.findings,
            masks=masks,
            structured=structured,
            extra={"context": visit.context, **hidden_extra},
        )
        studies.append(NewStudy(study, files))
    return studies


def study_id(patient: str, number: int) -> str:
    """The id of a patient's visit, counted from 1."""
    return f"{patient}s{number}"
