#!/usr/bin/env python3
"""PySpark's own examples, over a text of numbers that every VM has.

spark_example.py text PARTS NUMBERS         writes the text: a folder of parts
spark_example.py wordcount | sort NUMBERS   runs the example, and checks what it
                                            prints
"""

import contextlib
import io
import random
import runpy
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path("numbers")
DIGITS = 400
LINE = 10
EXAMPLES = "examples/src/main/python"


def numbers(count: int) -> list[str]:
    """Numbers of so many digits that hardly any is there twice, so that nearly
    all words are sent.
    """
    draw = random.Random(7)  # noqa: S311 - a text
    least = 10 ** (DIGITS - 1)
    return [str(draw.randrange(least, 10 * least)) for _ in range(count)]


def write(parts: int, count: int) -> None:
    """Each file is a partition of Spark's, since all are small."""
    words = numbers(count)
    FOLDER.mkdir()
    for part in range(parts):
        lines = lines_of(words[part::parts])
        (FOLDER / f"{part}.txt").write_text("\n".join(lines))


def lines_of(words: list[str]) -> Iterator[str]:
    for first in range(0, len(words), LINE):
        yield " ".join(words[first : first + LINE])


def printed_by(example: str) -> list[str]:
    """The lines that one of PySpark's examples prints."""
    import pyspark

    path = str(Path(pyspark.__path__[0], EXAMPLES, f"{example}.py"))
    sys.argv = [path, str(FOLDER)]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(path, run_name="__main__")
    return printed.getvalue().splitlines()


def is_right(example: str, lines: list[str], words: list[str]) -> bool:
    """Of the word count WORD: COUNT a line, of the sort the words in order."""
    if example == "sort":
        # All have as many digits.
        return lines == sorted(words)
    counts = [f"{word}: {count}" for word, count in Counter(words).items()]
    return sorted(lines) == sorted(counts)


def main() -> None:
    task, *arguments = sys.argv[1:]
    if task == "text":
        write(int(arguments[0]), int(arguments[1]))
        return
    words = numbers(int(arguments[0]))
    lines = printed_by(task)
    verdict = "PASSED" if is_right(task, lines, words) else "FAILED"
    print(f"{task}: {len(lines)} lines:", verdict)


if __name__ == "__main__":
    main()
