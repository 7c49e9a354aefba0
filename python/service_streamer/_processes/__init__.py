"""Streamers whose model runs in worker processes.

One process, the owner, has the engine and starts the workers; forked children and processes that
connect are its clients. Items and answers travel between the engine and the workers in C++: the
modules here start processes, watch over them and say what they run.

::

    streamer ──▶ client          a process without workers of its own
        │
        ▼
      owner ──▶ supervisor ──▶ pool ──▶ rollout ──▶ places     the thread that starts workers
                                │
                                ▼
                              start ──▶ process, descriptors    one worker
                                │
                                ├─────▶ worker_main             what runs in it
                                └─────▶ forkserver ──▶ forkserver_main
"""
