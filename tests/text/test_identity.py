from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triskele.errors import BadInput
from triskele.text import timestamps
from triskele.text.ids import IdMaker
from triskele.types import ALPHABET, ID_LENGTH

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)


def test_ids_sort_by_time_and_never_repeat() -> None:
    maker = IdMaker()
    ids = [maker.make(NOON + timedelta(milliseconds=number // 10)) for number in range(5_000)]
    assert ids == sorted(set(ids))
    assert all(len(id) == ID_LENGTH and set(id) <= set(ALPHABET) for id in ids)


def test_a_clock_that_runs_backwards_does_not_break_the_order() -> None:
    maker = IdMaker()
    ids = [maker.make(NOON + timedelta(days=365 * years)) for years in (0, 10, -10, 0, 150, 0)]
    assert ids == sorted(set(ids))


def test_two_makers_do_not_meet() -> None:
    one, other = IdMaker(), IdMaker()
    assert not {one.make(NOON) for _ in range(5000)} & {other.make(NOON) for _ in range(5000)}


def test_eight_characters_tell_a_bulk_import_apart() -> None:
    maker = IdMaker()
    ids = [maker.make(NOON) for _ in range(10_000)]
    assert len({id[:8] for id in ids}) == 10_000


def test_an_import_of_any_size_stays_near_the_clock() -> None:
    maker = IdMaker()
    ids = [maker.make(NOON) for _ in range(40_000)]
    assert ids == sorted(set(ids))
    assert ids[-1][:7] <= IdMaker().make(NOON + timedelta(hours=1, seconds=2))[:7]


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)))
def test_moments_survive_the_store_and_the_page(moment: datetime) -> None:
    moment = moment.replace(tzinfo=UTC)
    assert timestamps.from_micros(timestamps.to_micros(moment)) == moment
    assert timestamps.parse(timestamps.to_text(moment)) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "9999999", "2026-02-30T10:00"])
def test_parse_refuses_other_texts_than_dates(text: str) -> None:
    with pytest.raises(BadInput):
        timestamps.parse(text)


def test_a_zone_is_respected_and_its_absence_means_utc() -> None:
    assert timestamps.parse("2026-03-14T10:00:00+02:00") == datetime(2026, 3, 14, 8, tzinfo=UTC)
    assert timestamps.parse("2026-03-14") == datetime(2026, 3, 14, tzinfo=UTC)
