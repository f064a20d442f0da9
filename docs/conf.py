"""Sphinx configuration. Facts about the package come from settings.ini."""

import hashlib
import html
import os
import re
import sys
from configparser import ConfigParser
from pathlib import Path
from types import ModuleType

from docutils import nodes
from jinja2 import FileSystemBytecodeCache

sys.modules.setdefault("rfc3987_syntax", None)  # two seconds to import, for addresses in schemas that notebooks do not have
for name in ("Cache", "Direct", "Inline"):  # MyST-NB's ways to run notebooks, which bring a database along: ours arrive executed
    unused = sys.modules.setdefault(f"myst_nb.core.execute.{name.lower()}", ModuleType(name))
    setattr(unused, f"NotebookClient{name}", None)

parser = ConfigParser(delimiters=["="])
parser.read(Path(os.environ["AUTOGRAD_NB_ROOT"]) / "settings.ini", encoding="utf-8")
settings = parser["DEFAULT"]
here = Path(__file__).parent

project = html_title = settings["lib_name"]
author = settings["author"]
copyright = settings["copyright"]
release = settings["version"]

extensions = ["myst_nb", "sphinx_copybutton"]
exclude_patterns = ["_build", "extra"]

# Notebooks arrive executed; see build.py.
nb_execution_mode = "off"
nb_merge_streams = True
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist", "fieldlist", "attrs_inline", "attrs_block"]
myst_mathjax_classes = "tex2jax_process|mathjax_process|math"
myst_heading_anchors = 3
suppress_warnings = ["mystnb.unknown_mime_type"]

nb_ipywidgets_js = {}  # players.py writes demos as plain HTML, which demo.js moves
# For a site that is built without Node.js; else mathematics.py sets formulas, and pages load nothing for them.
mathjax3_config = {"options": {"enableMenu": False}}

# Names are shown short; links still use the full ones.
add_module_names = False
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "sphinx_book_theme"
html_static_path = ["_static"]
html_favicon = "_static/icon.svg"
html_css_files = ["site.css"]
html_js_files = ["access.js"]
html_context = {"default_mode": "auto"}
html_search_scorer = str(here / "_static" / "scorer.js")
html_show_sourcelink = html_copy_source = False
html_baseurl = settings["doc_host"] + settings["doc_baseurl"] + "/"
html_extra_path = ["extra"]  # the notebooks, to take along
html_theme_options = {
    "repository_url": os.environ.get("AUTOGRAD_NB_REPOSITORY", settings["git_url"]),
    "repository_branch": settings["branch"],
    "path_to_docs": settings["nbs_path"],
    "use_repository_button": bool(os.environ.get("AUTOGRAD_NB_REPOSITORY", settings["git_url"])),
    "use_download_button": False,
    "use_fullscreen_button": False,
    "home_page_in_toc": True,
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "navbar_persistent": [],  # the sidebar has the search field
    "footer_content_items": ["copyright"],
}


def finish_page(app, name, template, context, doctree):
    "What links to a page show elsewhere, and the scripts that only some pages need."
    body = context.get("body", "")
    if "data-demo=" in body:
        app.add_js_file("demo.js", loading_method="defer")
    if "ag-card" in body:
        app.add_js_file("graph.js", loading_method="defer")
    if name == "search":
        app.add_js_file("search.js", loading_method="defer")  # after the theme's own
    if "demo-own" in body and (here / "_static" / "python").exists():
        app.add_js_file("own.js", loading_method="defer")
    title = project if name == "index" else re.sub("<[^>]+>", "", context.get("title", "")) + " – " + project
    first = next((p for p in doctree.findall(nodes.paragraph) if len(p.astext()) > 40), None) if doctree else None
    words = " ".join(first.astext().split()) if first and name != "index" else settings["description"]
    words = words if len(words) <= 200 else words[:197].rpartition(" ")[0] + " …"
    card = f"_static/cards/{name.rpartition('/')[2]}.png"  # a chapter has its own
    image = html_baseurl + (card if name.startswith("book/") and (here / card).exists() else "_static/social.png")
    tags = {"og:type": "website", "og:site_name": project, "og:title": html.unescape(title), "og:description": words, "og:url": f"{html_baseurl}{name}.html", "og:image": image,
            "og:image:width": "1200", "og:image:height": "630", "og:image:alt": "The graph of (3x + 2) squared with values going forward and gradients going back"}
    lines = [f'<meta property="{key}" content="{html.escape(value)}" />' for key, value in tags.items()]
    lines += [f'<meta name="description" content="{html.escape(words)}" />', '<meta name="twitter:card" content="summary_large_image" />']
    context["metatags"] = context.get("metatags", "") + "\n".join(lines)


def leave_out_of_search(app, doctree):
    "Controls and frames of demos are no words to look for."
    for node in doctree.findall(nodes.raw):
        if re.search(r'class="(?:demo |open-live)', node.astext()[:200]):
            node["classes"].append("no-search")


def keep_templates(app):
    "The theme's templates are compiled once, not in every build."
    folder = Path(app.doctreedir) / "templates"
    folder.mkdir(parents=True, exist_ok=True)
    app.builder.templates.environment.bytecode_cache = FileSystemBytecodeCache(str(folder))


def setup(app):
    # Sphinx compares values of the configuration, not what functions here do: a change of this file makes all pages anew.
    app.add_config_value("made_by", hashlib.sha256(Path(__file__).read_bytes()).hexdigest(), "env")
    app.connect("builder-inited", keep_templates)
    app.connect("doctree-read", leave_out_of_search)
    app.connect("html-page-context", finish_page)
