"""What differs on a free-threaded Python."""

import sysconfig

import pytest

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

freed_at_once = pytest.mark.skipif(
    FREE_THREADED, reason="without a GIL, an object is freed when the thread that made it runs next"
)
