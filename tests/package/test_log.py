"""The log: what `TRACEGRAD_LOG` names goes to stderr, the rest where the program sends it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tracegrad.settings import TOPICS, settings
from tracegrad.utils.log import enabled, log


@pytest.fixture(autouse=True)
def _nothing_named() -> Iterator[None]:
    with settings.override(log=""):
        yield
    enabled("compile")


def test_by_default_nothing_is_logged(capfd: pytest.CaptureFixture[str]) -> None:
    assert not any(enabled(topic) for topic in TOPICS)
    for topic in TOPICS:
        log(topic, "a message")
    assert capfd.readouterr() == ("", "")


def test_the_topics_named_go_to_stderr_and_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    with settings.override(log="compile,retrace"):
        assert [topic for topic in TOPICS if enabled(topic)] == ["compile", "retrace"]
        for topic in TOPICS:
            log(topic, "%d messages of %s", 2, topic)
    log("compile", "too late")
    assert capsys.readouterr() == (
        "",
        "tracegrad.compile: 2 messages of compile\ntracegrad.retrace: 2 messages of retrace\n",
    )


def test_a_line_is_written_once_whatever_the_program_configures(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with settings.override(log="cache"):
        for _ in range(2):
            log("cache", "hit")
    assert capsys.readouterr().err == "tracegrad.cache: hit\n" * 2
    assert not caplog.records


def test_a_program_can_listen_by_the_standard_library(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="tracegrad"):
        assert enabled("retrace")
        log("retrace", "%s changed", "x")
    assert caplog.record_tuples == [("tracegrad.retrace", logging.INFO, "x changed")]
    assert not enabled("retrace")


def test_arguments_are_not_formatted_when_nothing_listens() -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError

    log("compile", "%s", Costly())


def test_an_unknown_topic_is_an_error() -> None:
    with pytest.raises(KeyError, match="complie"):
        log("complie", "a message")


@pytest.mark.parametrize("configured", ["", "import logging; logging.basicConfig(); "])
def test_the_environment_variable_names_the_topics(configured: str) -> None:
    program = configured + "from tracegrad.utils.log import log; log('compile', 'seen'); log('cache', 'not seen')"
    environment = os.environ | {"TRACEGRAD_LOG": "compile"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("", "tracegrad.compile: seen\n")
