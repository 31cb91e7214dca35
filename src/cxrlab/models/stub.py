"""Models that never look at the image: the floor that any real model has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from cxrlab.core.errors import UnknownName, nearest
from cxrlab.core.protocols import Capabilities, Generated

if TYPE_CHECKING:
    from cxrlab.core.protocols import Image
    from cxrlab.models.loading import Loading
    from cxrlab.models.retrieval import Library

REPORTS = MappingProxyType(
    {
        "normal": (
            "The heart is normal in size. The mediastinal and hilar contours are unremarkable. The lungs are clear "
            "without consolidation, edema or nodule. There is no pleural effusion or pneumothorax. "
            "No acute osseous abnormality is seen."
        ),
        "empty": "",
    }
)


class Stub:
    """Writes one constant report for every image.

    Args:
        which: A name of `REPORTS`: `normal`, or `empty` for a report without a word.
    """

    USAGES = MappingProxyType(
        {"stub:normal": "the same normal report for every image", "stub:empty": "a report without a word"}
    )

    def __init__(self, which: str) -> None:
        if which not in REPORTS:
            raise UnknownName(
                f"there is no stub '{which}'.{nearest(which, REPORTS)} There are: {', '.join(self.USAGES)}."
            )
        self.which = which

    @classmethod
    def load(cls, argument: str, library: Library, loading: Loading) -> Stub:
        """The stub of this name; it needs no library and has nothing to load."""
        return cls(argument)

    @property
    def name(self) -> str:
        """`stub:normal`, `stub:empty`."""
        return f"stub:{self.which}"

    @property
    def collections(self) -> tuple[str, ...]:
        """It has learnt from nothing."""
        return ()

    @property
    def capabilities(self) -> Capabilities:
        """A batch costs nothing; there is nothing to differentiate."""
        return Capabilities(batch=True)

    def generate(self, images: Sequence[Image], indications: Sequence[str | None] | None = None) -> list[Generated]:
        """The constant report, once for each image."""
        return [Generated(REPORTS[self.which]) for _ in images]
