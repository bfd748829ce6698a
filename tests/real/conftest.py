"""Tests on real data run only when asked for: `CLASSWISE_REAL=1 pytest tests/real`.

What is missing is fetched as `classwise data get` does. Data that cannot be had are reported as
NOT RUN; if nothing failed but something could not be run, the exit code is 77.
"""

import os

import pytest

from classwise.data.download import get
from classwise.data.sources import open_data
from classwise.errors import ClasswiseError

NOT_RUN = 77  # what automake's test drivers mean by it, too
if os.environ.get("CLASSWISE_REAL") != "1":
    collect_ignore_glob = ["*"]


def real_data(name):
    try:
        get(name, quiet=True)
    except ClasswiseError as reason:
        pytest.skip(f"NOT RUN: {reason}")
    return open_data(name)


@pytest.fixture(scope="session")
def cifar10():
    return real_data("cifar10")


@pytest.fixture(scope="session")
def cifar100():
    return real_data("cifar100")


@pytest.fixture(scope="session")
def mnist():
    return real_data("mnist")


def not_run(config):
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    reasons = [str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)]
    return sorted({words.split("NOT RUN: ", 1)[1] for words in reasons if "NOT RUN: " in words})


def pytest_sessionfinish(session, exitstatus):
    if exitstatus == pytest.ExitCode.OK and not_run(session.config):
        session.exitstatus = NOT_RUN


def pytest_terminal_summary(terminalreporter, config):
    for words in not_run(config):
        terminalreporter.write_line(f"NOT RUN: {words}", red=True)
