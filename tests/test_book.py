"""The book holds what it promises: structure, numbers, stills and the printable edition."""

import ast
import re
import subprocess
import sys
import zipfile
from xml.etree import ElementTree

import nbformat
import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "docs"))
from floors import FLOORS  # noqa: E402

BOOK = ROOT / "nbs" / "book"
NUMBERED = sorted(p for p in BOOK.glob("*.ipynb") if p.name[0].isdigit())
PAGES = sorted(BOOK.glob("*.ipynb"))


def prose(path):
    return "\n".join(c.source for c in nbformat.read(path, 4).cells if c.cell_type == "markdown")


def said(path):
    "All text that the stored outputs print or show."
    return "\n".join(outputs(path))


def outputs(path):
    "What each cell prints or shows, as text."
    found = [o for c in nbformat.read(path, 4).cells if c.cell_type == "code" for o in c.outputs]
    return [o.text if o.output_type == "stream" else o.get("data", {}).get("text/plain", "") for o in found]


@pytest.mark.parametrize("path", NUMBERED, ids=lambda p: p.stem)
def test_a_chapter_says_what_it_takes_needs_and_gives(path):
    first = nbformat.read(path, 4).cells[0].source
    assert re.search(r"\*\*Takes\*\* about \d+ minutes\. \*\*Needs\*\* .+ \*\*Gives\*\* .+\.", first)
    sources = prose(path).partition("## Sources and further reading")[2].partition("## Onward")[0]
    assert len(re.findall(r"^- .+", sources, re.M)) >= 3 and re.search(r"\b(19|20)\d\d\b", sources)


def test_exercises_are_many_graded_and_numbered():
    found, free = 0, 0
    for path in PAGES:
        headings = re.findall(r"^### Exercise (\d+): .*$", prose(path), re.M)
        assert [int(n) for n in headings] == list(range(1, len(headings) + 1)), path.stem
        lines = re.findall(r"^### Exercise \d+: (.*)$", prose(path), re.M)
        if path in NUMBERED or path.stem == "claims":
            assert all(re.search(r" ★{1,3}( \(free play\))?$", line) for line in lines), path.stem
        found, free = found + len(headings), free + sum("free play" in line for line in lines)
    assert found >= 75 and free >= 10


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_no_cell_prints_a_certificate(path):
    "A line that ends in a bare True after a question tells a reader nothing."
    assert not re.findall(r"^.*(?:\?|agree|same|equal|within).*\bTrue$", said(path), re.M)


def calls_of(name, path):
    "The calls of a function in the cells of a page, as syntax."
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "code" and not cell.source.startswith("%"):
            yield from (n for n in ast.walk(ast.parse(cell.source)) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == name)


def test_no_answer_is_a_strategy_for_the_claims():
    "Whoever always says the same is wrong more often than not, and no three answers in a row are the same."
    answers = [call.args[1].value for call in calls_of("check", BOOK / "claims.ipynb")]
    assert len(answers) == 20 and set(answers) == {"true", "false", "depends"}
    assert all(5 <= answers.count(answer) <= 9 for answer in set(answers))
    assert not any(a == b == c for a, b, c in zip(answers, answers[1:], answers[2:]))


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_a_hint_stops_short_of_the_answer(path):
    "No hint spells out a statement of the solution that follows it."
    cells = nbformat.read(path, 4).cells
    for cell, after in zip(cells, cells[1:]):
        if not (cell.source.startswith("# Check") and after.source.startswith("# Solution")):
            continue
        hints = {h for n in ast.walk(ast.parse(cell.source)) if isinstance(n, ast.keyword) and n.arg == "hints" for h in map(ast.literal_eval, n.value.elts)}
        last = after.source.split("\nassert ")[0]
        said_in_full = [line.strip() for line in last.split("\n") if len(line.strip()) > 30 and any(line.strip() in h for h in hints)]
        assert not said_in_full, (path.stem, said_in_full)


@pytest.mark.parametrize("path", [*PAGES, ROOT / "nbs" / "gallery.ipynb"], ids=lambda p: p.stem)
def test_code_fits_on_the_page(path):
    long = [line for c in nbformat.read(path, 4).cells if c.cell_type == "code" for line in c.source.split("\n") if len(line) > 85]
    assert not long


QUOTED = {  # a sentence of the prose, and what the stored outputs of its page must contain
    "01_why_autodiff": [("30,720 symbols for the derivative, or 109 shared pieces", "[98, 109, 120]"), ("a derivative of thirty thousand", "30720"),
                        ("Nudging: 8 digits, or 11", "8 digits"), ("coefficients of hundreds of digits", "largest coefficient: 782"), ("eleven operations per year", "659")],
    "03_chain_rule": [("does 25 times the work", "5050            202"), ("has *a few thousand nodes*", "about 4,800"), ("65,536 paths", "65536"), ("25.030009 is where it lands", "f(1.001) = 25.030009"), ("Your count above was 202 operations", "202"), ("About a hundred times cheaper", "110,000")],
    "04_backward_pass": [("carry the loss down to 0.72", "0.72 in step 210"), ("climbs back to 1.34", "1.34 in step 354"), ("ends at 1.24", "1.24"), ("`a.grad` is 48 and `b.grad` is 28", "after one pass:   48.0 28.0")],
    "05_accumulation": [("about 13.9 steps", "predicted distance 13.9"), ("2.6 against 5", "mean 2.6   mean of means 5.0")],
    "06_controlling_the_graph": [("Eleven times as much", "recording   11.0 MB"), ("No: ¾.", "[0.5, 0.75, 0.25]"), ("if the first visits six", "[6, 9, 12] ... 303")],
    "07_custom_functions": [("24 instead of 48", "24.0   by hand: 12·x² = 48.0"), ("with a star at each lie: $0.5$ where", "0.5*")],
    "08_build_an_engine": [("Eleven operations and four leaves", "15 nodes"), ("97 to 98 of 100", "351 of 360")],
    "09_sharp_edges": [("$(0.2, 0)$ instead of $(0.128, -0.096)$", "tensor([0.2000, 0.0000])"), ("$(2, 3.718)$ instead of", "tensor([2.0000, 3.7183])"), ("where $2.718$ is right", "3.7183")],
    "10_hooks": [("Half the memory, for gradients", "1,044 kB (50%)"), ("Four bytes: the loss itself", "4 bytes wait in memory"), ("Once, with the sum", "the hook saw [13.0]")],
    "11_checkpointing": [("five segments that $\\sqrt n$ recommends take 100 inputs", "25 blocks in 5 segments: 100"), ("as the 47 of one by one", "one by one: 47"),
                         ("each holds 19 times its input", "s = 19.1"), ("Eleven values instead of 512, for five and a half runs", "512              11                     5.5")],
    "12_higher_order": [("the second step goes *up*, to 1412", "after step 2 Newton has 1412"), ("$2 + 4i$, and $2 - 4i$", "(2-4j)"), ("from 0.3 to $2 \\cdot 10^{-11}$", "step 5: 1.9e-11"), ("about 60 times as sharply", "[23.6, 1506.4]")],
    "13_when_gradients_go_wrong": [("At about $-2800$", "'-2810'"), ("a forty-thousandth is left", "s = 0.9: 2.7e-05"), ("There are four.", "4 findings"), ("three quarters of it are lost", "3e-12")],
    "14_train_for_real": [("a table that looks back two characters is better", "counting 2.29, 1.70, 1.39"), ("Knowing four characters brings it down to about 1.3", "4 characters back: 1.28"), ("Guessing would cost $\\ln 60 = 4.09$", "ln 60 is 4.09"), ("reached 2.3 with one character", "1 character back: 2.29")],
    "04b_layers_and_optimisers": [("More than three times too long", "without the correction: 0.00316")],
    "claims": [("10, 10, 2", "tensor([10., 10.,  2.])")],
    "15_on_the_gpu": [("no figure here is that of a GPU", "computes on: the CPU")],
    "17_more_than_one_machine": [("It is the same number.", "one process: 2.5")],
    "18_in_production": [("reads 19 of 100 unseen digits", "unseen digits read correctly: 19%"), ("500 matrices of a megabyte", "by_index    476.8 MiB"), ("after ten steps it was *half* of last week's", "loss after 10 steps:  1.03, last week 2.11"),
                         ("after 10, 25, 50, 100 and 200 steps", "Player(5 frames)")],
}


@pytest.mark.parametrize("name", QUOTED)
def test_sentences_agree_with_their_numbers(name):
    path = BOOK / f"{name}.ipynb"
    text, output = prose(path), said(path)
    for sentence, number in QUOTED[name]:
        assert sentence in text, f"{sentence!r} is gone: take it out of QUOTED"
        assert number in output, f"the page says {sentence!r}, and its output does not show {number!r}"


NUMBERS = dict(eight=8, nine=9, twenty=20)
COUNTED = [  # a page, a sentence that counts, and what there is to count
    ("16_inside_the_engine", r"A house with (\w+) floors", lambda: len(FLOORS)),
    ("performance", r"(\w+) measurements you can repeat", lambda: len(re.findall(r"^## \d+\. ", prose(BOOK / "performance.ipynb"), re.M))),
    ("claims", r"(\w+) sentences that people say", lambda: len(re.findall(r"^## Exercise \d+: claim", prose(BOOK / "claims.ipynb").replace("###", "##"), re.M))),
    ("09_sharp_edges", r"(\w+) of them, and cut yourself", lambda: len(re.findall(r"^## Edge \d+", prose(BOOK / "09_sharp_edges.ipynb"), re.M))),
]


@pytest.mark.parametrize("name, sentence, count", COUNTED, ids=lambda x: x if isinstance(x, str) and x.isidentifier() else "")
def test_what_a_sentence_counts_is_there(name, sentence, count):
    assert NUMBERS[re.search(sentence, prose(BOOK / f"{name}.ipynb"))[1].lower()] == count()


@pytest.mark.parametrize("name", ["08_build_an_engine", "16_inside_the_engine", "performance"])
def test_source_that_a_page_shows_is_the_library_s(name):
    "Whatever a listing of the engine calls, and every slot of a node that it names, has that name in the library today."
    source = "\n".join(p.read_text(encoding="utf-8") for floor in ("graph", "layers", "ops") for p in (ROOT / "autograd_nb" / floor).glob("*.py"))
    listings = "\n".join(t for t in outputs(BOOK / f"{name}.ipynb") if re.search(r"^def \w+\(|^ *n = new", t, re.M))
    used = set(re.findall(r"\b([a-zA-Z_]+)\(", listings)) | set(re.findall(r"\bn\.([a-z_]+)\b", listings))
    assert len(used) > 5
    assert not {n for n in used if not re.search(rf"\b{n}\b", source)}


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_a_call_that_fits_on_a_line_stands_on_one(path):
    for cell in nbformat.read(path, 4).cells:
        lines = cell.source.split("\n") if cell.cell_type == "code" else []
        for a, b, c in zip(lines, lines[1:], lines[2:]):
            if a.rstrip()[-1:] in ("(", "[", "{") and c.strip()[:1] in (")", "]", "}") and "#" not in a + b + c:
                assert len(a.rstrip() + b.strip().rstrip(",") + c.strip()) > 85, a


def test_sentences_that_sounded_translated_are_gone():
    everything = "\n".join(prose(p) for p in PAGES)
    for phrase in ("in good spirits", "out of the world", "gets dearer", "large in earnest", "silent sister", "classical mistake", "moment of silence", "meet the same weather", "chapters long",
                   "length one per entry", "it shall read", "without its forgetting", "most easily told", "Python's rubbish", "no mistake of anybody", "deals its random"):
        assert phrase not in everything, phrase


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_a_sentence_that_ends_with_a_link_ends_with_a_full_stop(path):
    "Titles of chapters are questions, and a question mark within a link ends no sentence."
    bare = re.compile(r"\?\*?\]\([^)]*\)(?:\s*\Z|\s*\n\s*\n|\s+Back )")
    assert not [found[0] for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown" for found in bare.finditer(cell.source)]


def test_pages_link_to_notebooks_that_exist():
    for page in (ROOT / "nbs").rglob("*.ipynb"):
        for target in re.findall(r"\]\(([^)#\s]+\.ipynb)(?:#[^)]*)?\)", prose(page)):
            assert "://" in target or target.startswith("/") or (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_book_is_made_as_an_epub(tmp_path):
    done = subprocess.run([sys.executable, ROOT / "docs" / "book.py", "--no-pdf", "--to", tmp_path, *map(str, [BOOK / "short_course.ipynb", BOOK / "recipes.ipynb"])], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "autograd_nb.epub") as book:
        names = book.namelist()
        assert names[0] == "mimetype" and book.getinfo("mimetype").compress_type == zipfile.ZIP_STORED
        package = ElementTree.fromstring(book.read("book/package.opf"))
        listed = {item.get("href") for item in package.iter("{http://www.idpf.org/2007/opf}item")}
        assert {f"book/{name}" for name in listed} <= set(names) and "short_course.xhtml" in listed
        for name in names:
            if name.endswith((".xhtml", ".svg")):
                ElementTree.fromstring(book.read(name))
        page = book.read("book/short_course.xhtml").decode()
        for image in re.findall(r'<img[^>]* src="([^"]+)"', page):
            assert f"book/{image}" in names
        assert page.count("<img") >= 4 and "FORMULA" not in page
