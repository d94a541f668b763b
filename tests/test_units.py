"""Numbers as people read them; the expected texts are written by hand."""

import pytest

from dlrmx.units import (
    format_bytes,
    format_count,
    format_duration,
    format_metric,
    format_number_of,
    format_rate,
    format_short,
)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (2**20 - 1, "1 MiB"),  # 1,023.999 KiB is not shown as 1024 KiB
        (3 * 2**30, "3 GiB"),
        (12.34 * 2**30, "12.3 GiB"),
        (123.4 * 2**40, "123 TiB"),
        (5000 * 2**50, "5000 PiB"),
    ],
)
def test_bytes_are_in_powers_of_1024(num_bytes: float, text: str) -> None:
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (9_999, "9,999"),
        (10_000, "10 K"),
        (12_345.6, "12.3 K"),
        (999_499, "999 K"),
        (999_700, "1 M"),
        (2.5e6, "2.5 M"),
        (4e9, "4 G"),
    ],
)
def test_counts_are_exact_while_small(count: float, text: str) -> None:
    assert format_count(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.25 s"),
        (9.6, "10 s"),
        (42.4, "42 s"),
        (59.7, "1 min 00 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 05 min"),
        (3 * 86_400 + 4 * 3600, "3 d 04 h"),
    ],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_an_undefined_metric_says_so() -> None:
    assert format_metric(None) == "undefined"
    assert format_metric(0.75314) == "0.7531"
    assert format_metric(1.0, digits=2) == "1.00"


def test_rates_keep_three_digits() -> None:
    assert format_rate(0.005) == "0.005"
    assert format_rate(1.23456e-7) == "1.23e-07"
    assert format_rate(None) == "undefined"


def test_short_times() -> None:
    shown = [format_short(seconds) for seconds in (0, 1.5e-6, 0.0009994, 0.00099951, 0.0384, 1.25, 1234.0)]
    assert shown == ["0", "1.5 us", "999 us", "1 ms", "38.4 ms", "1.25 s", "1234 s"]


def test_one_thing_has_no_s() -> None:
    assert [format_number_of(count, "rank") for count in (0, 1, 2_000)] == ["0 ranks", "1 rank", "2,000 ranks"]
