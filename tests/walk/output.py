"""Printed and real output: what differs in each run is replaced by patterns before the two are compared."""

import difflib
import re

# Parts that differ in each run, and what stands for them.
PATTERNS = [
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "TIME"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{1,12}"), "UUID"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "SHA-256"),
    (re.compile(r"\b\d+ MB free"), "N MB free"),
    (re.compile(r'("(?:took_us|millis|took_ms)": ?)\d+'), r"\1N"),
    (re.compile(r"\b\d+\.\d (?=  )"), "RATE "),
    # Columns of tables are as wide as their widest cell.
    (re.compile(r"(?<=\S)   *"), "  "),
    (re.compile(r" +$"), ""),
]

# Stands for any text in printed output.
ANY = "…"


def comparable(line):
    for pattern, name in PATTERNS:
        line = pattern.sub(name, line)
    return line


def is_same(printed, real):
    """Returns whether a printed line stands for a real one."""
    printed, real = comparable(printed), comparable(real)
    if ANY not in printed:
        return printed == real
    return re.fullmatch(".*".join(map(re.escape, printed.split(ANY))), real) is not None


def matches(printed, real):
    """Returns whether the printed lines stand for the real ones."""
    return len(printed) == len(real) and all(map(is_same, printed, real))


def merged(printed, real):
    """Returns the real lines, with the printed line for each one that is the same, so that only changes are written."""
    known = [line if any(is_same(old, line) for old in printed) else None for line in real]
    result, rest = [], list(printed)
    for line, is_known in zip(real, known):
        place = next((n for n, old in enumerate(rest) if is_same(old, line)), None) if is_known is not None else None
        if place is None:
            result.append(line)
        else:
            result.append(rest[place])
            del rest[: place + 1]
    return result


def difference(place, printed, real):
    """Returns the difference for people."""
    same = merged(printed, real)
    lines = difflib.unified_diff(printed, same, f"{place} (printed)", f"{place} (real)", lineterm="", n=1)
    return "\n".join(lines)
