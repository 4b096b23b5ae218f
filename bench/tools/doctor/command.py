"""The doctor's round: look at this machine, compare the ranks, try the transports, say what was
found.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable
from types import FrameType
from typing import Any, NoReturn

from bench.config import UsageError
from bench.launch import provenance
from bench.launch.world import Launch, discover, meeting_folder
from bench.tools.doctor import exchange, launcher_checks, machine, probe, process, ranks
from bench.tools.doctor.findings import Finding, exit_status, failure, merge, read, warning
from bench.tools.doctor.mailbox import Meeting
from bench.tools.doctor.options import Options, parse

SCHEMA = 1  # of the JSON
INPUT_ERROR = 2
_LEAVE_S = 10.0
_LOOK_S, _TRY_S = 10, 12
_LAUNCHER_READS_S = (
    0.5  # mpirun may drop the last words of a rank that leaves with an error at once
)


class _Ended(Exception):
    pass


class _Answer:
    """Findings in their order: printed as they come, or all at once as JSON.

    Progress goes between them on standard output, because launchers forward two streams in any
    order; beside JSON it goes to standard error.
    """

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self.findings: list[Finding] = []
        self.doing = "starting"

    def say(self, doing: str) -> None:
        self.doing = doing
        print(f"... {doing}", file=sys.stderr if self._json else sys.stdout, flush=True)

    def add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.findings.append(finding)
            if not self._json:
                print(finding.line(), flush=True)

    def finish(self, launch: Launch | None) -> int:
        status = exit_status(self.findings)
        if self._json:
            records = [finding.record() for finding in self.findings]
            said = {
                "schema": SCHEMA,
                "launch": launch and launch.record(),
                "findings": records,
                "status": status,
            }
            print(json.dumps(said, indent=2), flush=True)
        else:
            levels = [finding.level for finding in self.findings]
            counts = ", ".join(
                f"{levels.count(level)} {level}" for level in ("ok", "warning", "failure")
            )
            print(f"-- {counts}", flush=True)
        if status and launch is not None and launch.size > 1:
            time.sleep(_LAUNCHER_READS_S)
        return status


def main(argv: list[str]) -> int:
    """Exit status: 0 fit, 1 a failure was found, 2 the input was wrong."""
    launch, half_set = None, None
    try:
        launch = discover(os.environ)
    except UsageError as error:
        half_set = error
    try:
        options = parse(argv)
    except UsageError as error:
        if launch is None or launch.rank == 0:
            print(f"error: {error}", file=sys.stderr, flush=True)
        return INPUT_ERROR
    answer = _Answer(options.json)
    if launch is None:
        text, _, cure = str(half_set).partition("; ")
        answer.add([failure("launcher", text, cure)])
        return answer.finish(None)
    signal.signal(signal.SIGTERM, _end)
    try:
        round_ = _alone if launch.source == "none" else _leading if launch.rank == 0 else _following
        return round_(options, launch, answer)
    except _Ended:
        if launch.rank > 0:
            return 1
        text = f"was ended by its launcher, or by somebody else, while {answer.doing}"
        answer.add(
            [
                failure(
                    "doctor",
                    text,
                    "a rank that died there is the likely cause; leave that cell out with --cells",
                )
            ]
        )
        return answer.finish(launch)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise _Ended


def _duration(options: Options, launch: Launch) -> str:
    """On two cores with nothing else to do: every try starts its ranks anew,
    and they import torch.
    """
    tries = len(launcher_checks.cells(launch, options.cells, 0))
    return f"this takes about {_LOOK_S + _TRY_S * tries} s, more where the machine is busy"


def _look(options: Options, launch: Launch) -> dict[str, Any]:
    """What one rank knows of itself and its host, its findings included."""
    ended = process.run(
        process.python("bench.tools.doctor.probe"), os.environ, probe.MARK, options.limit_s
    )
    if not ended.answers:
        cure = f"see what it prints: {' '.join(process.python('bench.tools.doctor.probe'))}"
        seen: dict[str, Any] = {"errors": {}, "mpi_files": []}
        found = [failure("libraries", f"importing them {ended.problem}", cure)]
    else:
        seen = ended.answers[0]
        found = machine.libraries(seen) + machine.torchvision_pair(seen)
        found += machine.horovod_build(machine.build_record(), seen) + machine.devices(seen)
    if "mpi" in seen and launch.source != "none":
        found += launcher_checks.library(launch, seen["mpi"], os.environ)
    found += machine.environment(os.environ)
    here = [name for _, name in socket.if_nameindex()]
    found += machine.interfaces(os.environ, here, several_hosts=launch.local_size != launch.size)
    found += machine.own_name(socket.gethostname())
    found += machine.data(options.dataset, options.data_dir)
    found += _folder(options, launch)
    threads = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return {
        **provenance.describe_rank(launch, options.threads),
        "default_threads": {**threads, "torch": seen.get("torch_threads")},
        "devices": seen.get("devices", []),
        "mpi": seen.get("mpi"),
        "seat": uuid.uuid4().hex,
        "findings": [finding.record() for finding in found],
    }


def _folder(options: Options, launch: Launch) -> list[Finding]:
    try:
        return machine.folder(meeting_folder(launch, options.rendezvous_dir, None))
    except UsageError as error:
        text, _, cure = str(error).partition("; ")
        return [failure("folder", text, cure)]


def _alone(options: Options, launch: Launch, answer: _Answer) -> int:
    answer.say(_duration(options, launch))
    answer.add(launcher_checks.world(launch, options.world_size))
    answer.say("looking at this machine")
    facts = _look(options, launch)
    answer.add(map(read, facts["findings"]))
    path = shutil.which("mpirun")
    answer.add(launcher_checks.mpirun(path, _version(path) if path else "", facts["mpi"]))
    two = [
        {**facts, "rank": rank, "local_rank": rank, "local_size": 2, "size": 2}
        for rank in range(exchange.ALONE_RANKS)
    ]
    answer.add(ranks.cores(two, options.threads))
    cells = launcher_checks.cells(launch, options.cells, len(facts["devices"]))
    answer.add(exchange.alone(cells, options, path is not None, answer.say))
    return answer.finish(launch)


def _version(mpirun: str) -> str:
    try:
        done = subprocess.run(
            [mpirun, "--version"],
            capture_output=True,
            text=True,
            timeout=20,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return done.stdout + done.stderr


def _leading(options: Options, launch: Launch, answer: _Answer) -> int:
    """Rank 0 of a launch: hear all, compare, decide what is tried, judge it."""
    answer.say(_duration(options, launch))
    answer.add(launcher_checks.world(launch, options.world_size))
    answer.say(f"looking at {launch.size} rank(s)")
    meeting = _open(options, launch)
    if meeting is None:
        answer.add(map(read, _look(options, launch)["findings"]))
        return answer.finish(launch)
    try:
        _lead(meeting, options, launch, answer)
    finally:
        meeting.close()
    return answer.finish(launch)


def _lead(meeting: Meeting, options: Options, launch: Launch, answer: _Answer) -> None:
    mine = _look(options, launch)
    there = {0: mine, **meeting.hear("facts", range(1, launch.size), options.limit_s)}
    answer.add(
        merge(
            {rank: [read(record) for record in facts["findings"]] for rank, facts in there.items()}
        )
    )
    everybody = [there[rank] for rank in sorted(there)]
    wrong_world = ranks.absent(there, launch.size, options.limit_s, os.environ) + ranks.compare(
        everybody
    )
    answer.add(wrong_world)
    answer.add(ranks.cores(everybody, options.threads) + ranks.devices(everybody))
    cells = launcher_checks.cells(launch, options.cells, len(mine["devices"]))
    if any(finding.name == "ranks" and finding.level == "failure" for finding in wrong_world):
        answer.add(
            [
                warning(
                    "transports",
                    f"{', '.join(cells)} not tried: the ranks are not one world",
                    "see above",
                )
            ]
        )
        cells = []
    groups = exchange.groups(cells)
    meeting.tell("plan", {"groups": groups, "seats": [facts["seat"] for facts in everybody]})
    for group in groups:
        answer.say(f"trying {' and '.join(group)} (at most {options.limit_s * len(group):g} s)")
        exchange.take_part(group, launch, options, meeting)
        answer.add(exchange.judge(cell, launch, meeting, options.limit_s) for cell in group)
    meeting.hear(
        "left", set(there) - {0}, _LEAVE_S
    )  # the plan must not go before everybody has read it


def _following(options: Options, launch: Launch, answer: _Answer) -> int:
    """Any other rank: tell what is here, then take part in what rank 0 tries."""
    facts = _look(options, launch)
    meeting = _open(options, launch)
    problem = "has no folder to meet rank 0 in" if meeting is None else "did not hear of rank 0"
    try:
        if meeting is not None and _follow(meeting, facts, options, launch):
            return 0  # rank 0 speaks for all, and has the exit status
    except OSError as error:
        problem = f"cannot write to the ranks' folder: {error.strerror}"
    print(
        f"error: rank {launch.rank} on {facts['hostname']} {problem}", file=sys.stderr, flush=True
    )
    return 0  # another status would end rank 0 before it has spoken


def _follow(meeting: Meeting, facts: dict[str, Any], options: Options, launch: Launch) -> bool:
    """Whether rank 0 had a plan; a plan that does not know this rank is an earlier launch's."""
    meeting.tell("facts", facts)
    heard = meeting.hear(
        "plan", [0], 2 * options.limit_s, lambda plan: facts["seat"] in plan["seats"]
    )
    for group in heard[0]["groups"] if heard else []:
        exchange.take_part(group, launch, options, meeting)
    meeting.tell("left", True)
    return bool(heard)


def _open(options: Options, launch: Launch) -> Meeting | None:
    """The ranks' meeting; None where there is no folder for it, which `_look` has found as well."""
    try:
        return Meeting(meeting_folder(launch, options.rendezvous_dir, None), launch)
    except (UsageError, OSError):
        return None
