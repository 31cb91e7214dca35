"""A table of rows in one test: every row is checked, and every row that fails is named."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any


def every_row(
    names: str | tuple[str, ...], rows: Iterable[Any], ids: Any = None
) -> Callable[[Any], Callable[[], None]]:
    """Like `pytest.mark.parametrize`, but one test for all rows: a table of a thousand rows is not a thousand tests.

    For checks that need no fixture and take no time; the others stay parametrised, so that workers can share them.
    """
    keys = names.replace(",", " ").split() if isinstance(names, str) else list(names)
    table = list(rows)

    def label(number: int, row: Any) -> str:
        if callable(ids):
            return str(ids(row))
        return str(list(ids)[number]) if ids is not None else repr(row)[:200]

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        @functools.wraps(check)
        def test() -> None:
            assert table, "the table is empty"
            failures: list[tuple[str, BaseException]] = []
            for number, row in enumerate(table):
                values = (row,) if len(keys) == 1 else tuple(row)
                try:
                    check(**dict(zip(keys, values, strict=True)))
                except (Exception, AssertionError) as error:
                    failures.append((label(number, row), error))
            if failures:
                lines = [f"{name}: {type(error).__name__}: {error}" for name, error in failures]
                raise AssertionError(f"{len(lines)} of {len(table)} rows fail:\n" + "\n".join(lines)) from failures[0][
                    1
                ]

        del test.__wrapped__  # pytest would look through it for parameters
        return test

    return decorate
