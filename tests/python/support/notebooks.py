"""The kernel of a notebook, driven as a Jupyter server drives it, and as nbclient does."""

import asyncio
import os
import signal
import threading

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from scripts import SUPPORT
from traitlets.config import Config
from waits import LONG

IMPORTS = f"import os, sys\nsys.path.insert(0, {SUPPORT!r})\nfrom service_streamer import *"


def execute(cells, folder):
    """Run a notebook of these cells by nbclient; return what each cell has shown, as text."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in (IMPORTS, *cells)]
    config = Config({"AsyncKernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})
    client = NotebookClient(notebook, config=config, timeout=LONG)
    asyncio.run(client.async_execute(env=os.environ | {"IPYTHONDIR": str(folder)}))
    return [
        "".join(_text(each.output_type, each) for each in cell.outputs)
        for cell in notebook.cells[1:]
    ]


def _text(kind, content):
    """What a message to a notebook prints or shows, as text."""
    if kind == "stream":
        return content["text"]
    return content["data"]["text/plain"] if kind in ("execute_result", "display_data") else ""


class Kernel:
    """Runs cells one after the other, and interrupts them."""

    def __init__(self, folder):
        env = os.environ | {"IPYTHONDIR": str(folder), "JUPYTER_RUNTIME_DIR": str(folder)}
        # sockets in the folder: a free port could be taken before the kernel has it
        self._manager = KernelManager(transport="ipc", ip=str(folder / "kernel"))
        self._manager.connection_file = str(folder / "kernel.json")
        self._manager.start_kernel(env=env)
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._import()

    def _import(self):
        self._client.wait_for_ready(timeout=LONG)
        self._execute(IMPORTS)

    def run(self, cell):
        """Run a cell; return what it printed and showed, as text. Raise CellError if it raised."""
        try:
            return self._execute(cell)
        except TimeoutError:
            self._manager.restart_kernel(now=True)  # the next test has a kernel that works
            self._import()
            raise

    def _execute(self, cell):
        shown = []

        def hook(message):
            shown.append(_text(message["msg_type"], message["content"]))

        reply = self._client.execute_interactive(cell, output_hook=hook, timeout=LONG)["content"]
        if reply["status"] != "ok":
            raise CellError(reply["ename"], reply["evalue"])
        return "".join(shown).strip()

    def interrupted(self, cell, running):
        """Run a cell that is interrupted once `running()` has returned; return the exception."""
        other = self._manager.blocking_client()  # a client belongs to one thread
        other.start_channels(iopub=False, stdin=False, hb=False, control=False)

        def interrupt():
            running()
            os.killpg(self._manager.provisioner.pgid, signal.SIGINT)
            other.kernel_info()  # ipykernel cancels an `await` when its loop wakes up

        thread = threading.Thread(target=interrupt, daemon=True)
        thread.start()
        try:
            self.run(cell)
        except CellError as error:
            thread.join(LONG)
            # ipykernel < 7.4 may leave a request unread that comes while it sends a reply
            other.get_shell_msg(timeout=LONG)
            return error.name
        finally:
            thread.join(LONG)
            other.stop_channels()
        raise AssertionError("the cell was not interrupted")

    def close(self):
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


class CellError(Exception):
    """What a cell raised."""

    def __init__(self, name, text):
        super().__init__(f"{name}: {text}")
        self.name = name
