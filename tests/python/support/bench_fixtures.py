"""A short run of `service-streamer bench`."""

import pytest

from service_streamer._commands.main import main

FAST = ["--seconds", "0.3", "--clients", "1", "2", "--shares", "0.5", "--repetitions", "2"]


@pytest.fixture
def bench(tmp_path, capsys):
    """Runs the command; returns its exit code and what it has printed and written."""

    def run(*arguments):
        report = tmp_path / "report.html"
        code = main(["bench", *arguments, *FAST, "--report", str(report)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err, report.read_text() if report.exists() else None

    return run
