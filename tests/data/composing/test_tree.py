"""Nodes give studies in order and print with the number of studies that pass each."""

from __future__ import annotations

from pathlib import Path

from composition_members import corpus, study

from cxrlab.core.records import Box, ImageFile
from cxrlab.core.vocabulary import View
from cxrlab.data.compose import Filter, Merge, Source, Subset, Tally, printed, renamed


def even(one: object) -> object:
    return one if int(one.id[1:]) % 2 == 0 else None  # type: ignore[attr-defined]


def test_the_tree_is_printed_with_the_count_of_every_node(tmp_path: Path) -> None:
    a, b = corpus(tmp_path / "a", map(study, range(5))), corpus(tmp_path / "b", map(study, range(2)))
    tree = Merge({"a": Subset(Filter(Source(a), "filter: even", even), 2, 7), "b": Source(b)})
    tally = Tally()
    assert len(list(tree.studies(tally))) == 4
    width = len(f"│     └─ corpus {a.path}")
    assert printed(tree, tally) == [
        f"{'merge':<{width}}  4 studies",
        f"{'├─ a: subset of 2 (seed 7)':<{width}}  2 studies",
        f"{'│  └─ filter: even':<{width}}  3 studies",
        f"│     └─ corpus {a.path}  5 studies",
        f"{f'└─ b: corpus {b.path}':<{width}}  2 studies",
    ]


def test_a_subset_keeps_order_and_grows_by_adding(tmp_path: Path) -> None:
    """What is drawn depends on id and seed: ten of thirty are among any twenty of them, another seed draws others."""
    source = Source(corpus(tmp_path / "a", map(study, range(30))))
    ids = [one.id for one in source.studies()]
    ten, twenty = ([one.id for one in Subset(source, n, 7).studies()] for n in (10, 20))
    assert len(ten) == 10 and len(twenty) == 20 and set(ten) < set(twenty)
    assert twenty == [name for name in ids if name in set(twenty)]
    assert {one.id for one in Subset(source, 10, 8).studies()} != set(ten)
    assert [one.id for one in Subset(source, 99, 7).studies()] == ids


def test_a_merge_leads_every_name_and_path_by_the_member(tmp_path: Path) -> None:
    """Two hospitals may both have a study s1; images are reached through the member's link."""
    absent = (ImageFile("images/gone.png", View.PA),)
    one = study(1, prior="s0", masks={"0": "masks/s1.png"}, boxes=(Box("x", (0, 0, 1, 1)),), absent_images=absent)
    moved = renamed(one, "a")
    assert (moved.id, moved.patient, moved.prior) == ("a/s1", "a/p1", "a/s0")
    assert moved.images[0].path == "a/images/s1_0.png" and moved.masks == {"0": "a/masks/s1.png"}
    assert moved.absent_images == (ImageFile("a/images/gone.png", View.PA),)
    assert moved.extra["corpus"] == "a" and moved.boxes == one.boxes and moved.sections == one.sections
