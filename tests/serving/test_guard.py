"""The guard: chest radiographs pass, other pictures do not, whoever sends many of those is stopped, and stays so."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chest_images import frontal_images

from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.image_codec import encode_png, to_uint8
from cxrlab.core.records import ImageFile, Report, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.card import Card
from cxrlab.data.corpus_writer import CorpusWriter
from cxrlab.data.images import luminance
from cxrlab.data.synthetic_scenes import draw_scene
from cxrlab.extraction.defence.base import Defence
from cxrlab.findings.reader import read
from cxrlab.serving.accounts import BlockedAccounts
from cxrlab.serving.config import GuardConfig
from cxrlab.serving.guard import _MESSAGES, Guard, open_guard

pytestmark = pytest.mark.slow

CALIBRATED, HELD_OUT = 96, 24
FINDINGS = "There is a small left pleural effusion. The heart is normal in size."


@pytest.fixture(scope="module")
def images() -> tuple[np.ndarray, ...]:
    return tuple(to_uint8(image) for image in frontal_images(CALIBRATED + HELD_OUT, 64))


@pytest.fixture(scope="module")
def scenes() -> list[np.ndarray]:
    return [to_uint8(luminance(draw_scene(3, k, 64).image.astype(np.float32) / 255)) for k in range(12)]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, images: tuple[np.ndarray, ...]) -> GuardConfig:
    """A guard whose bounds are so loose that 96 images will do."""
    folder = tmp_path_factory.mktemp("benign") / "corpus"
    with CorpusWriter(folder, Card("images", source="a test", licence="none", synthetic=True)) as writer:
        for number, radiograph in enumerate(images):
            image = ImageFile(f"images/{number}.png", View.PA)
            split = "train" if number < CALIBRATED else "test"
            study = Study(f"s{number}", f"p{number}", (image,), sections=Report(findings=FINDINGS), split=split)
            writer.add(study, {image.path: encode_png(radiograph)})
    writer.finish()
    return GuardConfig(benign=folder, image_bound=0.05, account_bound=0.05, account_queries=20)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("measured")


@pytest.fixture
def store(tmp_path: Path, kept: Path) -> Path:
    """A folder without a book, but with what was measured of the images by an earlier test."""
    folder = tmp_path / "store"
    folder.symlink_to(kept)
    (folder / "guard.sqlite").unlink(missing_ok=True)
    return folder


def codes(guard: Guard, pictures: list[np.ndarray], account: str) -> list[str | None]:
    seen = [guard.check(picture, account) for picture in pictures]
    return [one.code if one else None for one in seen]


def test_images_pass_and_scenes_are_refused_until_their_account_is_stopped(
    config: GuardConfig, store: Path, images: tuple[np.ndarray, ...], scenes: list[np.ndarray]
) -> None:
    """Each scene is flagged; the alarm rings at the third, which the rule sets, and then nothing passes any more."""
    guard = open_guard(config, store)
    held_out = list(images[CALIBRATED:])
    assert codes(guard, held_out, "clinic").count(None) >= HELD_OUT - 2
    assert codes(guard, [*scenes[:4], held_out[0]], "thief") == [
        "refused_by_guard",
        "refused_by_guard",
        "account_blocked",
        "account_blocked",
        "account_blocked",
    ]
    assert "account_blocked" not in codes(guard, held_out[:3], "clinic")
    (stop,) = guard.blocked_accounts()
    assert (stop.account, stop.pictures) == ("thief", 3) and "chest-gate" in stop.why
    assert guard.counts["account_blocked"] == 3 and sum(guard.counts.values()) == HELD_OUT + 5 + 3


def test_one_flagged_picture_stops_nobody(config: GuardConfig, store: Path, scenes: list[np.ndarray]) -> None:
    guard = open_guard(config, store)
    for number in range(8):
        assert codes(guard, [scenes[number]], f"clinic {number}") == ["refused_by_guard"]
    assert guard.blocked_accounts() == []
    with pytest.raises(ConfigError, match="least_flagged=1 is not usable; give at least 2"):
        GuardConfig(least_flagged=1)


def test_a_stop_outlives_the_server_until_somebody_forgives(
    config: GuardConfig, store: Path, images: tuple[np.ndarray, ...], scenes: list[np.ndarray]
) -> None:
    first = open_guard(config, store)
    codes(first, scenes[:3], "thief")
    first.close()
    second = open_guard(config, store)
    assert codes(second, [images[-1]], "thief") == ["account_blocked"]
    assert second.unblock("thief") and not second.unblock("thief")
    assert codes(second, [*scenes[:2], images[-1]], "thief") == ["refused_by_guard", "refused_by_guard", None]


def test_forgiven_by_another_process_it_begins_anew(
    config: GuardConfig, store: Path, images: tuple[np.ndarray, ...], scenes: list[np.ndarray]
) -> None:
    guard = open_guard(config, store)
    codes(guard, scenes[:3], "thief")
    with BlockedAccounts(store) as elsewhere:
        assert "thief" in elsewhere and elsewhere.remove("thief")
    assert codes(guard, [images[-1], *scenes[:3]], "thief") == [
        None,
        "refused_by_guard",
        "refused_by_guard",
        "account_blocked",
    ]


def test_many_threads_stop_an_account_once(config: GuardConfig, store: Path, scenes: list[np.ndarray]) -> None:
    guard = open_guard(config, store)
    reworded: list[str | None] = []
    threads = [threading.Thread(target=lambda: reworded.extend(codes(guard, scenes, "thief"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reworded) == 4 * len(scenes) and reworded.count("refused_by_guard") == 2 and None not in reworded
    assert [stop.account for stop in guard.blocked_accounts()] == ["thief"]


def test_refusals_say_nothing_of_a_image() -> None:
    """A copy learns from answers that speak of an image; a refusal must not be one of them."""
    assert len(_MESSAGES) == 2
    for message in _MESSAGES.values():
        assert not read(message).has_statements


@pytest.mark.parametrize("defence", ["plain", "coarse"])
def test_words_are_those_of_the_defence_and_no_finding_changes(config: GuardConfig, store: Path, defence: str) -> None:
    guard = open_guard(replace(config, defence=defence), store)
    reworded = guard.worded(FINDINGS)
    assert reworded != FINDINGS and [one.observation for one in read(reworded) if one.present] == ["pleural effusion"]
    assert open_guard(config, store).worded(FINDINGS) == FINDINGS


def test_a_report_that_would_change_is_not_handed_out_nor_sent_to_a_log(store: Path) -> None:
    class Lying(Defence):
        name = "lying"

        def reword(self, report: str) -> str:
            return "There is a pneumothorax."

    guard = Guard({}, None, BlockedAccounts(store), Lying())
    with pytest.raises(RunError, match="'lying' cannot reword this report") as error:
        guard.worded(FINDINGS)
    assert "effusion" not in str(error.value) and "pneumothorax" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"defence": "gate"}, "coarse, plain, watermark"),
        ({"detectors": ("chestgate",)}, "Did you mean 'chest-gate'"),
        ({"image_bound": 0.0}, "image_bound"),
        ({"calibrate": ("train", "val", "test")}, "calibrate names every split"),
        ({"account_queries": 5}, "account_queries=5"),
    ],
)
def test_settings_that_cannot_be_are_reported(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GuardConfig(**changes)  # type: ignore[arg-type]


def test_a_guard_without_images_or_with_too_few_is_refused(config: GuardConfig, store: Path) -> None:
    with pytest.raises(ConfigError, match="benign images; name a corpus"):
        open_guard(GuardConfig(), store)
    with pytest.raises(DataError, match="96 benign images are too few.*image_bound"):
        open_guard(GuardConfig(benign=config.benign), store)


def test_a_file_that_is_no_book_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "guard.sqlite").write_text("my notes")
    with pytest.raises(DataError, match="not a file of blocked accounts"):
        BlockedAccounts(tmp_path)
    assert (tmp_path / "guard.sqlite").read_text() == "my notes"


def test_a_new_file_may_be_opened_by_several_at_once(tmp_path: Path) -> None:
    """A server that starts and a person who lists stopped accounts; many rounds, since the moment is short."""
    failed: list[BaseException] = []

    def open_one(store: Path, barrier: threading.Barrier) -> None:
        barrier.wait()
        try:
            BlockedAccounts(store).close()
        except Exception as error:
            failed.append(error)

    for number in range(15):
        barrier = threading.Barrier(8)
        threads = [threading.Thread(target=open_one, args=(tmp_path / str(number), barrier)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
