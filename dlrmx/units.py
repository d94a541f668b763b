"""How numbers are shown: bytes, counts, durations and metrics. Nowhere else are they formatted."""

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNT_UNITS = ("", " K", " M", " G", " T")
_SHORT = (("us", 1e6), ("ms", 1e3), ("s", 1.0))


def format_bytes(num_bytes: float) -> str:
    """Bytes in powers of 1,024: 1536 -> '1.5 KiB'."""
    value, unit = float(num_bytes), 0
    while _rounds_to(value, 1024) and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{_three_digits(value)} {_BYTE_UNITS[unit]}"


def format_count(count: float) -> str:
    """A count: '9,999' exactly below 10,000, then in powers of 1,000: 2.5e6 -> '2.5 M'."""
    if abs(count) < 9_999.5:
        return f"{count:,.0f}"
    value, unit = float(count), 0
    while _rounds_to(value, 1000) and unit < len(_COUNT_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{_three_digits(value)}{_COUNT_UNITS[unit]}"


def format_number_of(count: int, what: str) -> str:
    """So many things: '1 worker', '2,000 workers'."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def format_duration(seconds: float) -> str:
    """Wall time: '0.25 s', '42 s', '3 min 20 s', '2 h 05 min', '3 d 04 h'."""
    if seconds < 9.5:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600:02d} h"


def format_short(seconds: float) -> str:
    """A time within a step, three digits: '1.5 us', '38 ms', '1.25 s'."""
    if seconds <= 0:
        return "0"
    unit, scale = next(((unit, scale) for unit, scale in _SHORT if seconds * scale < 999.5), _SHORT[-1])
    return f"{_three_digits(seconds * scale)} {unit}"


def format_metric(value: float | None, *, digits: int = 4) -> str:
    """A metric, or 'undefined' where there is none (AUC of one class, for example)."""
    return "undefined" if value is None else f"{value:.{digits}f}"


def format_rate(value: float | None) -> str:
    """A learning rate: three significant digits."""
    return "undefined" if value is None else f"{value:.3g}"


def _rounds_to(value: float, limit: int) -> bool:
    """Whether the value, shown with at most one decimal where it is large, would read `limit` or more."""
    return abs(value) >= limit - 0.5


def _three_digits(value: float) -> str:
    """Up to three significant digits, without trailing zeros: 1.5, 12.3, 123."""
    text = f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
