"""Files of other tools, changed by bytes, words and pieces: each is an experiment
or is refused by its name.
"""

from __future__ import annotations

import gzip
import random
from pathlib import Path

from testbed.errors import BadInput
from testbed.importing.recognition import KINDS, import_files
from testbed.spec.experiment_file import parse_experiment
from tests.support.fuzz.mutations import (
    NUMBERS,
    SIZES,
    flipped,
    rearranged,
    replaced_word,
)
from tests.support.fuzz.workers import Unsound
from tests.unit.importing.samples import SAMPLES

PIECES = (
    *("&a ", "*a", "<<: *a\n", "{", "]", "'", '"', "\t", "\x00", "\ufeff"),
    *(
        "<!DOCTYPE a>",
        "&amp;",
        "&x;",
        "<graph>",
        "</node>",
        "<![CDATA[",
        "-->",
    ),
    *("null", "true", "[]", "{}", "2024-01-01", "!!python/name:os.system"),
)


def _content(rng: random.Random, kind: str) -> bytes:
    text = SAMPLES[kind]
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        change = rng.choice((replaced_word, rearranged))
        text = change(rng, text)
        if rng.random() < 0.5:
            at = rng.randrange(len(text) + 1)
            piece = rng.choice((*PIECES, *NUMBERS.values(), *SIZES))
            text = text[:at] + piece + text[at:]
    data = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.2:
        data = flipped(rng, data)
    if rng.random() < 0.1:
        data = gzip.compress(data, 1, mtime=0)
    return data


def attempt(rng: random.Random, folder: Path) -> str:
    """Import a file, by its content or as a kind that it may not be."""
    path = folder / "file"
    path.write_bytes(_content(rng, rng.choice(KINDS)))
    kind = rng.choice(KINDS) if rng.random() < 0.1 else None
    try:
        imported = import_files(
            [path],
            kind,
            rng.choice((None, 1, 3)),
            whole=rng.random() < 0.3,
            lenient=rng.random() < 0.5,
        )
    except BadInput as error:
        if str(path) not in error.message or "\n" in error.message:
            raise Unsound(f"no sentence on the file: {error}") from error
        return "refused"
    parse_experiment(imported.text(), folder / "made.yaml")
    return "imported"
