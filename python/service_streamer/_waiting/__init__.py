"""Threads, and how callers of every kind wait for an answer.

::

    tasks ──▶ token       asyncio: a task waits in its event loop
    greenlets             gevent: a greenlet waits in its hub
    callbacks ──▶ threads      the thread that runs done callbacks; threads and locks of the
                               system, also where gevent has replaced those of Python
"""
