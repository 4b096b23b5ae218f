"""The doctor's round: look at this machine, compare the ranks, try the transports, say it all."""

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
from contextlib import closing
from dataclasses import asdict
from typing import Any

from bench.config import UsageError
from bench.launch import provenance
from bench.launch.resources import require_unmodified
from bench.launch.world import Launch, discover, meeting_folder
from bench.record.quiet import Watch
from bench.tools.doctor import exchange, machine, places, process, ranks
from bench.tools.doctor.findings import Finding, failure, merge, refused, warning
from bench.tools.doctor.mailbox import Meeting
from bench.tools.doctor.options import Doctor, parse

SCHEMA = 1  # of the JSON
INPUT_ERROR = 2
_LEAVE_S = 10.0
_LOOK_S, _TRY_S = 10, 12  # on two cores: each try starts its ranks anew, and they import torch
_LAUNCHER_READS_S = 0.5  # mpirun may drop the last words of a rank that leaves with an error
_ENDED = "a rank that died there is the likely cause; leave that cell out with --cells"


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
        levels = [finding.level for finding in self.findings]
        status = int("failure" in levels)
        if self._json:
            record = {"schema": SCHEMA, "launch": launch and launch.record(), "status": status}
            findings = [asdict(finding) for finding in self.findings]
            print(json.dumps({**record, "findings": findings}, indent=2), flush=True)
        else:
            counts = (f"{levels.count(level)} {level}" for level in ("ok", "warning", "failure"))
            print(f"-- {', '.join(counts)}", flush=True)
        if status and launch is not None and launch.size > 1:
            time.sleep(_LAUNCHER_READS_S)
        return status


def main(argv: list[str]) -> int:
    """Exit status: 0 fit, 1 a failure was found, 2 the input was wrong."""
    launch, half_set = None, []
    try:
        launch = discover(os.environ)
    except UsageError as error:
        half_set = [refused("launcher", error)]
    try:
        options = parse(argv)
        _ = options.alone  # read now: a log that tells nothing is wrong input
    except UsageError as error:
        if launch is None or launch.rank == 0:
            print(f"error: {error}", file=sys.stderr, flush=True)
        return INPUT_ERROR
    answer = _Answer(options.as_json)
    if launch is None:
        answer.add(half_set)
        return answer.finish(None)
    _answer_if_ended(launch, answer)
    if launch.rank:
        _follow(options, launch)
        return 0  # another status would end rank 0 before it has spoken
    seconds = _LOOK_S + _TRY_S * len(exchange.cells(launch, options.cells, 0))
    answer.say(f"this takes about {seconds} s, more where the machine is busy")
    answer.add([ranks.world(launch, options.world_size)])
    answer.add(exchange.layout(options.alone))
    (_alone if launch.source == "none" else _lead)(options, launch, answer)
    return answer.finish(launch)


def _answer_if_ended(launch: Launch, answer: _Answer) -> None:
    """Speak in the signal's handler: a launcher soon kills what has not ended, tries and all."""

    def ended(*_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if launch.rank == 0:
            text = f"was ended by its launcher, or by somebody else, while {answer.doing}"
            answer.add([failure("doctor", text, _ENDED)])
            answer.finish(launch)
        raise SystemExit(1)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ended)


def _look(options: Doctor, launch: Launch) -> dict[str, Any]:
    """What one rank knows of itself and its host, its findings included."""
    watch = Watch()
    probe = process.python("bench.tools.doctor.probe")
    answers, problem = process.run(probe, os.environ, options.limit_s)
    findings: list[Finding] = []
    if answers:
        seen = answers[0]
        findings += [*machine.libraries(seen), *machine.torchvision_pair(seen)]
        findings += [*machine.horovod_build(machine.build_record(), seen), *machine.devices(seen)]
    else:
        seen = {}
        text, cure = f"importing them {problem}", f"see what it prints: {' '.join(probe)}"
        findings.append(failure("libraries", text, cure))
    if "mpi" in seen and launch.source != "none":
        findings.append(ranks.library(launch, seen["mpi"], os.environ))
    try:
        require_unmodified(os.environ)
    except UsageError as error:
        findings.append(refused("environment", error))
    local = [name for _, name in socket.if_nameindex()]
    findings += machine.interfaces(os.environ, local, several_hosts=launch.local_size < launch.size)
    findings.append(machine.own_name(socket.gethostname()))
    findings += machine.energy(options.config.sysfs, first_of_node=launch.local_rank == 0)
    findings.append(machine.data(options.config.dataset, options.config.data_dir))
    try:
        findings.append(machine.folder(meeting_folder(launch, options.config.rendezvous_dir, None)))
    except UsageError as error:
        findings.append(refused("folder", error))
    others = watch.others()
    threads = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return {
        **provenance.describe_rank(launch, options.config.threads, options.config.sysfs),
        "default_threads": {**threads, "torch": seen.get("torch_threads")},
        **places.devices(seen, os.environ, options.config.sysfs),
        "mpi": seen.get("mpi"),
        "seat": uuid.uuid4().hex,
        "others": others and others._asdict(),
        "findings": [asdict(finding) for finding in findings],
    }


def _findings(facts: dict[str, Any]) -> list[Finding]:
    return [Finding(**record) for record in facts["findings"]]


def _alone(options: Doctor, launch: Launch, answer: _Answer) -> None:
    """No launcher: look, then start ranks for each cell."""
    answer.say("looking at this machine")
    facts = _look(options, launch)
    answer.add(_findings(facts))
    path = shutil.which("mpirun")
    answer.add([ranks.mpirun(path, _version(path) if path else "", facts["mpi"])])
    two = {"local_size": exchange.ALONE_RANKS, "size": exchange.ALONE_RANKS}
    pair = [{**facts, **two, "rank": n, "local_rank": n} for n in range(exchange.ALONE_RANKS)]
    answer.add(ranks.cores(pair, options.config.threads) + ranks.quiet(pair))
    gpus = len(facts["devices"])
    cells = exchange.cells(launch, options.cells, gpus)
    answer.add(exchange.alone(cells, options, path is not None, gpus, answer.say))


def _version(mpirun: str) -> str:
    """What mpirun says of itself, or why it does not."""
    try:
        done = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return done.stdout + done.stderr


def _lead(options: Doctor, launch: Launch, answer: _Answer) -> None:
    """Rank 0 of a launch: hear all, compare, decide what is tried, judge it."""
    answer.say(f"looking at {launch.size} rank(s)")
    lead = _look(options, launch)
    try:
        meeting = Meeting(meeting_folder(launch, options.config.rendezvous_dir, None), launch)
    except (UsageError, OSError):  # there is no folder for it, as `_look` has found as well
        answer.add(_findings(lead))
        return
    with closing(meeting):
        present = {0: lead, **meeting.hear("facts", range(1, launch.size), options.limit_s)}
        everybody = [present[rank] for rank in sorted(present)]
        answer.add(merge({rank: _findings(facts) for rank, facts in present.items()}))
        one_world = ranks.absent(present, launch.size, options.limit_s, os.environ)
        one_world += ranks.compare(everybody)
        answer.add(one_world)
        answer.add(ranks.cores(everybody, options.config.threads) + ranks.quiet(everybody))
        answer.add(ranks.devices(everybody) + places.find(everybody, options.config.threads))
        cells = exchange.cells(launch, options.cells, len(lead["devices"]))
        if any(finding.name == "ranks" and finding.level == "failure" for finding in one_world):
            text = f"{', '.join(cells)} not tried: the ranks are not one world"
            answer.add([warning("transports", text, "see above")])
            cells = []
        groups = exchange.groups(cells)
        meeting.tell("plan", {"groups": groups, "seats": [facts["seat"] for facts in everybody]})
        for group in groups:
            answer.say(f"trying {' and '.join(group)} (at most {options.limit_s * len(group):g} s)")
            exchange.take_part(group, launch, options, meeting)
            for cell in group:
                answers = meeting.hear(f"trial.{cell}", range(launch.size), options.limit_s)
                answer.add([exchange.judge(cell, answers, launch.size)])
                answer.add(exchange.bound(cell, answers, launch.size, options.alone))
        # the plan must not go before everybody has read it
        meeting.hear("left", set(present) - {0}, _LEAVE_S)


def _follow(options: Doctor, launch: Launch) -> None:
    """Any other rank: tell what is here, then take part in what rank 0 tries."""
    facts = _look(options, launch)
    problem = "did not hear of rank 0"
    try:
        meeting = Meeting(meeting_folder(launch, options.config.rendezvous_dir, None), launch)
        meeting.tell("facts", facts)
        # a plan that does not know this rank is an earlier launch's
        seat, limit_s = facts["seat"], 2 * options.limit_s
        plans = meeting.hear("plan", [0], limit_s, lambda plan: seat in plan["seats"])
        for group in plans[0]["groups"] if plans else []:
            exchange.take_part(group, launch, options, meeting)
        meeting.tell("left", True)
        if plans:
            return  # rank 0 speaks for all, and has the exit status
    except UsageError:
        problem = "has no folder to meet rank 0 in"
    except OSError as error:
        problem = f"cannot write to the ranks' folder: {error.strerror}"
    who = f"rank {launch.rank} on {facts['hostname']}"
    print(f"error: {who} {problem}", file=sys.stderr, flush=True)
