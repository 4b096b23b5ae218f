"""A study's archive: whole, always the same bytes, and refused where the folder is not."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.config import UsageError
from bench.record import archive
from bench.study.folder import StudyFolder
from bench.study.plan import plan
from plots.__main__ import main
from plots.report import write
from slurm.__main__ import main as slurm
from slurm.load import read_site
from slurm.render import render_job
from tests.plots import logs
from tests.slurm.studies import small

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a complete study of one block as `python -m slurm run` leaves it, with its report."""
    top = tmp_path_factory.mktemp("whole")
    study = small(top, blocks="blocks = 1")
    text = (top / "study.toml").read_text()
    folder = top / "results" / "small"
    runs = plan(study, 1, folder / "runs")[0]
    for run in runs:
        place = {**logs.host(run.config.world_size), "started": "2026-11-20T16:30:11+00:00"}
        config = run.config.model_copy(update={"study_sha256": study.sha256})
        logs.write(run.log, config, 0.1 * config.samples_per_rank / 16, provenance=place)
        run.log.with_suffix(".out").write_text("window 2/2\n")
    (folder / "study.toml").write_text(text)
    (folder / "job-001.sh").write_text(render_job(study, text, read_site("local"), runs, folder))
    job = '{"script": "job-001.sh", "time": "2026-11-20T16:30:10+00:00", "blocks": 1, "runs": 7}\n'
    (folder / "jobs.jsonl").write_text(job)
    said(folder, "begin", "end")
    assert main(["report", str(folder)]) == 0
    return folder


def said(folder: Path, *events: str) -> None:
    """Write what job 7, of block 0, said of itself; its last line is torn."""
    (folder / "jobs").mkdir(exist_ok=True)
    lines = [json.dumps({"event": event, "job": "7", "restart": 0}) + "\n" for event in events]
    (folder / "jobs" / "n001-b00.jsonl").write_text("".join([*lines, '{"event": "cal']))


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """Provide a copy of the study to spoil."""
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


def test_a_bundle_lists_every_file_and_has_the_same_bytes_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "notes.txt").write_text("mine")
    assert main(["bundle", str(folder)]) == 0
    assert main(["bundle", str(folder)]) == 0  # the same again is no conflict
    for path in folder.rglob("*"):
        path.touch()
    (tmp_path / "out").mkdir()
    assert main(["bundle", str(folder), "--out", str(tmp_path / "out")]) == 0
    bundle = tmp_path / "small.tar.gz"
    assert bundle.read_bytes() == (tmp_path / "out" / "small.tar.gz").read_bytes()
    found = members(bundle)
    manifest = json.loads(found.pop("small/MANIFEST.json"))
    assert {f"small/{x['path']}": (x["bytes"], x["sha256"]) for x in manifest["files"]} == {
        name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in found.items()
    }
    assert {f"small/{name}": data for name, data in files_of(folder).items()} == {
        **found,
        "small/notes.txt": b"mine",
    }
    assert main(["report", str(bundle)]) == 2
    assert f"is an archive; unpack it, tar xzf {bundle}" in capsys.readouterr().err


def edit(name: str, old: str, new: str, seal: bool = True) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        file = folder / name if name else first_log(folder)
        text = file.read_text()
        assert old in text
        changed = text.replace(old, new, 1).encode()
        file.write_bytes(logs.resealed(changed) if seal else changed)

    return spoil


def no_end(folder: Path) -> None:
    lines = first_log(folder).read_text().splitlines(keepends=True)
    first_log(folder).write_text("".join(lines[:3]))


def another_name(folder: Path) -> None:
    first, second = sorted((folder / "runs").glob("b00-0?-*.jsonl"))[:2]
    shutil.copy(second, first)


@pytest.mark.parametrize(
    ("spoil", "part"),
    [
        (lambda folder: (folder / "study.toml").unlink(), "there is no study.toml"),
        (
            edit("study.toml", "blocks = 1", "margin = 0.2\nblocks = 1"),
            "the study file differs from the one that 7 of 7 runs carry",
        ),
        (edit("", '"seed": ', '"seed": 1'), "has seed=17, planned 7"),
        (edit("", '"phase"', '"stage"'), "is damaged: line 2: steps.phase: Field required"),
        (edit("", '"pid": ', '"pid": 9', seal=False), "is damaged: the log was changed after"),
        (no_end, "has no end: wait for its job"),
        (another_name, "has backend='ddp', planned 'horovod'"),
        (lambda folder: said(folder, "begin"), "job 7 has begun and not ended"),
        (edit("report.md", "## Methods", "## The methods"), "report.md is not what the logs say"),
        (edit("summary.json", '"margin": 0.', '"margin": 1.'), "summary.json is not what the"),
        (edit("summary.json", "{", "["), "summary.json is not what the logs say"),
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


def test_numbers_may_differ_in_the_last_bits_alone(folder: Path) -> None:
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    for change, code in ((1e-12, 0), (1e-6, 2)):
        summary["throughput"][0]["step_seconds"]["value"] *= 1 + change
        path.write_text(json.dumps(summary))
        assert main(["bundle", str(folder)]) == code


def test_a_folder_that_changes_meanwhile_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make = write.make

    def late(study: Path, out: Path) -> list[str]:
        (folder / "runs" / "b00-07-late.jsonl").write_text("")
        return make(study, out)

    monkeypatch.setattr(write, "make", late)
    assert main(["bundle", str(folder)]) == 2
    assert "runs/b00-07-late.jsonl changed while the study was read" in capsys.readouterr().err


def test_nothing_is_overwritten(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "small.tar.gz"
    bundle.write_bytes(b"mine")
    assert main(["bundle", str(folder)]) == 2
    assert "is there with other contents; replace it with --force" in capsys.readouterr().err
    assert bundle.read_bytes() == b"mine"
    assert main(["bundle", str(folder), "--force"]) == 0
    assert members(bundle)


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


def test_archived_logs_are_read_as_if_they_lay_in_the_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    capsys.readouterr()
    assert slurm(["status", str(folder)]) == 0
    assert "7 runs: 7 ok" in capsys.readouterr().out
    with pytest.raises(UsageError, match="its logs are archived; unpack them first: tar xzf"):
        StudyFolder(tmp_path, "small").lock()
    subprocess.run(["tar", "xzf", archive.NAME], cwd=folder, check=True)
    assert main(["report", str(folder)]) == 0, "both have the same"
    first_log(folder).write_text("{}\n")
    rule = f"{first_log(folder)} is another file in {archive.NAME} beside it; remove one of the two"
    for words in (["--in-place"], []):
        assert main(["bundle", *words, str(folder)]) == 2
        assert capsys.readouterr().err == f"error: {rule}\n"


def test_logs_are_not_archived_under_a_job_nor_where_there_are_none(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(folder, "begin")
    before = files_of(folder)
    assert main(["bundle", "--in-place", str(folder)]) == 2
    assert "job 7 has begun and not ended" in capsys.readouterr().err
    assert files_of(folder) == before
    assert main(["bundle", "--in-place", str(tmp_path)]) == 2
    assert "holds no logs to archive" in capsys.readouterr().err
