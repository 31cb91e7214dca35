"""What is learnt from a corpus, and what an empty one says."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from composition_members import config, corpus, study
from corpora import toy_corpus

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.records import Finding, ImageFile, Report
from cxrlab.core.vocabulary import View
from cxrlab.data.compose import compose_corpus, plan
from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.findings.closed_questions import NO, YES, question_about
from cxrlab.training.config import ExtraCorpus, FinetuneConfig
from cxrlab.training.samples import Unused, pair_table, read_source, read_sources

# Studies 0, 3, 6 and 9 of the toy corpus are in its train split.
TRAIN = (0, 3, 6, 9)


def test_the_train_split_is_read_with_image_indication_and_report(tmp_path: Path) -> None:
    told = Report(indication="Dyspnea.", findings=" Clear lungs. \n")
    toy_corpus(tmp_path / "c", 12, {3: {"sections": told}})
    source = read_source(ExtraCorpus(tmp_path / "c"))
    assert [sample.id for sample in source.samples] == [f"s{number}" for number in TRAIN]
    second = source.samples[1]
    assert (second.indication, second.report) == ("Dyspnea.", "Clear lungs.")
    (image,) = second.images
    assert image.path == tmp_path / "c" / "images" / "s3.png" and not image.rgb
    assert source.weight == 1.0 and not source.left_out


def test_studies_without_image_or_text_are_left_out_and_counted(tmp_path: Path) -> None:
    lateral = (ImageFile("images/s0.png", View.LATERAL),)
    changes = {0: {"images": lateral}, 3: {"images": ()}, 6: {"sections": None}}
    toy_corpus(tmp_path / "c", 12, changes)
    source = read_source(ExtraCorpus(tmp_path / "c"))
    assert [sample.id for sample in source.samples] == ["s9"]
    assert source.left_out == {"no frontal image": 1, "no image": 1, "no text": 1}


def test_unknown_views_and_missing_splits_are_left_out_and_counted(tmp_path: Path) -> None:
    """Neither is learnt from, and neither goes without a word."""
    toy_corpus(tmp_path / "c", 12, {0: {"images": (ImageFile("images/s0.png"),)}, 1: {"split": None}})
    source = read_source(ExtraCorpus(tmp_path / "c"))
    assert [sample.id for sample in source.samples] == ["s3", "s6", "s9"]
    assert source.left_out == {"no frontal image, and an image whose view is unknown": 1, "no split": 1}
    toy_corpus(tmp_path / "d", 3, dict.fromkeys(range(3), {"split": None}))
    with pytest.raises(DataError, match=r"no study in its train split \(splits there: none\)"):
        read_source(ExtraCorpus(tmp_path / "d"))


def test_a_corpus_with_nothing_to_learn_says_why(tmp_path: Path) -> None:
    toy_corpus(tmp_path / "c", 12, dict.fromkeys(TRAIN, {"sections": None}))
    with pytest.raises(DataError, match=r"none of the 4 train studies .* \(no text: 4\)"):
        read_source(ExtraCorpus(tmp_path / "c"))
    toy_corpus(tmp_path / "d", 3, {0: {"split": "val"}})
    with pytest.raises(DataError, match=r"no study in its train split \(splits there: test, val\)"):
        read_source(ExtraCorpus(tmp_path / "d"))


def test_structured_text_is_learnt_by_its_maker(tmp_path: Path) -> None:
    toy_corpus(tmp_path / "c", 12, {3: {"structured": {"rules": {"findings": "Structured."}}}})
    source = read_source(ExtraCorpus(tmp_path / "c", text="rules"))
    assert [sample.report for sample in source.samples] == ["Structured."]
    assert source.left_out == {"no text 'rules'": 3}
    with pytest.raises(DataError, match="Did you mean 'rules'. Texts available: rules"):
        read_source(ExtraCorpus(tmp_path / "c", text="rule"))


def test_a_structured_text_has_the_indication_that_was_made_with_it(tmp_path: Path) -> None:
    """Where it has none, the source's; a study without a text of the source keeps its indication."""
    told = {"sections": Report(indication="Cough, 63 M.", findings="Clear.")}
    changes: dict[int, dict[str, Any]] = {
        0: {**told, "structured": {"gpt4": {"findings": "Lungs clear.", "indication": "Cough."}}},
        3: {**told, "structured": {"gpt4": {"findings": "No effusion."}}},
        6: {"sections": None, "structured": {"gpt4": {"findings": "Effusion.", "indication": "Fall."}}},
    }
    toy_corpus(tmp_path / "c", 9, changes)
    source = read_source(ExtraCorpus(tmp_path / "c", text="sections,gpt4"))
    assert [(sample.report, sample.indication) for sample in source.samples] == [
        ("Clear.", "Cough, 63 M."),
        ("Lungs clear.", "Cough."),
        ("Clear.", "Cough, 63 M."),
        ("No effusion.", "Cough, 63 M."),
        ("Effusion.", "Fall."),
    ]


def test_a_caption_is_the_text_of_a_picture_and_its_colours_are_kept(tmp_path: Path) -> None:
    picture = {"caption": "A red disc.", "sections": None, "images": (ImageFile("images/s3.png", View.OTHER),)}
    toy_corpus(tmp_path / "c", 12, {3: picture})
    second = read_source(ExtraCorpus(tmp_path / "c")).samples[1]
    assert second.report == "A red disc." and second.images[0].rgb


def test_words_alone_need_no_image_and_are_learnt_from_all_the_same(tmp_path: Path) -> None:
    toy_corpus(tmp_path / "c", 12, {3: {"images": ()}})
    source = read_source(ExtraCorpus(tmp_path / "c", images=False, weight=0.5))
    assert len(source.samples) == 4 and not any(sample.images for sample in source.samples)
    assert source.collections == read_source(ExtraCorpus(tmp_path / "c")).collections != () and source.weight == 0.5


def test_a_corpus_is_synthetic_where_its_card_says_so(tmp_path: Path) -> None:
    toy_corpus(tmp_path / "c", 12)
    card = tmp_path / "c" / "card.yaml"
    rest = "".join(line for line in card.open() if not line.startswith("synthetic"))
    for line, synthetic in (("synthetic: true\n", True), ("", False)):
        card.write_text(rest + line)
        assert read_source(ExtraCorpus(tmp_path / "c")).synthetic is synthetic


def test_a_patient_in_two_splits_is_refused(tmp_path: Path) -> None:
    toy_corpus(tmp_path / "c", 12, {4: {"patient": "p3"}})
    with pytest.raises(DataError, match="1 patients of the train split .* 'p3', also in val"):
        read_source(ExtraCorpus(tmp_path / "c"))


def test_a_part_is_drawn_by_the_seed(tmp_path: Path) -> None:
    toy_corpus(tmp_path / "c", 60)
    drawn = [[one.id for one in read_source(ExtraCorpus(tmp_path / "c"), 5, seed).samples] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2] and len(drawn[0]) == 5
    assert len(read_source(ExtraCorpus(tmp_path / "c"), 5000, 1).samples) == 20


def test_questions_are_answered_from_findings_or_labels(tmp_path: Path) -> None:
    """By exact findings where there are some, else by certain labels; a study that knows neither is left out."""
    changes = {
        0: {"findings": (Finding("edema"),)},
        3: {"findings": None, "labels": {"Edema": 0, "Pneumonia": -1}},
        6: {"findings": None, "labels": {}},
        9: {"findings": None, "labels": {"Pneumothorax": 1}},
    }
    toy_corpus(tmp_path / "c", 12, changes)
    source = read_source(ExtraCorpus(tmp_path / "c", questions=True))
    told = [(sample.id, sample.question, sample.report) for sample in source.samples]
    assert told[0] == ("s0", question_about("edema"), YES) and (told[1][0], told[1][2]) == ("s0", NO)
    assert told[2:] == [("s3", question_about("Edema"), NO), ("s9", question_about("Pneumothorax"), YES)]
    assert source.left_out == {"no answer known": 1} and all(sample.images for sample in source.samples)
    assert read_source(ExtraCorpus(tmp_path / "c", questions=True), seed=0).samples == source.samples
    with pytest.raises(ConfigError, match="learns no text"):
        ExtraCorpus(tmp_path / "c", questions=True, images=False)


def test_what_is_present_may_be_told_in_place_of_the_image(tmp_path: Path) -> None:
    """From exact findings where there are any, in an order that the report does not have; else read from the text."""
    exact = tuple(Finding(name) for name in ("cardiomegaly", "edema", "mass", "scoliosis", "emphysema"))
    read = Report(findings="Small left pleural effusion. No pneumothorax.")
    toy_corpus(tmp_path / "c", 12, {0: {"findings": exact}, 3: {"sections": read, "findings": None, "images": ()}})
    source = read_source(ExtraCorpus(tmp_path / "c", images=False, findings_in_prompt=True))
    first, second = source.samples[:2]
    assert first.listed_findings is not None and not first.images
    names = first.listed_findings.split("; ")
    assert sorted(names) == sorted(one.observation for one in exact)
    assert second.listed_findings == "mild left pleural effusion"
    assert names != [one.observation for one in exact]
    assert (
        first.listed_findings
        == read_source(ExtraCorpus(tmp_path / "c", images=False, findings_in_prompt=True)).samples[0].listed_findings
    )


def test_nothing_is_told_of_a_picture_and_nothing_twice(tmp_path: Path) -> None:
    twice = Report(findings="The heart is enlarged. Cardiomegaly again.")
    picture = {"caption": "A soft haze on the right.", "sections": None}
    toy_corpus(tmp_path / "c", 12, {0: picture, 3: {"sections": twice, "findings": None}})
    source = read_source(ExtraCorpus(tmp_path / "c", images=False, findings_in_prompt=True))
    assert source.left_out == {"a picture's caption, which has no findings": 1}
    assert source.samples[0].id == "s3" and source.samples[0].listed_findings == "cardiomegaly"


@pytest.mark.parametrize(
    "also", [{"findings_in_prompt": True}, {"findings_in_prompt": True, "images": False, "questions": True}]
)
def test_telling_stands_in_the_place_of_images(also: dict[str, bool]) -> None:
    with pytest.raises(ConfigError, match="findings_in_prompt=true"):
        ExtraCorpus(Path("c"), **also)  # type: ignore[arg-type]


def many(path: Path) -> Path:
    """Three train studies: PA and lateral with two texts, AP with the source's, lateral with the source's."""
    both = {"structured": {"gpt-4": {"findings": "Structured."}}}
    studies = [study(1, ("PA", "lateral"), **both), study(2, ("AP",)), study(3, ("lateral",))]
    return corpus(path, studies).path


@pytest.mark.parametrize(
    ("settings", "pairs"),
    [
        ({}, {("sections", "AP"): 1, ("sections", "PA"): 1}),
        ({"views": ("PA", "lateral")}, {("sections", "PA"): 1, ("sections", "lateral"): 2}),
        ({"text": "gpt-4"}, {("structured:gpt-4", "PA"): 1}),
        (
            {"text": "sections, structured", "views": ("PA", "lateral")},
            {
                ("sections", "PA"): 1,
                ("sections", "lateral"): 2,
                ("structured:gpt-4", "PA"): 1,
                ("structured:gpt-4", "lateral"): 1,
            },
        ),
    ],
)
def test_settings_choose_views_and_texts(
    tmp_path: Path, settings: dict[str, Any], pairs: dict[tuple[str, str], int]
) -> None:
    table = pair_table([read_source(ExtraCorpus(many(tmp_path / "c"), **settings))])
    assert {(row.text, row.view): row.pairs for row in table.rows} == pairs and table.pairs == sum(pairs.values())


def test_every_image_that_is_not_learnt_is_counted_with_its_reason(tmp_path: Path) -> None:
    """By default the lateral image of study 1 and all of study 3; every image is learnt or listed."""
    for settings, reasons in (
        ({}, {("another image of its study is used", 0, 1), ("no frontal image", 1, 1)}),
        ({"views": ("AP",)}, {("view not among AP", 2, 3)}),
        ({"text": "gpt-4"}, {("another image of its study is used", 0, 1), ("no text 'gpt-4'", 2, 2)}),
    ):
        name = "-".join(settings) or "default"
        table = pair_table([read_source(ExtraCorpus(many(tmp_path / name), **settings))])  # type: ignore[arg-type]
        assert {(one.reason, one.studies, one.images) for one in table.unused} == reasons
        assert table.images + sum(one.images for one in table.unused) == 4


def composed(folder: Path, **settings: Any) -> Path:
    """Two members: a, whose section is the impression, and b with both texts of the corpus above."""
    short = [study(9, sections=Report(findings="Long.", impression="Short."))]
    members = {
        "a": {"corpus": str(corpus(folder / "a", short).path), "section": "impression"},
        "b": {"corpus": str(many(folder / "b")), "texts": ["sections", "structured"], **settings},
    }
    return compose_corpus(plan(config(members)), folder / "both").path


def test_a_composition_chooses_images_texts_and_section(tmp_path: Path) -> None:
    source = read_source(ExtraCorpus(composed(tmp_path)))
    learnt = [(sample.id, sample.kind.view, sample.report) for sample in source.samples]
    assert learnt == [
        ("a/s9", "PA", "Short."),
        ("b/s1", "PA", "Text of number 1."),
        ("b/s1", "PA", "Structured."),
        ("b/s1", "lateral", "Text of number 1."),
        ("b/s1", "lateral", "Structured."),
        ("b/s2", "AP", "Text of number 2."),
        ("b/s3", "lateral", "Text of number 3."),
    ]
    assert {sample.kind.corpus for sample in source.samples} == {"a", "b"} and source.unused == ()


def test_settings_narrow_a_composition(tmp_path: Path) -> None:
    """Fewer members, views or texts; what goes is listed by member."""
    folder = composed(tmp_path)
    one = read_source(ExtraCorpus(folder, members=("a",)))
    assert [sample.id for sample in one.samples] == ["a/s9"]
    assert one.unused == (Unused("b", "not among members", 3, 4),) and one.left_out == {"not among members": 3}
    frontal = read_source(ExtraCorpus(folder, views=("PA", "AP"), text="sections"))
    assert [sample.id for sample in frontal.samples] == ["a/s9", "b/s1", "b/s2"]
    with pytest.raises(ConfigError, match="Did you mean 'b'"):
        read_source(ExtraCorpus(folder, members=("bb",)))


def test_a_drawn_study_keeps_all_its_pairs(tmp_path: Path) -> None:
    """n counts studies: two of four, whichever are drawn, with every image and text."""
    folder = composed(tmp_path)
    pairs = {"a/s9": 1, "b/s1": 4, "b/s2": 1, "b/s3": 1}
    source = read_source(ExtraCorpus(folder), n=2, seed=1)
    drawn = Counter(sample.id for sample in source.samples)
    assert len(drawn) == 2 and all(pairs[name] == count for name, count in drawn.items())
    assert sum(one.studies for one in source.unused) == 2


def test_another_split_can_be_read(tmp_path: Path) -> None:
    toy_corpus(tmp_path / "c", 12)
    source = read_source(ExtraCorpus(tmp_path / "c"), split="val")
    assert [sample.id for sample in source.samples] == ["s1", "s4", "s7", "s10"]
    with pytest.raises(DataError, match=r"none of the 4 val studies .* \(no text 'gpt': 4\)"):
        read_source(ExtraCorpus(tmp_path / "c", text="gpt"), split="val")


def test_fine_tuning_puts_views_and_prior_into_one_sample(tmp_path: Path) -> None:
    """Images, names and prior report of each study; first visits are used with what there is, or dropped and counted."""
    data = tmp_path / "c"
    corpus = make_phantom(PhantomConfig(n=40, size=32, seed=3, workers=1, masks=False, lateral=True), data)
    whole = FinetuneConfig(data=data, start="x", views=("frontal", "lateral"), prior=("image", "report"))
    (source,) = read_sources(whole)
    assert [sample.id for sample in source.samples] == list(corpus.ids("train")) and not source.left_out
    for sample in source.samples:
        study = corpus[sample.id]
        prior = corpus[study.prior] if study.prior else None
        paths = [one.path for one in (*study.images, *(prior.images[:1] if prior else ()))]
        assert [image.path for image in sample.images] == [data / path for path in paths]
        assert sample.context is not None and len(sample.context.image_names) == len(sample.images)
        assert sample.context.prior_report == (prior.sections.findings if prior and prior.sections else "")
        assert sample.context.indication == sample.indication
    first = sum(corpus[name].prior is None for name in corpus.ids("train"))
    counted = {row.view: row.pairs for row in pair_table([source]).rows}
    assert counted == {
        "frontal + lateral": first,
        "frontal + lateral + prior frontal + prior report": len(source.samples) - first,
    }
    (followups,) = read_sources(dataclasses.replace(whole, missing="drop"))
    assert followups.left_out == {"no prior study": first} and len(followups.samples) == len(source.samples) - first
    # One view is as ever; each image of several views is a sample of its own with unit=image.
    (plain,) = read_sources(FinetuneConfig(data=data, start="x"))
    (frontal,) = read_sources(FinetuneConfig(data=data, start="x", views=("frontal",)))
    assert plain.samples == frontal.samples and {sample.context for sample in plain.samples} == {None}
    (each,) = read_sources(FinetuneConfig(data=data, start="x", views=("PA", "AP", "lateral"), unit="image"))
    assert len(each.samples) == 2 * len(plain.samples) and {len(sample.images) for sample in each.samples} == {1}
    with pytest.raises(ConfigError, match="unit=image and prior"):
        FinetuneConfig(data=data, start="x", unit="image", prior=("report",))
