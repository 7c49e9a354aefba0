"""Streamers whose model runs in worker processes.

One process, the owner, has the engine and starts the workers; forked children and processes that
connect are its clients. Items and answers travel between the engine and the workers in C++: the
modules here start processes, watch over them and say what they run.

::

    streamer ──▶ client                         a process without workers of its own
        │
        ▼
      owner ──▶ supervisor ──▶ rollout ──▶ places ──▶ start ──▶ worker_main   in the new process
                                                        │
                                                        ▼
                                                    forkserver ─▶ forkserver_main
"""
