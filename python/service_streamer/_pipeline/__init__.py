"""Pipelines: a request goes through several streamers, one after the other.

`Pipeline` has an engine whose items are pieces of requests, and whose batches have one piece. A
thread takes pieces out of its queue while there is room in the stages, and submits their items to
the first stage. The done callback of a stage submits the outputs to the next one; that of the last
stage completes the batch. No callback blocks, so stages cannot wait for each other.
"""
