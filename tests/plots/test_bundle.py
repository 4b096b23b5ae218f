"""A study's archive: whole, always the same bytes, and refused where the folder is not."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.record import append_event, archive
from bench.study.files import read_study
from bench.study.plan import PlannedRun, plan
from plots.__main__ import main
from plots.read.runs import ATTEMPT
from plots.report import write
from slurm.load import read_site
from slurm.render import render_job
from tests.plots import logs
from tests.slurm.stand_in import environment
from tests.slurm.studies import ROOT, small

pytestmark = pytest.mark.usefixtures("undrawn")

EXIT = {"timed_out": False, "limit_s": 30, "interrupted": False, "wall_s": 4}


def write_log(run: PlannedRun, path: Path | None = None, **changes: object) -> None:
    """The log of a run that did what it was asked to do."""
    config = run.config.model_copy(update=changes)
    logs.write(
        path or run.log,
        config,
        0.1 * config.samples_per_rank / 16,
        provenance={**logs.host(config.world_size), "started": "2026-11-20T16:30:11+00:00"},
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete study of one block as `python -m slurm run` leaves it, with its report."""
    top = tmp_path_factory.mktemp("whole")
    study = small(top, blocks="blocks = 1")
    folder = top / "results" / "small"
    runs = plan(study, 1, folder / "runs")[0]
    for run in runs:
        write_log(run)
        run.log.with_suffix(".out").write_text("window 2/2\n")
    text = (top / "study.toml").read_text()
    (folder / "study.toml").write_text(text)
    (folder / "job-001.sh").write_text(render_job(study, text, read_site("local"), runs, folder))
    (folder / "jobs.jsonl").write_text(
        '{"script": "job-001.sh", "time": "2026-11-20T16:30:10+00:00", "blocks": 1, "runs": 7}\n'
    )
    assert main(["report", str(folder)]) == 0
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(whole, tmp_path / "small"))


def first_log(folder: Path) -> Path:
    return min((folder / "runs").glob("b00-00-*.jsonl"))


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        found = {}
        for info in tar.getmembers():
            assert (info.uid, info.gid, info.uname, info.gname, info.mode) == (0, 0, "", "", 0o644)
            assert info.mtime == 1795192211  # 2026-11-20T16:30:11+00:00, when the newest run began
            file = tar.extractfile(info)
            assert file is not None
            found[info.name] = file.read()
    return found


def manifest(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        next(data for name, data in members(path).items() if name.endswith("/MANIFEST.json"))
    )
    return found


def test_the_same_folder_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    assert main(["bundle", str(folder)]) == 0
    assert main(["bundle", str(folder)]) == 0  # the same again is no conflict
    (tmp_path / "out").mkdir()
    for path in folder.rglob("*"):
        path.touch()
    assert main(["bundle", str(folder), "--out", str(tmp_path / "out")]) == 0
    one, two = (
        path.read_bytes() for path in (tmp_path / "small.tar.gz", tmp_path / "out" / "small.tar.gz")
    )
    assert hashlib.sha256(one).hexdigest() == hashlib.sha256(two).hexdigest()
    assert not [*tmp_path.rglob("*.tmp")]


def test_the_manifest_holds_for_every_file(folder: Path, tmp_path: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    assert main(["bundle", str(folder), "--out", str(tmp_path / "cited.tar.gz")]) == 0
    found = members(tmp_path / "cited.tar.gz")
    facts = manifest(tmp_path / "cited.tar.gz")
    listed = {f"small/{file['path']}": (file["bytes"], file["sha256"]) for file in facts["files"]}
    assert listed == {
        name: (len(data), hashlib.sha256(data).hexdigest())
        for name, data in found.items()
        if name != "small/MANIFEST.json"
    }
    assert {name.split("/")[1] for name in found} == {
        *("MANIFEST.json", "study.toml", "jobs.jsonl", "job-001.sh", "runs"),
        *("report.md", "report.html", "summary.json", "figures"),
        *("runs.csv", "points.csv", "comparisons.csv"),
    }
    for name in found.keys() - {"small/MANIFEST.json"}:
        assert found[name] == (folder / name.removeprefix("small/")).read_bytes()
    assert facts["left_out"] == ["notes.txt"]
    assert facts["runs"]["planned"] == facts["runs"]["by_state"]["ok"] == 7
    assert facts["blocks"] == {"planned": 1, "usable": 1}
    assert facts["gaps"] == []
    assert facts["provenance"]["versions.torch"] == ["2.13.0+cpu"]
    assert facts["provenance"]["cpus_on_node"] == [2]
    assert facts["study"]["name"] == "small"


def test_missing_runs_are_gaps(folder: Path, tmp_path: Path) -> None:
    paths = sorted((folder / "runs").glob("b00-0?-*.jsonl"))
    for number in range(3):
        lines = paths[number].read_text().splitlines(keepends=True)
        paths[number].write_text("".join(lines[:3]))
    append_event(paths[0], "exit", code=1, **EXIT)
    killed = "srun: error: r2: task 1: Out Of Memory"
    append_event(paths[1], "exit", code=137, said=[killed], **EXIT)
    attempt = paths[2].rename(folder / "runs" / f"{paths[2].stem}.attempt-1.jsonl")
    # why it was done again
    attempt.write_text(attempt.read_text().replace('"seconds": 0.', '"seconds": 1.', 1))
    assert main(["report", str(folder)]) == 0
    assert main(["bundle", str(folder)]) == 0
    facts = manifest(tmp_path / "small.tar.gz")
    assert facts["gaps"] == [
        {"run": paths[0].stem, "state": "failed", "reason": "exit code 1: no end event"},
        {"run": paths[1].stem, "state": "out of memory", "reason": killed},
        {"run": paths[2].stem, "state": "planned", "reason": None},
    ]
    ended = {"ok": 4, "failed": 1, "out of memory": 1, "planned": 1}
    assert {k: n for k, n in facts["runs"]["by_state"].items() if n} == ended
    assert facts["superseded_attempts"] == [f"runs/{paths[2].stem}.attempt-1.jsonl"]


def edit(path: Callable[[Path], Path], old: str, new: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        file = path(folder)
        text = file.read_text()
        assert old in text
        file.write_bytes(logs.resealed(text.replace(old, new, 1).encode()))

    return spoil


def change(name: str, old: str, new: str) -> Callable[[Path], None]:
    return edit(lambda folder: folder / name, old, new)


def unlink(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def no_end(folder: Path) -> None:
    lines = first_log(folder).read_text().splitlines(keepends=True)
    first_log(folder).write_text("".join(lines[:3]))


def another_name(folder: Path) -> None:
    first, second = sorted((folder / "runs").glob("b00-0?-*.jsonl"))[:2]
    shutil.copy(second, first)


def other_parameters(folder: Path) -> None:
    text = first_log(folder).read_text()
    right = text.split('"parameters_sha256": "')[1][:64]
    logs.edit(first_log(folder), right, right[::-1])


CHANGED = "the study file differs from the one that 7 of 7 runs carry: what is fixed before the "
CHANGED += (
    "first run was changed after it; restore study.toml, whose first text every job script holds"
)


@pytest.mark.parametrize(
    ("spoil", "part"),
    [
        (unlink("study.toml"), "there is no study.toml"),
        (change("study.toml", "blocks = 1", "margin = 0.2\nblocks = 1"), CHANGED),
        (unlink("job-001.sh"), "jobs.jsonl names job-001.sh, which is not there"),
        (edit(first_log, '"seed": ', '"seed": 1'), "has seed=17, planned 7"),
        (edit(first_log, '"phase"', '"stage"'), "is damaged: line 2: steps.phase: Field required"),
        (no_end, "has no end: wait for its job"),
        (another_name, "is of another run than its name says: it was written as b00-01-"),
        (other_parameters, "ended with different parameters: block 0"),
        (change("report.md", "## Answer", "## The answer"), "; make it again: python -m plots"),
        (change("summary.json", '"margin": 0.', '"margin": 1.'), "the logs say (study.margin)"),
    ],
)
def test_a_folder_that_contradicts_itself_is_refused(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], None],
    part: str,
) -> None:
    spoil(folder)
    assert main(["bundle", str(folder)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {folder}")
    assert part in error
    assert error.count("\n") == 1
    assert not (tmp_path / "small.tar.gz").exists()


def test_a_folder_that_changes_meanwhile_is_refused(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = write.make

    def late(study: Path, out: Path) -> list[str]:
        (folder / "runs" / "b00-07-late.jsonl").write_text("")
        return make(study, out)

    monkeypatch.setattr(write, "make", late)
    assert main(["bundle", str(folder)]) == 2
    assert (
        "runs/b00-07-late.jsonl changed while the study was read; do it again when nobody"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "small.tar.gz").exists()


@pytest.mark.parametrize(
    ("out", "part"),
    [
        ("small.tar.gz", "is there with other contents; replace it with --force"),
        ("no/where.tar.gz", "cannot be written: No such file or directory"),
    ],
)
def test_nothing_is_overwritten(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str, part: str
) -> None:
    (tmp_path / "small.tar.gz").write_bytes(b"mine")
    assert main(["bundle", str(folder), "--out", str(tmp_path / out)]) == 2
    assert part in capsys.readouterr().err
    assert (tmp_path / "small.tar.gz").read_bytes() == b"mine"
    assert main(["bundle", str(tmp_path / "nowhere")]) == 2


@pytest.mark.parametrize("link", ["runs/x.out", "jobs", "figures/mine.svg", "job-9.sh"])
def test_a_link_that_leads_out_of_the_folder_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], link: str
) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("secret")
    (folder / link).symlink_to(tmp_path / "secret" / ("" if link == "jobs" else "key"))
    assert main(["bundle", str(folder)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {folder / link}")
    assert (
        f"leads out of the folder, to {tmp_path / 'secret' / 'key'}; put a copy in its place, or "
        f"remove it\n" in error
    )
    assert error.count("\n") == 1
    assert not (tmp_path / "small.tar.gz").exists()


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


def said(folder: Path, *events: tuple[str, str, int]) -> None:
    """Write what a job of block 0 said of itself: event, number, restart."""
    (folder / "jobs").mkdir(exist_ok=True)
    names = ("event", "job", "restart")
    lines = [json.dumps(dict(zip(names, event, strict=True))) + "\n" for event in events]
    (folder / "jobs" / "n001-b00.jsonl").write_text("".join([*lines, '{"event": "cal']))


@pytest.fixture
def archived(folder: Path) -> Path:
    """A study of a batch system whose logs were moved into its archive."""
    said(folder, ("begin", "7", 0), ("end", "7", 0))
    assert main(["bundle", "--in-place", str(folder)]) == 0
    return folder


def test_archived_logs_are_read_as_if_they_lay_in_the_folder(folder: Path, tmp_path: Path) -> None:
    said(folder, ("begin", "7", 0), ("end", "7", 0))
    assert main(["report", str(folder)]) == main(["bundle", str(folder)]) == 0
    before, cited = files_of(folder), (tmp_path / "small.tar.gz").read_bytes()
    assert main(["bundle", "--in-place", str(folder)]) == 0
    after = files_of(folder)
    packed = members(folder / archive.NAME)
    assert {**after, **packed} == {**before, archive.NAME: after[archive.NAME]}
    assert {path.partition("/")[0] for path in packed} == {"runs", "jobs", "job-001.sh"}
    assert not packed.keys() & after.keys()
    assert not (folder / "runs").exists()
    assert main(["report", str(folder)]) == main(["bundle", str(folder)]) == 0
    assert files_of(folder) == after, "the same page, the same numbers"
    assert (tmp_path / "small.tar.gz").read_bytes() == cited
    assert main(["bundle", "--in-place", str(folder)]) == 0
    assert files_of(folder) == after, "the same archive"
    subprocess.run(["tar", "xzf", archive.NAME], cwd=folder, check=True)
    assert main(["report", str(folder)]) == 0, "both have the same"
    (folder / archive.NAME).unlink()
    assert files_of(folder) == before


def _slurm(verb: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "slurm", verb, str(folder)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True)


def test_a_study_whose_logs_are_archived_is_looked_at_and_never_added_to(archived: Path) -> None:
    status = _slurm("status", archived)
    assert (status.returncode, "7 runs: 7 ok" in status.stdout) == (0, True)
    file = f"{archived}/{archive.NAME}"
    cure = f"unpack them first: tar xzf {file} -C {archived} && rm {file}"
    before = files_of(archived)
    refused = _slurm("run", archived)
    study = small(archived.parent, blocks="blocks = 1")
    script = render_job(study, "", read_site("local"), plan(study, 1, archived)[0], archived)
    by_hand = subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env=environment(archived.parent),
        capture_output=True,
        text=True,
    )
    for done in (refused, by_hand):
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"error: {archived}: its logs are archived; {cure}\n"
    assert files_of(archived) == before


def test_a_log_that_is_another_one_in_the_archive_is_refused(
    archived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = next(name for name in members(archived / archive.NAME) if name.endswith(".jsonl"))
    (archived / name).parent.mkdir()
    (archived / name).write_text("{}\n")
    rule = f"{archived / name} is another file in {archive.NAME} beside it; remove one of the two"
    for words in (["--in-place"], []):
        assert main(["bundle", *words, str(archived)]) == 2
        assert capsys.readouterr().err == f"error: {rule}\n"


def test_logs_are_not_archived_under_a_job_nor_where_there_are_none(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(folder, ("begin", "7", 0))
    before = files_of(folder)
    assert main(["bundle", "--in-place", str(folder)]) == 2
    assert "job 7 has begun and not ended" in capsys.readouterr().err
    assert files_of(folder) == before
    assert main(["bundle", "--in-place", str(tmp_path)]) == 2
    assert "holds no logs to archive" in capsys.readouterr().err


def test_a_bundle_is_unpacked_before_it_is_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bundle", str(folder)]) == 0
    capsys.readouterr()
    assert main(["report", f"{folder}.tar.gz"]) == 2
    rule = f"is an archive; unpack it, tar xzf {folder}.tar.gz, and name the study's folder"
    assert capsys.readouterr().err == f"error: {folder}.tar.gz {rule}\n"


@pytest.mark.parametrize(
    "file", sorted((ROOT / "results").glob("*/study.toml")), ids=lambda path: path.parent.name
)
def test_every_shipped_log_is_of_a_run_that_its_study_plans(file: Path) -> None:
    """Names of runs decide their order, and what a folder begun by an earlier version lacks."""
    folder = file.parent
    contents = archive.contents(folder)
    names = {Path(p).stem for p in contents if p.startswith("runs/") and p.endswith(".jsonl")}
    study = read_study(file)
    blocks = max(int(name[1:3]) for name in names) + 1
    planned = {run.id for block in plan(study, blocks, folder / "runs") for run in block}
    assert {ATTEMPT.sub("", f"{name}.jsonl").removesuffix(".jsonl") for name in names} <= planned
