"""Draws what was predicted beside what was measured: bars here, and shares.svg for a browser."""

import json
import sys
from pathlib import Path

import sharing

RESULTS, PICTURE = Path("measured.json"), Path("shares.svg")
WIDTH, SVG_WIDTH, BAR, GAP, LEFT = 60, 600, 14, 10, 170
COLOURS = {"predicted": "#9aa7b5", "measured": "#2a6fb0"}


def bars(results):
    """(label, kind, rate) of each bar: of each experiment and tenant, predicted and measured."""
    found = []
    for result in results:
        predicted = sharing.tenant_rates(*sharing.experiment(result["flows"]))
        for number, (tenant, rate) in enumerate(sorted(result["rates"].items())):
            label = f"1 : {result['flows']}  {tenant}"
            found += [(label, "predicted", predicted[number]), (label, "measured", rate)]
    return found


def as_text(drawn):
    """Lines for a terminal."""
    most = max(rate for _, _, rate in drawn) or 1
    lines = []
    for label, kind, rate in drawn:
        bar = "━" * max(1, round(WIDTH * rate / most))
        lines.append(f"{label if kind == 'predicted' else '':<10}{kind:<10} {bar} {rate:.1f}")
    return "\n".join(lines)


def as_svg(drawn):
    """A picture of the same bars, with its figures as text."""
    most = max(rate for _, _, rate in drawn) or 1
    parts, y = [], GAP
    for label, kind, rate in drawn:
        width = SVG_WIDTH * rate / most
        text = f'font-family="sans-serif" font-size="12" y="{y + BAR - 3}"'
        parts.append(f'<text x="4" {text}>{label} {kind}</text>')
        bar = f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}"'
        parts.append(f'{bar} fill="{COLOURS[kind]}"/>')
        parts.append(f'<text x="{LEFT + width + 6:.1f}" {text}>{rate:.1f} Mbit/s</text>')
        y += BAR + (GAP if kind == "measured" else 2)
    size = f'width="{LEFT + SVG_WIDTH + 110}" height="{y}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n' + "\n".join(parts) + "\n</svg>\n"


def main():
    try:
        results = json.loads(RESULTS.read_text("utf-8"))
    except FileNotFoundError:
        sys.exit(f"{RESULTS} is not there yet: sudo python3 measure.py 1 3 8")
    drawn = bars(results)
    print(as_text(drawn))
    PICTURE.write_text(as_svg(drawn), "utf-8")
    print(f"{PICTURE} is written")


if __name__ == "__main__":
    main()
