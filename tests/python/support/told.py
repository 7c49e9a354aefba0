"""The text of a message that has an entry on the page."""

from service_streamer._messages import PAGE


def told(text, anchor):
    return f"{text}\nsee {PAGE}#{anchor}"
