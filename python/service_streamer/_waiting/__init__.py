"""How tasks, greenlets, threads and done callbacks wait for requests and pieces; threads and locks.

::

    tasks ──▶ token            asyncio: a task waits in its event loop
    greenlets                  gevent: a greenlet waits in its hub
    callbacks ──▶ threads      the thread that runs done callbacks; operating-system threads and
                               locks, also if gevent has patched the standard library
    timeouts                   a timeout of several waits
"""
