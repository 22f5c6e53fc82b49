from __future__ import annotations

from tests.stores.postgres import scale

# A tree of an index that becomes one level deeper touches a page more, in each of its indexes.
DEEPER = 8


def test_more_sessions_touch_no_more_pages(dsn: str) -> None:
    few, more = scale.many(dsn, [200, 4_000])
    assert few.size < more.size
    for name, pages in more.pages.items():
        assert pages <= few.pages[name] + DEEPER, name


def test_more_records_touch_no_more_pages(dsn: str) -> None:
    few, more = scale.long(dsn, [200, 3_000])
    assert few.size < more.size
    for name, pages in more.pages.items():
        assert pages <= few.pages[name] + DEEPER, name
