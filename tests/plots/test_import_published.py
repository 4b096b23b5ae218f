"""The page of imported and published numbers, on both baselines, with ours beside them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plots.__main__ import main
from tests.plots import logs

ROOT = Path(__file__).parents[2]
# images/s of each rank as the direct ancestor published them, weak scaling at 512 per rank
PUBLISHED = {
    "single": {1: [2238]},
    "horovod": {1: [1689], 2: [1472, 1476], 4: [1425, 1424, 1433, 1424]},
    "ddp": {1: [2076], 2: [1517, 1518], 4: [1386, 1387, 1389, 1387]},
}


def test_the_direct_ancestors_efficiencies(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for backend, worlds in PUBLISHED.items():
        for size, rates in worlds.items():
            log = tmp_path / f"{backend}-{size}.log"
            log.write_text(
                "".join(
                    f"Rank : {rank} Epoch 1: train set accuracy 0.5 time 10.00 throughput {rate} "
                    f"Sample Size {10 * rate}\n"
                    for rank, rate in enumerate(rates)
                )
            )
            words = ["import", "horovod-and-ddp", str(log), "--backend", backend, "--batch", "512"]
            assert main([*words, "--source", "OSC", "--out", str(out)]) == 0
    assert main(["published", str(out)]) == 0
    page = (out / "published.md").read_text()
    found = {
        row["backend"]: (row["efficiency, own"], row["efficiency, common"])
        for row in logs.rows(f"## All\n{page}", "All")
        if row["ranks"] == "4"
    }
    assert found == {"horovod": ("84.5 %", "63.7 %"), "ddp": ("66.8 %", "62.0 %")}


def test_ours_beside_the_shipped_tables(tmp_path: Path) -> None:
    study = logs.study(tmp_path / "study")
    logs.study_toml(study)
    shipped = ROOT / "results" / "published"
    out = tmp_path / "page"
    assert main(["published", str(shipped), "--study", str(study), "--out", str(out)]) == 0
    lines = (out / "published.md").read_text().splitlines()
    known = [x for x in (shipped / "published.md").read_text().splitlines() if x[:4] == "| 1 "]
    assert len(known) == 15
    assert [x for x in lines if x[:4] == "| 1 "] == known
    (measured,) = [line for line in lines if "| weak | horovod/mpi | 2 |" in line]
    assert re.search(r"[0-9.]+ \[[0-9.]+, [0-9.]+\] \| [0-9.]+ % \[[0-9.]+, [0-9.]+\]", measured)
    assert "n = 6 launches" in measured
    assert "step 900, as published" in "\n".join(lines).split("## Other quantities")[1]


HEAD = "source,backend,world_size,quantity,value,reducer\nme,ddp,"


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ([""], "0.csv is no CSV"),
        (["source,value\na,1\n"], "0.csv has no column backend, world_size"),
        (
            [f"{HEAD}1,images_per_s,{n},mean\n" for n in (100, 120)],
            "me: ddp at 1 ranks has two rates",
        ),
        ([f"{HEAD},images_per_s,5,mean\n"], "of images_per_s lacks its world_size or value"),
        ([f"{HEAD}1,epoch_seconds,5,mean\n"], "no table of it holds images_per_s"),
        ([], "no tables of imported points"),
    ],
)
def test_tables_that_make_no_curve_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tables: list[str], words: str
) -> None:
    for i, text in enumerate(tables):
        (tmp_path / f"{i}.csv").write_text(text)
    assert main(["published", str(tmp_path)]) == 2
    assert words in capsys.readouterr().err
