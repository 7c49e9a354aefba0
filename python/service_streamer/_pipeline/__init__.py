"""Pipelines: a request goes through several streamers, one after the other.

`Pipeline` has an engine whose requests have one item each: a `StagedRequest`. A thread takes them
out of its queue while there is room in the stages, and submits their items to the first stage. The
done callback of a stage submits the outputs to the next one; that of the last stage answers the
request. Nothing of this blocks, so stages cannot wait for each other.
"""
