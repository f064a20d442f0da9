"""The stop button of a live curve ends a run in JupyterLab while the cell is still busy."""

import nbformat
import pytest
from conftest import ROOT
from nbformat.v4 import new_code_cell, new_notebook

SHOW = "import time\nfrom autograd_nb.widgets import LivePlot\nlive = LivePlot(total=600, stop=True)\nlive"
LOOP = "with live:\n    for step in live.until_stopped(range(600)):\n        live.add(loss=1 / (step + 1))\n        time.sleep(0.1)\nprint('ended after', len(live.series['loss'][0]) < 600)"
START = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  const panel = app.shell.currentWidget;
  await panel.context.ready;
  await panel.context.sessionContext.ready;
  await panel.context.sessionContext.session.kernel.info;
  app.commands.execute('notebook:run-all-cells');
}"""


@pytest.mark.needs("browser")
def test_a_run_is_stopped(lab, browser_page, tmp_path):
    meta = nbformat.read(ROOT / "nbs" / "book" / "05_accumulation.ipynb", 4).metadata
    nbformat.write(new_notebook(cells=[new_code_cell(SHOW), new_code_cell(LOOP)], metadata=meta), tmp_path / "nbs" / "stop.ipynb")
    browser_page.set_default_timeout(120_000)
    browser_page.goto(f"{lab}/lab/tree/stop.ipynb?reset")
    browser_page.locator(".jp-NotebookPanel-notebook").wait_for()
    browser_page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()
    browser_page.evaluate(START)
    browser_page.locator("button.jupyter-button", has_text="Stop").click()
    browser_page.locator(".jp-OutputArea-output", has_text="ended after True").wait_for(timeout=30_000)
    browser_page.locator("button.jupyter-button[disabled]", has_text="Stopped").wait_for(timeout=30_000)
