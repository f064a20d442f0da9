"""Write README.md from nbs/index.ipynb with the outputs stored there, and the figures of the stored benchmark results.

    python docs/readme.py README.md
"""

import posixpath
import re
import sys
from pathlib import Path

import nbformat
import speed
from nbconvert import MarkdownExporter

# The target of a Markdown link or image that is neither absolute nor a place on the same page.
RELATIVE = re.compile(r"(\]\()(?![a-z]+:|#|/)([^)\s]+)")


def visible(cell) -> bool:
    "Whether readers should see the cell: it is not marked `#| hide`, nor meant for the site alone."
    return "site" not in cell.metadata.get("tags", ()) and not (cell.cell_type == "code" and re.match(r"#\| *(hide|default_exp)\b", cell.source))


def readable(cell):
    "The cell as it should look on a plain page: no directives, no picture files, links from the top folder."
    if cell.cell_type == "markdown":
        cell.source = RELATIVE.sub(lambda m: m[1] + posixpath.normpath("nbs/" + m[2]), cell.source).replace(speed.MARK, speed.summary())
    elif cell.cell_type == "code":
        cell.source = re.sub(r"^#\|.*\n?", "", cell.source, flags=re.M)
        cell.outputs = [o for o in cell.outputs if o.output_type == "stream" or "text/plain" in o.get("data", {})]
        for output in cell.outputs:
            if "data" in output:  # a tensor's rich form repeats its text
                output.data = {"text/plain": output.data["text/plain"]}
    return cell


def readme(notebook) -> str:
    "The text of README.md."
    notebook.cells = [readable(cell) for cell in notebook.cells if visible(cell)]
    text, _ = MarkdownExporter().from_notebook_node(notebook)
    text = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return "<!-- Made from nbs/index.ipynb by `python run.py export`; edit that. -->\n\n" + re.sub(r"\n{3,}", "\n\n", text) + "\n"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(readme(nbformat.read("nbs/index.ipynb", 4)), encoding="utf-8", newline="\n")
