"""Sphinx configuration. Facts about the package come from settings.ini."""

import os
from configparser import ConfigParser
from pathlib import Path

parser = ConfigParser(delimiters=["="])
parser.read(Path(os.environ["AUTOGRAD_NB_ROOT"]) / "settings.ini", encoding="utf-8")
settings = parser["DEFAULT"]
here = Path(__file__).parent

project = html_title = settings["lib_name"]
author = settings["author"]
copyright = settings["copyright"]
release = settings["version"]

extensions = ["myst_nb", "sphinx_copybutton"]
exclude_patterns = ["_build"]

# Notebooks arrive executed; see build.py.
nb_execution_mode = "off"
nb_merge_streams = True
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist", "fieldlist", "attrs_inline", "attrs_block"]
myst_mathjax_classes = "tex2jax_process|mathjax_process|math|output_area|jupyter-widgets"
myst_heading_anchors = 3
suppress_warnings = ["mystnb.unknown_mime_type"]

# Other projects' JavaScript, when npm delivered it (assets.py); otherwise the extensions' defaults.
if (here / "_static" / "embed-amd.js").exists():
    nb_ipywidgets_js = {"require.js": {}, "embed-amd.js": {}}
if (here / "_static" / "tex-svg.js").exists():
    mathjax_path = "tex-svg.js"
    mathjax3_config = {"options": {"enableMenu": False}}

# Names are shown short; links still use the full ones.
add_module_names = False
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "sphinx_book_theme"
html_static_path = ["_static"]
html_favicon = "_static/icon.svg"
html_css_files = ["site.css"]
html_js_files = [("widgets.js", {"priority": 1})]
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_theme_options = {
    "repository_url": settings["git_url"],
    "repository_branch": settings["branch"],
    "path_to_docs": settings["nbs_path"],
    "use_repository_button": True,
    "use_download_button": True,
    "home_page_in_toc": True,
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "navbar_persistent": [],  # the sidebar has the search field
    "footer_content_items": ["copyright"],
    "launch_buttons": {"binderhub_url": "https://mybinder.org", "notebook_interface": "jupyterlab"},
}
