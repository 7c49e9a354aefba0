"""Streamers whose model runs in worker processes.

One process, the owner, has the engine and starts the workers. Forked children and processes that
connect are clients of the owner. C++ code moves items and outputs between the engine and the
workers. The modules here start, supervise and replace the processes.

::

    streamer ──▶ client          the backend of a client process
        │
        ▼
      owner ──▶ supervisor ──▶ pool ──▶ restarts ──▶ slots     the thread that starts workers
                                │
                                ▼
                              start ──▶ process, descriptors    starts one worker
                                │       own_package             in another interpreter
                                │
                                ├─────▶ worker_main             the code that runs in it
                                └─────▶ forkserver ──▶ forkserver_main
"""
