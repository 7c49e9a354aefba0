"""A notebook's kernel, driven as a Jupyter server drives it."""

import contextlib
import os
import threading

from jupyter_client.manager import KernelManager
from waits import LONG


class Kernel:
    """Runs cells one after the other, and interrupts them."""

    def __init__(self, folder):
        env = os.environ | {"IPYTHONDIR": str(folder), "JUPYTER_RUNTIME_DIR": str(folder)}
        # sockets in the folder, for a free port may be taken before the kernel has it
        self._manager = KernelManager(transport="ipc", ip=str(folder / "kernel"))
        self._manager.connection_file = str(folder / "kernel.json")
        self._manager.start_kernel(env=env)
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=LONG)

    def run(self, cell):
        """Run a cell; return what it printed and showed, or raise CellError."""
        shown = []

        def hook(message):
            content = message["content"]
            if message["msg_type"] == "stream":
                shown.append(content["text"])
            elif message["msg_type"] in ("execute_result", "display_data"):
                shown.append(content["data"]["text/plain"] + "\n")

        reply = self._client.execute_interactive(cell, output_hook=hook, timeout=LONG)["content"]
        if reply["status"] == "error":
            raise CellError(reply["ename"], reply["evalue"], reply["traceback"])
        return "".join(shown)

    def interrupt(self):
        """Do what the stop button does."""
        self._manager.interrupt_kernel()

    def interrupted_by(self, ready, cell):
        """Run a cell that is interrupted when `ready()` has returned."""

        def interrupt():
            ready()
            self.interrupt()

        thread = threading.Thread(target=interrupt)
        thread.start()
        with contextlib.suppress(Exception):
            pass
        try:
            self.run(cell)
        except CellError as error:
            return error.args[0]
        finally:
            thread.join(LONG)
        return None

    def close(self):
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


class CellError(Exception):
    """A cell raised: its arguments are the name of the exception, its text and the traceback."""
