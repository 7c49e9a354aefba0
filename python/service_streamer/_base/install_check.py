"""Refuses what cannot work, with one sentence. The package imports it before anything else.

Raises:
    ImportError: this is a subinterpreter, or service_streamer 0.1 is in the same folder.
"""

import _thread
import os


def _is_subinterpreter() -> bool:
    if hasattr(_thread, "_is_main_interpreter"):  # older Pythons have none
        return not _thread._is_main_interpreter()
    try:
        from .. import _core  # noqa: F401
    except ImportError as error:
        return str(error) == "subinterpreter"  # any other error is raised by the next import
    return False


if _is_subinterpreter():
    from .messages import see

    _text = (
        "service-streamer-ng cannot be imported in a subinterpreter, but only in the main "
        "interpreter of a process: with mod_wsgi, set WSGIApplicationGroup %{GLOBAL}"
    )
    raise ImportError(see(_text, "a-subinterpreter"))

_folder = os.path.dirname(os.path.dirname(__file__))

# Our module of that name is a folder, so such a file belongs to another distribution.
if os.path.exists(os.path.join(_folder, "service_streamer.py")):
    from .messages import see

    _text = (
        f"service-streamer 0.1 and service-streamer-ng are both installed in {_folder}: run "
        "pip uninstall -y service-streamer service-streamer-ng; pip install service-streamer-ng"
    )
    raise ImportError(see(_text, "the-original-beside-this-package"))
