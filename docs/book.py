"""Make the book printable: `python run.py book`.

An EPUB (a zip of XHTML pages, made of the notebooks as they are stored, so that nothing has to run), and from the same pages a PDF where Chromium is installed.
Widgets appear as their stills, formulas as small drawings, solutions at the end of each chapter.
"""

import argparse
import hashlib
import html
import io
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import nbformat
from execute import NOTEBOOKS, ROOT, STILL
from markdown_it import MarkdownIt

sys.path.insert(0, str(ROOT))
from autograd_nb.widgets.stills import still_svg  # noqa: E402

TARGET = ROOT / "_book"
TITLE = "Gradients you can read and watch"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
STYLE = """
body{font-family:Georgia,serif;line-height:1.45;color:#1c2530;max-width:44em;margin:0 auto;padding:0 1em}
h1,h2,h3{font-family:system-ui,sans-serif;line-height:1.2}h1{page-break-before:always}
pre{font-size:.82em;white-space:pre-wrap;overflow-wrap:anywhere;background:#f3f5f8;border-left:3px solid #a9b4c0;padding:.5em .7em}
pre.output{background:none;border-left-color:#0a5aa8}blockquote{border-left:3px solid #a84300;margin-left:0;padding-left:1em;color:#333}
table{border-collapse:collapse;font-size:.9em}td,th{border:1px solid #a9b4c0;padding:.2em .5em}img{max-width:100%}img.math{display:inline}
p.formula{text-align:center}details{margin:.6em 0}summary{font-weight:bold}
"""
HEAD = ('<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" lang="en">'
        '<head><meta charset="utf-8"/><title>{title}</title><link rel="stylesheet" href="style.css"/></head><body>{body}</body></html>')


def chapters() -> list[Path]:
    "The notebooks of the book: those with a number in order, then what stands beside them."
    paths = sorted((NOTEBOOKS / "book").glob("*.ipynb"))
    return [p for p in paths if p.name[0].isdigit()] + [p for p in paths if not p.name[0].isdigit()]


class Pages:
    "Pages and pictures of the book by their file names."

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.titles: dict[str, str] = {}
        self.markdown = MarkdownIt("commonmark", {"xhtmlOut": True, "html": True}).enable("table")
        self.heights: dict[str, tuple[float, float]] = {}

    def picture(self, svg: str, kind: str = "picture") -> str:
        name = f"images/{kind}-{hashlib.sha256(svg.encode()).hexdigest()[:16]}.svg"
        self.files[name] = svg.encode()
        return name

    def formula(self, source: str, displayed: bool = False) -> str:
        "A formula as an image; as its source where it cannot be drawn."
        try:
            name, height, depth = drawn_formula(self, source)
        except (ValueError, ImportError, RuntimeError):
            return f"<code>{html.escape(source)}</code>"
        style = f"height:{height:.2f}em;vertical-align:{-depth:.2f}em"
        image = f'<img class="math" src="{name}" alt="{html.escape(source)}" style="{style}"/>'
        return f'</p><p class="formula">{image}</p><p>' if displayed else image

    def prose(self, text: str) -> str:
        "Markdown as XHTML; formulas are put aside first, since Markdown would read their signs as its own."
        kept: list[str] = []

        def aside(found: re.Match) -> str:
            kept.append(found[0] if found[0][0] == "`" else self.formula(found[1] or found[2], displayed=bool(found[1])))
            return found[0] if found[0][0] == "`" else f"FORMULA{len(kept) - 1}END"

        text = re.sub(r"```.*?```|`[^`\n]*`|\$\$(.+?)\$\$|\$(?!\s)([^$\n]+?)(?<!\s)\$(?!\d)", aside, text, flags=re.S)
        text = re.sub(r"^\{\.[\w-]+\}\n", "", text, flags=re.M)
        body = self.markdown.render(text)
        body = re.sub(r"FORMULA(\d+)END", lambda m: kept[int(m[1])], body)
        body = re.sub(r"<p>\s*</p>", "", body)
        return re.sub(r'<a href="([^"]*)">(.*?)</a>', link, body, flags=re.S)

    def outputs(self, cell) -> str:
        parts = []
        for output in cell.outputs:
            data = output.get("data", {})
            page = data.get("text/html", "")
            drawing = data.get(STILL) or (still_svg([page], note="") if "<svg" in page and "ag-quiz" not in page else "")
            if output.output_type == "stream":
                parts.append(f'<pre class="output">{html.escape(output.text.rstrip())}</pre>')
            elif drawing:
                ElementTree.fromstring(drawing)
                parts.append(f'<p><img src="{self.picture(drawing)}" alt="{html.escape(data.get("text/plain", "picture")[:300])}"/></p>')
            elif data.get("text/plain"):
                parts.append(f'<pre class="output">{html.escape(data["text/plain"])}</pre>')
        return "".join(parts)

    def chapter(self, path: Path):
        "Add the page of one notebook."
        body, solutions = [], []
        notebook = nbformat.read(path, 4)
        for cell in notebook.cells:
            tags = set(cell.metadata.get("tags", ()))
            source = re.sub(r"^#\|.*\n?", "", cell.source, flags=re.M)
            if cell.cell_type == "markdown":
                body.append(self.prose(cell.source))
            elif cell.cell_type == "code" and "#| hide" not in cell.source:
                code = "" if tags & {"check", "quiz"} else f"<pre>{html.escape(source)}</pre>"
                if "solution" in tags:
                    solutions.append(code + self.outputs(cell))
                elif "check" not in tags:
                    body.append(code + self.outputs(cell))
        if solutions:
            body.append("<h2>Solutions</h2>" + "".join(solutions))
        title = re.match(r"# (.+)", notebook.cells[0].source)[1]
        self.add(f"{path.stem}.xhtml", title, "\n".join(body))

    def add(self, name: str, title: str, body: str):
        page = HEAD.format(title=html.escape(title), body=body)
        ElementTree.fromstring(page.replace("&nbsp;", "&#160;"))  # an e-book reader refuses what is not well formed
        self.files[name], self.titles[name] = page.encode(), title


def link(found: re.Match) -> str:
    "Links inside of the book lead to its pages; those to the library are left out, for it is not in the book."
    target, words = found[1], found[2]
    if re.match(r"https?:", target):
        return found[0]
    stem = Path(target.split("#")[0]).stem
    return f'<a href="{stem}.xhtml">{words}</a>' if "/" not in target and target.endswith(".ipynb") else words


REWRITTEN = ((r"\texttt", r"\mathtt"), (r"\operatorname*", r"\operatorname"), (r"\lVert", r"\Vert"), (r"\rVert", r"\Vert"), (r"\tfrac", r"\frac"), (r"\dfrac", r"\frac"),
             (r"\text{", r"\mathrm{"), (r"\;", r"\ "), (r"\!", ""))


def drawn_formula(pages: Pages, source: str) -> tuple[str, float, float]:
    "Name of the image, height and depth in em. Raises ValueError for what matplotlib cannot set."
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import math_to_image

    text = " ".join(source.split())
    for old, new in REWRITTEN:
        text = text.replace(old, new)
    text = re.sub(r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}", text)  # matplotlib wants the braces
    text = re.sub(r"\\sqrt\s*(\w)", r"\\sqrt{\1}", text)
    buffer = io.StringIO()
    depth = math_to_image(f"${text}$", buffer, prop=FontProperties(size=12), dpi=72, format="svg")
    svg = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.S)
    height = float(re.search(r'height="([\d.]+)pt"', svg)[1])
    return pages.picture(svg[svg.index("<svg"):], "formula"), height / 14, float(depth) / 14  # matplotlib's letters are broad: a little smaller than the words around them


def epub(pages: Pages, target: Path):
    "Write the pages as an EPUB 3; the same pages give the same bytes."
    names = [name for name in pages.files if name.endswith(".xhtml")]
    items = "".join(f'<item id="p{i}" href="{name}" media-type="application/xhtml+xml"/>' for i, name in enumerate(names))
    items += "".join(f'<item id="i{i}" href="{name}" media-type="image/svg+xml"/>' for i, name in enumerate(n for n in pages.files if n.endswith(".svg")))
    spine = "".join(f'<itemref idref="p{i}"/>' for i in range(len(names)))
    identity = hashlib.sha256(b"".join(pages.files.values())).hexdigest()[:32]
    package = ('<?xml version="1.0" encoding="utf-8"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
               f'<dc:identifier id="id">urn:x-book:{identity}</dc:identifier><dc:title>{TITLE}</dc:title><dc:language>en</dc:language>'
               '<meta property="dcterms:modified">2000-01-01T00:00:00Z</meta></metadata>'
               f'<manifest><item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/><item id="css" href="style.css" media-type="text/css"/>{items}</manifest>'
               f"<spine><itemref idref=\"nav\"/>{spine}</spine></package>")
    entries = "".join(f'<li><a href="{name}">{html.escape(pages.titles[name])}</a></li>' for name in names)
    nav = HEAD.format(title=TITLE, body=f'<nav epub:type="toc"><h1>{TITLE}</h1><ol>{entries}</ol></nav>')
    container = ('<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
                 '<rootfile full-path="book/package.opf" media-type="application/oebps-package+xml"/></rootfiles></container>')
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        def write(name, content, how=zipfile.ZIP_DEFLATED):
            file.writestr(zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0)), content, how)

        write("mimetype", "application/epub+zip", zipfile.ZIP_STORED)  # first, and as it is
        write("META-INF/container.xml", container)
        write("book/package.opf", package)
        write("book/nav.xhtml", nav)
        write("book/style.css", STYLE)
        for name, content in pages.files.items():
            write(f"book/{name}", content)


def browser() -> str | None:
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def pdf(pages: Pages, target: Path, program: str):
    "Print all pages as one with Chromium."
    with tempfile.TemporaryDirectory() as folder:
        for name, content in pages.files.items():
            if name.endswith(".svg"):
                (Path(folder) / name).parent.mkdir(exist_ok=True)
                (Path(folder) / name).write_bytes(content)
        bodies = [f'<section id="{Path(n).stem}">' + re.search(r"<body>(.*)</body>", c.decode(), re.S)[1] + "</section>" for n, c in pages.files.items() if n.endswith(".xhtml")]
        whole = re.sub(r'href="(\w+)\.xhtml"', r'href="#\1"', "\n".join(bodies)).replace("<details>", "<details open='open'>")
        page = Path(folder) / "book.html"
        page.write_text(f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{TITLE}</title><style>{STYLE}</style></head><body><h1>{TITLE}</h1>{whole}</body></html>', encoding="utf-8")
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", f"--user-data-dir={folder}/profile", f"--print-to-pdf={target}", page.as_uri()]
        subprocess.run(command, check=True, timeout=600, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-pdf", action="store_true", help="the EPUB only")
    parser.add_argument("--to", type=Path, default=TARGET, help="the folder to write to (default: _book)")
    parser.add_argument("paths", nargs="*", type=Path, help="some notebooks only (default: the whole book)")
    options = parser.parse_args()
    pages = Pages()
    for path in options.paths or chapters():
        pages.chapter(path)
    options.to.mkdir(parents=True, exist_ok=True)
    epub(pages, options.to / "autograd_nb.epub")
    print(f"{options.to / 'autograd_nb.epub'}: {len(pages.titles)} chapters")
    program = browser()
    if options.no_pdf or program is None:
        print("no PDF: " + ("not asked for" if options.no_pdf else "it is printed by Chromium, which is not installed here"))
        return 0
    pdf(pages, options.to / "autograd_nb.pdf", program)
    print(options.to / "autograd_nb.pdf")
    return 0


if __name__ == "__main__":
    sys.exit(main())
