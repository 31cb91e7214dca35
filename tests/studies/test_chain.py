from __future__ import annotations

from pathlib import Path

import cxrlab
from cxrlab.studies.chain import PARTS, chain


def test_a_part_is_here_exactly_when_its_room_has_a_face() -> None:
    package = Path(cxrlab.__file__).parent
    assert {part.part: part.here for part in chain()} == {
        room: (package / room / "__init__.py").is_file() for room, _ in PARTS
    }


def test_what_this_tour_itself_walks_through_is_here() -> None:
    here = {part.part for part in chain() if part.here}
    assert {"data", "findings", "models", "evaluation", "render"} <= here
