"""Scrapes of Prometheus metrics, and what was found there."""

import math
import shutil
import subprocess

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

PREFIX = "service_streamer_"


def check_with_promtool(text):
    """Prometheus' own tool has no complaint about what was scraped."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool")
    command = [promtool, "check", "metrics"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


class Scrape:
    """The samples of one scrape: `scrape("items_total", streamer="a")`; None if there is none."""

    def __init__(self, text):
        self.text = text
        self.families = list(text_string_to_metric_families(text))
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families
            for sample in family.samples
        }

    def __call__(self, name, **labels):
        return self.samples.get((PREFIX + name, frozenset(labels.items())))

    def requests(self, streamer, outcome="completed"):
        return self("requests_total", streamer=streamer, outcome=outcome)

    def counters(self):
        """What must not go back."""
        return {
            key: value
            for key, value in self.samples.items()
            if key[0].endswith(("_total", "_bucket", "_count", "_sum"))
        }

    def check_not_before(self, before):
        """Check that no counter is lower, and none has gone, since an earlier scrape."""
        now = self.counters()
        lower = {
            key: (value, now.get(key))
            for key, value in before.counters().items()
            if now.get(key, -math.inf) < value
        }
        assert lower == {}, lower


def scrape(registry):
    return Scrape(generate_latest(registry).decode())
