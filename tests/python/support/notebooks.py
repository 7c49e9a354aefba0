"""The kernel of a notebook, driven as a Jupyter server drives it."""

import os
import signal
import threading

from jupyter_client.manager import KernelManager
from scripts import SUPPORT
from waits import LONG


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
        self._client.wait_for_ready(timeout=LONG)
        self.run(f"import os, sys\nsys.path.insert(0, {SUPPORT!r})\nfrom service_streamer import *")

    def run(self, cell):
        """Run a cell; return what it printed and showed, as text. Raise CellError if it raised."""
        shown = []

        def hook(message):
            content = message["content"]
            if message["msg_type"] == "stream":
                shown.append(content["text"])
            elif message["msg_type"] in ("execute_result", "display_data"):
                shown.append(content["data"]["text/plain"])

        reply = self._client.execute_interactive(cell, output_hook=hook, timeout=LONG)["content"]
        if reply["status"] != "ok":
            raise CellError(reply["ename"], reply["evalue"])
        return "".join(shown).strip()

    def interrupted(self, cell, running):
        """Run a cell that is interrupted once `running()` has returned; return the exception."""

        def interrupt():
            running()
            os.killpg(self._manager.provisioner.pgid, signal.SIGINT)

        thread = threading.Thread(target=interrupt, daemon=True)
        thread.start()
        try:
            self.run(cell)
        except CellError as error:
            return error.name
        finally:
            thread.join(LONG)
        raise AssertionError("the cell was not interrupted")

    def close(self):
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


class CellError(Exception):
    """What a cell raised."""

    def __init__(self, name, text):
        super().__init__(f"{name}: {text}")
        self.name = name
