"""Density of Python source: tokens a line, long lines, conditional expressions.

A code line is a physical line with a token on it; docstrings and comments are
counted apart. Tokens are those of the standard library's ``tokenize`` without
comments, line ends and indentation.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from statistics import median

LONG_LINE_CHARACTERS = 90
NO_TOKENS = frozenset(
    [
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    ]
)
DOCUMENTED = (
    ast.Module,
    ast.ClassDef,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Density:
    """Counts over some files; shares and rates follow from them."""

    lines: int = 0
    tokens: int = 0
    code_lines: int = 0
    long_lines: int = 0
    comment_lines: int = 0
    conditional_expressions: int = 0
    comprehensions: int = 0
    function_tokens: list[int] = field(default_factory=list)

    @property
    def tokens_per_line(self) -> float:
        return self.tokens / max(1, self.code_lines)

    @property
    def long_percent(self) -> float:
        return 100 * self.long_lines / max(1, self.code_lines)

    @property
    def comment_percent(self) -> float:
        return 100 * self.comment_lines / max(1, self.lines)

    @property
    def conditional_per_thousand(self) -> float:
        return 1000 * self.conditional_expressions / max(1, self.code_lines)

    @property
    def comprehensions_per_thousand(self) -> float:
        return 1000 * self.comprehensions / max(1, self.code_lines)

    @property
    def function_median(self) -> float:
        return median(self.function_tokens or [0])

    @property
    def function_p90(self) -> int:
        ordered = sorted(self.function_tokens or [0])
        return ordered[int(0.9 * len(ordered))]


def density(sources: Iterable[str]) -> Density:
    """Counts over all sources together."""
    total = Density()
    for source in sources:
        counts = _counts(source)
        for name in (count.name for count in fields(Density)):
            setattr(
                total, name, getattr(total, name) + getattr(counts, name)
            )
    return total


@cache
def tree_of(source: str) -> ast.Module:
    """A source's syntax tree; what nobody may change."""
    return ast.parse(source)


@cache
def _counts(source: str) -> Density:
    """A source's counts; what nobody may change."""
    counts = Density()
    lines = source.splitlines()
    nodes = list(ast.walk(tree_of(source)))
    documentation = set(_documentation_lines(nodes))
    tokens_on_line: Counter[int] = Counter()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            alone = lines[line - 1].lstrip().startswith("#")
            counts.comment_lines += int(alone)
        if token.type not in NO_TOKENS and line not in documentation:
            tokens_on_line[line] += 1
    counts.lines = len(lines)
    counts.tokens = tokens_on_line.total()
    counts.code_lines = len(tokens_on_line)
    for line in tokens_on_line:
        if len(lines[line - 1]) > LONG_LINE_CHARACTERS:
            counts.long_lines += 1
    for node in nodes:
        if isinstance(node, ast.IfExp):
            counts.conditional_expressions += 1
        elif isinstance(node, COMPREHENSIONS):
            counts.comprehensions += 1
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            last = node.end_lineno or node.lineno
            span = range(node.lineno, last + 1)
            tokens = sum(tokens_on_line[line] for line in span)
            counts.function_tokens.append(tokens)
    return counts


def _documentation_lines(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Lines of the docstrings of the module, its classes and functions."""
    for node in nodes:
        if not isinstance(node, DOCUMENTED) or not node.body:
            continue
        first = node.body[0]
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            last = first.end_lineno or first.lineno
            yield from range(first.lineno, last + 1)
