"""The page of questions: each has a command; that their options exist is tested of every page."""

from __future__ import annotations

import re

from tests.bench.ranks import ROOT


def test_each_question_has_a_command() -> None:
    questions = re.split(r"^### ", (ROOT / "bench/WHY_SLOW.md").read_text(), flags=re.M)[1:]
    assert [question.split(".")[0] for question in questions] == [
        str(n + 1) for n in range(len(questions))
    ]
    assert all(re.search(r"```sh\n.*?```", question, re.S) for question in questions)
