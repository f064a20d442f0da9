"""JupyterLab, as the tutorial opens it: a chapter opens, runs from top to bottom and shows no error."""

import pytest
from conftest import ROOT

CHAPTERS = sorted((ROOT / "nbs" / "book").glob("[!._]*.ipynb"))

# Through JupyterLab's own commands: clicking through its menus depends on when they are drawn.
RUN_ALL = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  const panel = app.shell.currentWidget;
  await panel.context.ready;
  await panel.context.sessionContext.ready;
  await panel.context.sessionContext.session.kernel.info;
  await app.commands.execute('notebook:run-all-cells');
  const cells = panel.content.model.cells;
  const result = { code: 0, run: 0, errors: [], outputs: 0 };
  for (let i = 0; i < cells.length; i++) {
    const cell = cells.get(i);
    if (cell.type !== 'code' || !cell.sharedModel.source.trim()) continue;
    result.code++;
    if (cell.executionCount !== null) result.run++;
    const expected = (cell.getMetadata('tags') || []).includes('raises-exception');
    for (let j = 0; j < cell.outputs.length; j++) {
      result.outputs++;
      const output = cell.outputs.get(j);
      if (output.type === 'error' && !expected) result.errors.push(output.toJSON().evalue);
    }
  }
  return result;
}"""


@pytest.mark.needs("browser")
@pytest.mark.skipif(not CHAPTERS, reason="the book has no chapter")
def test_a_chapter_runs_in_jupyterlab(lab, browser_page):
    browser_page.set_default_timeout(180_000)
    browser_page.goto(f"{lab}/lab/tree/book/{CHAPTERS[0].name}?reset")
    browser_page.locator(".jp-NotebookPanel-notebook").wait_for()
    browser_page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()
    result = browser_page.evaluate(RUN_ALL)
    assert not result["errors"]
    assert result["run"] == result["code"] > 0 and result["outputs"] > 0
    assert browser_page.locator(".jp-OutputArea-output").count() > 0
    assert browser_page.locator(".jp-OutputArea-output", has_text="Error displaying widget").count() == 0
