"""The spans of all processes of a test."""

import pytest
from otel_spans import EXPORTER
from waits import eventually


class Spans:
    """The spans that a journal has got."""

    def __init__(self, journal):
        self._journal = journal

    def named(self, name, count=1):
        """Wait for spans whose names begin so; return them in the order in which they ended."""
        eventually(lambda: len(self._named(name)) >= count)
        assert len(self._named(name)) == count
        return self._named(name)

    def one(self, name):
        """Wait for the only span whose name begins so."""
        (span,) = self.named(name)
        return span

    def with_links(self, count):
        """Wait for batches with so many links in all."""

        def links():
            return sum(len(each.links) for each in self._named("batch "))

        eventually(lambda: links() >= count)
        assert links() == count
        return self._named("batch ")

    def _named(self, name):
        return [each for each in self._journal.all() if each.name.startswith(name)]


def _collect(journal):
    EXPORTER.journal = journal
    try:
        yield Spans(journal)
    finally:
        EXPORTER.journal = None


@pytest.fixture
def spans(journal):
    yield from _collect(journal)


@pytest.fixture
def process_spans(process_journal):
    yield from _collect(process_journal)
