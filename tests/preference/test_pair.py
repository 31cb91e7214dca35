from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.records import PreferencePair
from cxrlab.core.runs import Run, state
from cxrlab.data.corpus import Corpus
from cxrlab.preference.config import PAIRS_FILE, UNPAIRED_FILE, PairConfig
from cxrlab.preference.dataset import read_preferences
from cxrlab.preference.make_pairs import Pairing, pair
from cxrlab.preference.reward_files import REWARDS, JudgedStudy, RewardedReport

NAN = math.nan


def judged(folder: Path, *studies: JudgedStudy, name: str = "green:rules") -> Path:
    """A finished run of `prefer judge`."""
    with Run.open(folder, {"made": "for a test"}) as run:
        for study in studies:
            run.append(REWARDS, study)
        run.write("summary.json", {"judge": {"name": name, "signature": name}})
    return folder


def study(key: str, *given: tuple[str, float], preferred: tuple[tuple[int, int], ...] | None = None) -> JudgedStudy:
    reports = tuple(RewardedReport(text, len(text.split()), reward) for text, reward in given)
    return JudgedStudy(key, 4, reports, preferred)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


STUDIES = (
    study("s0", ("good report here", 1.0), ("bad", 0.25), ("middling", 0.5), ("BAD ", 0.25)),
    study("s1", ("same", 0.5), ("equal", 0.5)),
    study("s3", ("", 1.0), ("alone", 0.5), ("nobody knows", NAN)),
    study("s4", ("short", 0.75), ("rather longer", 0.25)),
)


def test_pairs_from_rewards_on_round_numbers(tmp_path: Path) -> None:
    done = pair(PairConfig(rewards=judged(tmp_path / "judged", *STUDIES)), tmp_path / "run")
    assert lines(tmp_path / "run" / PAIRS_FILE) == [
        PreferencePair("s0", "good report here", "bad", "green:rules", 1.0, 0.25).to_json(),
        PreferencePair("s4", "short", "rather longer", "green:rules", 0.75, 0.25).to_json(),
    ]
    assert lines(tmp_path / "run" / UNPAIRED_FILE) == [
        {"id": "s0", "report": "good report here", "desirable": True, "score": 1.0},
        {"id": "s0", "report": "bad", "desirable": False, "score": 0.25},
        {"id": "s4", "report": "short", "desirable": True, "score": 0.75},
        {"id": "s4", "report": "rather longer", "desirable": False, "score": 0.25},
    ]
    counts = {"studies": 4, "candidates": 11, "duplicates": 1, "empty": 1, "undefined": 1, "alone": 1, "ties": 1}
    counts |= {"kept": 2, "single": 4, "too_long": 0, "below_margin": 0, "undecided": 0}
    assert {name: getattr(done, name) for name in counts} == counts
    assert (done.judge, done.chosen_words, done.rejected_words) == ("green:rules", 2.0, 1.5)
    assert (done.chosen_longer, done.mean_margin) == (0.5, 0.625)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["kept"] == 2
    assert state(tmp_path / "run") == "finished"


def test_the_settings_reach_the_rules(tmp_path: Path) -> None:
    run = judged(tmp_path / "judged", *STUDIES)
    assert pair(PairConfig(rewards=run, margin=0.6), tmp_path / "a").below_margin == 1
    assert pair(PairConfig(rewards=run, least_reward=0.8), tmp_path / "b").too_low == 1
    # Of s0 the best has three words against one: the next best, of one word, takes its place.
    done = pair(PairConfig(rewards=run, longest_ratio=1.0), tmp_path / "c")
    assert [line["chosen"] for line in lines(tmp_path / "c" / PAIRS_FILE)] == [
        "middling",
        "short",
    ] and done.too_long == 0
    many = judged(tmp_path / "many", study("s0", *((str(n), float(n)) for n in range(6))))
    done = pair(PairConfig(rewards=many, pairs=2), tmp_path / "d")
    found = [(line["chosen"], line["rejected"]) for line in lines(tmp_path / "d" / PAIRS_FILE)]
    assert found == [("5", "0"), ("4", "1")] and done.kept == 2


def test_a_pairwise_judge_is_asked_about_the_pair_itself(tmp_path: Path) -> None:
    """Wins − losses put a first; it never won against c, so b is chosen; in the other study nobody ever won."""
    one = study("s0", ("a", 2.0), ("b", 1.0), ("c", -3.0), preferred=((0, 1), (1, 2)))
    two = study("s1", ("a", 1.0), ("b", 0.0), preferred=())
    done = pair(PairConfig(rewards=judged(tmp_path / "judged", one, two, name="errors:rules")), tmp_path / "run")
    assert [(line["chosen"], line["rejected"]) for line in lines(tmp_path / "run" / PAIRS_FILE)] == [("b", "c")]
    assert done.not_preferred == 1 and done.judge == "errors:rules"


def test_a_draft_that_was_cut_is_never_chosen_and_may_be_rejected(tmp_path: Path) -> None:
    """Of s0 the best was cut and the next best stands for it; of s1 every better one was; of s2 the worse one was."""
    cut = {"the best of all", "better but", "rambling on and"}
    studies = [
        study("s0", ("the best of all", 1.0), ("good.", 0.5), ("bad.", 0.25)),
        study("s1", ("better but", 1.0), ("worse.", 0.0)),
        study("s2", ("right.", 1.0), ("rambling on and", 0.5)),
    ]
    marked = [
        replace(one, candidates=tuple(replace(each, truncated=each.report in cut) for each in one.candidates))
        for one in studies
    ]
    asked = PairConfig(rewards=judged(tmp_path / "judged", *marked))
    done = pair(asked, tmp_path / "run")
    found = [(line["chosen"], line["rejected"]) for line in lines(tmp_path / "run" / PAIRS_FILE)]
    assert found == [("good.", "bad."), ("right.", "rambling on and")] and (done.kept, done.cut) == (2, 1)
    good = {line["report"] for line in lines(tmp_path / "run" / UNPAIRED_FILE) if line["desirable"]}
    assert good == {"good.", "right."}
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert Pairing.from_json(summary) == done and summary.pop("cut") == 1
    assert Pairing.from_json(summary) == replace(done, cut=0), "an older summary does not count them"
    done = pair(replace(asked, allow_cut=True), tmp_path / "all")
    assert (done.kept, done.cut) == (3, 0) and lines(tmp_path / "all" / PAIRS_FILE)[0]["chosen"] == "the best of all"


class Stop(Exception):
    """In place of a kill."""


@pytest.mark.parametrize("stop", range(6))
def test_a_stopped_run_ends_with_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int) -> None:
    asked = PairConfig(rewards=judged(tmp_path / "judged", *STUDIES))
    whole = pair(asked, tmp_path / "whole")
    append, count = Run.append, 0

    def stopping(run: Run, file: str, record: Any) -> None:
        nonlocal count
        if count == stop:
            raise Stop
        count += 1
        append(run, file, record)

    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(Run, "append", stopping)
        pair(asked, tmp_path / "run")
    with (tmp_path / "run" / PAIRS_FILE).open("ab") as stream:
        stream.write(b'{"id": "torn')
    assert pair(asked, tmp_path / "run") == whole
    for name in (PAIRS_FILE, UNPAIRED_FILE, "summary.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_finished_run_is_left_as_it_is_unless_its_rewards_have_changed(tmp_path: Path) -> None:
    asked = PairConfig(rewards=judged(tmp_path / "judged", *STUDIES))
    done = pair(asked, tmp_path / "run")
    assert pair(asked, tmp_path / "run") == done
    file = tmp_path / "judged" / REWARDS
    file.write_text(file.read_text().replace("0.75", "0.7"))
    with pytest.raises(RunError, match="rewards.jsonl has changed since the run in"):
        pair(asked, tmp_path / "run")


def test_no_pair_at_all_leaves_empty_files_and_no_means(tmp_path: Path) -> None:
    asked = PairConfig(rewards=judged(tmp_path / "judged", STUDIES[1]))
    done = pair(asked, tmp_path / "run")
    assert done.kept == 0 and math.isnan(done.mean_margin) and math.isnan(done.chosen_longer)
    assert (tmp_path / "run" / PAIRS_FILE).read_bytes() == (tmp_path / "run" / UNPAIRED_FILE).read_bytes() == b""
    assert math.isnan(pair(asked, tmp_path / "run").mean_margin), "read back from the summary"


def test_what_is_no_judged_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no rewards.jsonl; name the folder of a run of 'cxrlab prefer judge'"):
        pair(PairConfig(rewards=tmp_path), tmp_path / "run")
    with pytest.raises(Stop), Run.open(tmp_path / "half", {}) as run:
        run.append(REWARDS, STUDIES[0])
        raise Stop
    with pytest.raises(DataError, match="half is a run that has not finished; run its command again"):
        pair(PairConfig(rewards=tmp_path / "half"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def feedback(folder: Path, corpus: Corpus, text: str, **changes: Any) -> tuple[Pairing, list[dict[str, Any]]]:
    path = folder / "f.csv"
    path.write_text(text)
    done = pair(PairConfig(feedback=path, data=corpus.path, **changes), folder / "run")
    return done, lines(folder / "run" / PAIRS_FILE)


def test_pairs_of_readers_are_all_kept(toy: Corpus, tmp_path: Path) -> None:
    """Three of one study, whatever `pairs` is; a report that wins one and loses one is neither good nor bad."""
    text = "id,chosen,rejected\ns0,a,b\ns0,b,c\ns0,d,c\ns1,e,f\ns1,f,e\n"
    done, found = feedback(tmp_path, toy, text)
    assert [(line["id"], line["chosen"], line["rejected"]) for line in found] == [
        ("s0", "a", "b"),
        ("s0", "b", "c"),
        ("s0", "d", "c"),
    ]
    assert {line["judge"] for line in found} == {"readers:pairs"}
    assert (done.kept, done.contradicted, done.undecided, done.candidates) == (3, 1, 1, 4)
    desirable = {line["report"]: line["desirable"] for line in lines(tmp_path / "run" / UNPAIRED_FILE)}
    assert desirable == {"a": True, "c": False, "d": True}


def test_pairs_of_readers_may_be_too_long(toy: Corpus, tmp_path: Path) -> None:
    done, found = feedback(tmp_path, toy, "id,chosen,rejected\ns0,a a a,b\ns1,a,b\n", longest_ratio=2.0)
    assert [line["id"] for line in found] == ["s1"] and (done.too_long, done.kept) == (1, 1)


def test_ratings_of_readers_go_through_the_same_rules(toy: Corpus, tmp_path: Path) -> None:
    text = "id,report,rating\ns0,a,1\ns0,b,5\ns0,c,3\ns1,a,2\ns1,b,2\n"
    done, found = feedback(tmp_path, toy, text, margin=2.0)
    assert found == [PreferencePair("s0", "b", "a", "readers:ratings", 5.0, 1.0).to_json()]
    assert (done.ties, done.kept, done.studies, done.candidates) == (1, 1, 2, 5)


def test_error_counts_of_readers_with_their_weight(toy: Corpus, tmp_path: Path) -> None:
    """One significant error against three small ones: −1 against −0.3, or with a weight of 0.5 against −1.5."""
    text = "id,report,significant,insignificant\ns0,a,1,0\ns0,b,0,3\n"
    assert feedback(tmp_path, toy, text)[1][0]["chosen"] == "b"
    (tmp_path / "other").mkdir()
    found = feedback(tmp_path / "other", toy, text, minor_weight=0.5)[1][0]
    assert (found["chosen"], found["chosen_score"], found["rejected_score"]) == ("a", -1.0, -1.5)


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        (
            "id,chosen,rejected\ns0,a,b\n",
            {"pairs": 2},
            "pairs has no effect on feedback in the form of pairs; leave it out",
        ),
        ("id,chosen,rejected\ns0,a,b\n", {"margin": 0.5}, "margin has no effect"),
        ("id,chosen,rejected\ns0,a,b\n", {"least_reward": 0.5}, "least_reward has no effect"),
        ("id,chosen,rejected\ns0,a,b\n", {"minor_weight": 0.5}, "minor_weight has no effect"),
        (
            "id,report,rating\ns0,a,1\n",
            {"minor_weight": 0.5},
            "minor_weight has no effect on feedback in the form of rat",
        ),
    ],
)
def test_settings_that_would_go_unheard_are_refused(
    toy: Corpus, tmp_path: Path, text: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        feedback(tmp_path, toy, text, **changes)
    assert not (tmp_path / "run").exists()


def test_what_is_written_is_what_training_reads(toy: Corpus, tmp_path: Path) -> None:
    """Both files pass the checks of preference training: pairs by twos, single reports with their verdict."""
    pair(PairConfig(rewards=judged(tmp_path / "judged", *STUDIES)), tmp_path / "run")
    paired = read_preferences(tmp_path / "run", toy.path, paired=True)
    texts = [sample.report for sample in paired.source.samples]
    assert texts == ["good report here", "bad", "short", "rather longer"] and paired.desirable is None
    single = read_preferences(tmp_path / "run", toy.path, paired=False)
    assert single.desirable is not None and single.desirable.tolist() == [True, False, True, False]
