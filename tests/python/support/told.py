"""The text of a message that has an entry on the page."""

from service_streamer._base.messages import PAGE


def told(text, anchor):
    return f"{text}\nsee {PAGE}#{anchor}"


def missing(package, extra):
    """What a program prints that needs a package which is not installed."""
    command = f"pip install 'service-streamer-ng[{extra}]'"
    return told(f"the package {package} is missing: {command}", "a-package-is-missing") + "\n"
