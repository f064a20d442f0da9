"""nbclient as notebooks here are run. A module of its own: who only reads what has run does not need to load nbclient."""

from execute import never_run
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

__all__ = ["CellExecutionError", "Client"]


class Client(NotebookClient):
    "nbclient, leaving out cells marked `#| eval: false`."

    async def async_execute_cell(self, cell, cell_index, **kwargs):
        if cell.cell_type == "code" and never_run(cell.source):
            cell.outputs = []
            return cell
        return await super().async_execute_cell(cell, cell_index, **kwargs)
