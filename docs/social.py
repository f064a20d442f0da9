"""The picture that other places show beside a link to the site."""

import hashlib
import io
import re
import textwrap
from configparser import ConfigParser
from pathlib import Path

from execute import ROOT
from executed import CACHE

STEPS = (("x", "2", "48"), ("· 3", "6", "16"), ("+ 2", "8", "16"), ("square", "64", "1"))  # y = (3x + 2)², forward and back


def card(title: str) -> bytes:
    "The picture for one chapter: kept in the cache, by its words."
    kept = CACHE / "cards" / f"{hashlib.sha256(title.encode() + Path(__file__).read_bytes()).hexdigest()[:20]}.png"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(picture(re.sub(r"[`*$]", "", title)))
    return kept.read_bytes()


def picture(title: str = "") -> bytes:
    "A PNG of 1200 × 630 pixels: the name and the promise, or a chapter's title, and a graph with its values and gradients."
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    parser = ConfigParser(delimiters=["="])
    parser.read(ROOT / "settings.ini", encoding="utf-8")
    ground, ink, muted, value, gradient = "#12171d", "#f2f5f8", "#a9b5c2", "#82c3ff", "#ffb26b"
    with matplotlib.rc_context({"font.family": "DejaVu Sans"}):
        figure = Figure(figsize=(12, 6.3), dpi=100, facecolor=ground)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, 1200), ylim=(0, 630))
        axes.axis("off")
        name, promise = parser["DEFAULT"]["lib_name"], "Automatic differentiation you can read and watch"
        if title:
            lines = textwrap.wrap(title, 34)[:2]
            axes.text(80, 552, name, color=muted, size=25)
            for number, line in enumerate(lines):
                axes.text(80, 438 - 66 * number + 33 * (len(lines) - 1), line, color=ink, size=42, weight="bold")
        else:
            axes.text(80, 500, name, color=ink, size=58, weight="bold")
            axes.text(80, 430, promise, color=muted, size=25)
        for number, (name, forward, back) in enumerate(STEPS):
            x = 80 + number * 280
            axes.add_patch(FancyBboxPatch((x, 190), 200, 110, boxstyle="round,pad=0,rounding_size=14", facecolor="#1d242d", edgecolor="#56626f", linewidth=2))
            axes.text(x + 100, 262, name, color=ink, size=24, weight="bold", ha="center", va="center")
            axes.text(x + 100, 218, forward, color=value, size=22, ha="center", va="center")
            axes.text(x + 100, 150, "grad " + back, color=gradient, size=22, ha="center", va="center")
            if number:
                axes.add_patch(FancyArrowPatch((x - 76, 245), (x - 4, 245), arrowstyle="-|>", mutation_scale=22, color=value, linewidth=3))
                axes.add_patch(FancyArrowPatch((x + 10, 150), (x - 90, 150), arrowstyle="-|>", mutation_scale=22, color=gradient, linewidth=3))
        axes.text(80, 62, "import autograd_nb as torch", color=ink, size=22, family="DejaVu Sans Mono")
        file = io.BytesIO()
        figure.savefig(file, format="png", facecolor=ground, metadata={"Software": None})
    return file.getvalue()
