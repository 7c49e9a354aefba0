"""What a fixture gives that makes things for a test, and closes them all after it."""

from waits import LONG


def made_by(make, close=lambda each: each.close()):
    """For ``yield from``: gives a function like `make`, and closes in order what it has made."""
    made = []

    def remember(*args, **options):
        made.append(make(*args, **options))
        return made[-1]

    yield remember
    for each in made:
        close(each)


def drop(streamer):
    """Close a streamer or a hub at once."""
    streamer.close(drain=False, timeout=LONG)
