"""Scripts written for PyTorch print with tracegrad what they print with PyTorch.

`transcripts/*.txt` are recordings; `python -m tests.transcripts.record` makes them. What may differ is said in
`transcripts/play.py`.
"""

from __future__ import annotations

import pytest
from transcripts.play import SCRIPTS, Section, differences, play, sections, transcript

import tracegrad

SECTIONS = [section for script in SCRIPTS for section in sections(script)]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: f"{section.script.stem}: {section.title}")
def test_a_script_prints_what_it_prints_with_pytorch(section: Section) -> None:
    told = differences(section, transcript(section.script)[section.title], play(section, tracegrad))
    if told:
        pytest.fail(f"{section.script.name}, {section.title}\n{told}", pytrace=False)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_transcript_has_the_sections_of_its_script(script) -> None:
    titles = [section.title for section in sections(script)]
    assert len(set(titles)) == len(titles)
    assert list(transcript(script)) == titles
