"""Published tables: known truths are found again, and what rows do not tell stays open."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench.instrument import timeline
from plots.__main__ import main
from plots.predict import table
from plots.predict.curves import recorded_steps, usual_steps
from plots.predict.step import Profile
from plots.predict.stream import Buckets, Cycles
from plots.predict.table import Series

ROOT = Path(__file__).parents[3]
RECORDED = ROOT / "bench/instrument/timelines/resnet50-h200-224px.json"
HOROVOD = ROOT / "results/published/prediction/pascal-2017.csv"
MXNET = HOROVOD.with_name("mxnet-k80.csv")
RANKS = np.array([2.0, 4, 8, 16, 64, 256])
TRUTH = {
    "slowdown": 1.05,
    "bytes_per_s": 1.2e9,
    "node_speed": 5.0,
    "latency_s": 30e-6,
    "rank_sd": 0.01,
    "fixed_share": 0.05,
    "row_sd": 0.01,
}
HEAD = "source,backend,world_size,batch_per_rank,global_batch,quantity,value,n,reducer\n"


def series(efficiency: np.ndarray | None = None, **changes: object) -> Series:
    profile = table.scaled(Profile.of(timeline.read(RECORDED)[0]), 0.1)
    values = np.full(len(RANKS), np.nan) if efficiency is None else efficiency
    blank = Series(profile=profile, exchange=Buckets(), ranks=RANKS, efficiency=values)
    return replace(blank, **changes)  # type: ignore[arg-type]


def truth(of: Series) -> np.ndarray:
    draws = {name: np.array([value]) for name, value in TRUTH.items()}
    return np.asarray(table.model(of, draws)[0])


@pytest.mark.parametrize("strong", [False, True])
def test_a_known_truth_is_predicted_and_lies_in_the_band(strong: bool) -> None:
    known = truth(series(strong=strong))
    assert known[-1] < known[0] < 1
    fitted = table.fit([series(known, strong=strong)], 16)
    draws = table.predict(series(known, strong=strong), fitted)
    low, middle, high = np.quantile(draws, (0.05, 0.5, 0.95), axis=0)
    assert np.all((low < known) & (known < high))
    assert np.abs(middle - known).max() < 0.05


def test_each_model_has_one_step_of_whole_images() -> None:
    """A second would take the first one's place without a word."""
    steps = [stem for stem in recorded_steps() if stem.endswith("-224px")]
    assert len(usual_steps()) == len(steps) == 6


def test_fewer_rows_leave_more_open() -> None:
    known = truth(series())
    widths = []
    for rows in (1, 4):
        fitted = table.fit([series(known)], RANKS[rows - 1])
        low, high = np.quantile(table.predict(series(), fitted)[:, -1], (0.05, 0.95))
        widths.append(high - low)
    assert widths[1] < 0.8 * widths[0]


def test_rows_that_no_parameters_explain_widen_all() -> None:
    known = truth(series())
    wrong = known * [1.2, 0.8, 1.2, 0.8, 1, 1]
    bad, good = (table.fit([series(rows)], 16) for rows in (wrong, known))
    assert bad.median("row_sd") > 2 * good.median("row_sd")


def test_what_the_largest_fitted_rows_miss_goes_on() -> None:
    """As where all GPUs of a node share what a few have each; no parameter is of that."""
    known = truth(series())
    missed = known * np.where(RANKS < 16, 1.0, 0.95)
    middles = [
        np.median(table.predict(series(rows), table.fit([series(rows)], 16)), axis=0)[-2:]
        for rows in (known, missed)
    ]
    assert np.all(middles[1] < 0.98 * middles[0])
    assert middles[1] == pytest.approx(missed[-2:], abs=0.03)


def test_made_up_tables_lie_in_their_bands() -> None:
    """Truths drawn from the beliefs themselves, rows with their scatter: 90 % should be inside."""
    generator = np.random.default_rng(1)
    inside = []
    for number in range(10):
        drawn = {
            name: np.exp(generator.normal(np.log([p.median]), p.log_sd))
            for name, p in table.PRIOR.items()
        }
        exchange = Buckets() if number % 2 else Cycles()
        blank = series(exchange=exchange, ranks_per_node=(1, 8)[number % 2], strong=number > 7)
        together = np.linalg.cholesky(table.missed_alike(RANKS, RANKS))
        scatter = np.exp(drawn["row_sd"] * (together @ generator.standard_normal(len(RANKS))))
        rows = replace(blank, efficiency=table.model(blank, drawn)[0] * scatter)
        draws = table.predict(rows, table.fit([rows], 16, seed=number), seed=number)
        low, high = np.quantile(draws, (0.05, 0.95), axis=0)[:, -2:]
        inside += [*((low <= rows.efficiency[-2:]) & (rows.efficiency[-2:] <= high))]
    assert len(inside) == 20
    assert sum(inside) >= 15, "fewer come by chance in 1 of 89 tries at 90 %"


def test_a_table_without_one_rank_is_against_its_fewest() -> None:
    whole = truth(series())
    part = truth(series(ranks=RANKS[1:], efficiency=RANKS[1:], base_ranks=2.0))
    np.testing.assert_allclose(part, whole[1:] / whole[0])


def predict(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["predict", *words]) == 0
    return capsys.readouterr().out


def test_the_page_names_what_is_fitted_and_what_is_predicted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    setting = ["--ranks-per-node", "4", "--cycle-ms", "5", "--fusion-mib", "64"]
    words = ["--from", str(HOROVOD), "--ranks", "512", *setting]
    page = predict(capsys, *words, "--criterion", "75")
    assert page.count("| fitted |") == page.count("| predicted |") == 9
    assert "efficiency falls below 75 % at " in page
    lines = predict(capsys, *words, "--format", "csv").splitlines()
    assert lines[0].startswith("source,curve,backend,batch,world_size,use,images_per_s")
    assert len(lines) == 19


def test_the_predictions_that_are_shipped_are_those_of_today(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shipped = (ROOT / "results/published/prediction/predicted.md").read_text()
    words = ["--ranks", "128,512", "--ranks-per-node", "4", "--cycle-ms", "5"]
    page = predict(
        capsys, "--from", str(HOROVOD), *words, "--fusion-mib", "64", "--criterion", "75"
    )
    assert page.splitlines()[:3] == shipped.splitlines()[:3]
    rows = [
        [r.split(" | ") for r in text.splitlines() if "| predicted |" in r]
        for text in (page, shipped)
    ]
    assert len(rows[0]) == len(rows[1]) == 18
    for now, then in zip(*rows, strict=True):
        assert now[:4] == then[:4]
        for cell, other in zip(now[7:10], then[7:10], strict=True):
            assert float(cell.strip(" %")) == pytest.approx(float(other.strip(" %")), abs=0.5)


def test_a_foreign_table_of_256_gpus_lies_in_its_bands(capsys: pytest.CaptureFixture[str]) -> None:
    """MXNet's of 2017, fitted on one node of sixteen: mean error within 5 points of efficiency."""
    words = ["--from", str(MXNET), "--ranks-per-node", "16", "--format", "csv"]
    rows = pd.read_csv(io.StringIO(predict(capsys, *words)))
    rows = rows[rows["use"] == "predicted"]
    assert [*rows["world_size"]] == 3 * [32, 64, 128, 256]
    assert rows["inside"].mean() >= 0.9
    assert rows["points_off"].abs().mean() < 5


def test_a_row_that_is_kept_from_the_fit_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = zip(RANKS, truth(series()), strict=True)
    rows = [f"a, ResNet-50,ddp,{n:.0f},64,,images_per_s,{640 * n * e},1,one" for n, e in rates]
    path = tmp_path / "t.csv"
    text = "\n".join(row.replace("a, ResNet-50", '"a, ResNet-50"') for row in rows)
    path.write_text(f'{HEAD}"a, ResNet-50",ddp,1,64,,images_per_s,640,1,one\n{text}\n')
    page = predict(capsys, "--from", str(path))
    assert "Of 2 published rows that were not fitted, 2 are in the band." in page


def test_another_batch_is_no_row_of_the_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    rows = [(1, 64), (2, 64), (4, 64), (8, 32)]
    lines = [f"a,ddp,{n},{batch},,images_per_s,{600 * n},1,one" for n, batch in rows]
    path.write_text(HEAD + "\n".join(lines) + "\n")
    page = predict(capsys, "--from", str(path))
    assert "the batch changes on the way: at 8 ranks it is another, so not of this curve" in page
    assert "| 8 |" not in page


def lines(backend: str, batches: str, rates: Mapping[int, float]) -> str:
    source = "a ResNet-50"
    rows = [f"{source},{backend},{n},{batches},images_per_s,{r},1,one" for n, r in rates.items()]
    return "\n".join(rows) + "\n"


def test_a_superlinear_row_is_named_and_not_fitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEAD + lines("ddp", "64,", {1: 100, 2: 220, 4: 396, 8: 776}))
    page = predict(capsys, "--from", str(path))
    assert "superlinear at 2 ranks, which the model cannot explain: not fitted" in page
    assert re.findall(r"\| (\d) \| (fitted|predicted) \|", page) == [
        ("2", "predicted"),
        ("4", "fitted"),
        ("8", "fitted"),
    ]


def test_the_source_of_a_curve_that_is_left_out_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    fitted, left_out = lines("ddp", "64,", {1: 100, 2: 190}), lines("ddp", "32,", {1: 100, 32: 9e2})
    other = left_out.replace(left_out.partition(",")[0], "far away")
    path.write_text(HEAD + fitted + other)
    page = predict(capsys, "--from", str(path))
    assert "2, ddp, 32 images a rank: no row of few enough ranks" in page
    assert page.endswith("2. far away\n")


def test_a_backend_is_known_with_its_transport_and_in_capitals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    names = ("horovod", "Horovod", "horovod/nccl")
    rates = {1: 100, 2: 190, 4: 370, 16: 1200}
    path.write_text(HEAD + "".join(lines(name, "64,", rates) for name in names))
    words = ["--ranks", "64", "--format", "csv"]
    rows = pd.read_csv(io.StringIO(predict(capsys, "--from", str(path), *words)))
    far = rows[rows["world_size"] == 64].set_index("backend")["predicted_efficiency"]
    assert {*far.index} == {*names}
    assert len({*far}) == 1


def test_ranks_that_do_not_divide_a_steps_images_have_no_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEAD + lines("ddp", ",256", {1: 100, 2: 190, 4: 350}))
    page = predict(capsys, "--from", str(path), "--ranks", "3,8", "--criterion", "1")
    assert "efficiency falls below 1 % at more than 256 ranks" in page
    assert "256 images of a step do not divide among 3 ranks: no row" in page
    assert "| 8 | predicted |" in page
    assert "| 3 | predicted |" not in page
    assert main(["predict", "--from", str(path), "--ranks", "3,8", "--format", "csv"]) == 0
    rows, notes = capsys.readouterr()
    assert [*pd.read_csv(io.StringIO(rows))["world_size"]] == [2, 4, 8]
    assert "256 images of a step do not divide among 3 ranks: no row" in notes, "beside the rows"
    assert notes.startswith("note: source 1: "), "by which the notes name it"


def test_the_criterion_is_crossed_where_the_rows_cross_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEAD + lines("ddp", "64,", {1: 100, 2: 170, 4: 300, 8: 540}))
    words = ["--from", str(path), "--ranks", "16,32,64,128,256,512,1024", "--criterion", "60"]
    assert main(["predict", *words, "--format", "csv"]) == 0
    text, notes = capsys.readouterr()
    efficiency = pd.read_csv(io.StringIO(text)).set_index("world_size")["predicted_efficiency"]
    below = efficiency.index[efficiency < 0.6].min()
    assert 8 < below < 1024
    assert f"efficiency falls below 60 % at {below:,} ranks" in notes


def test_a_profile_that_is_none_is_named_by_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--from", str(HOROVOD), "--profile", str(HOROVOD)]) == 2
    assert capsys.readouterr().err.startswith(f"error: profile='{HOROVOD}' is no timeline")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no CSV: No columns to parse"),
        ("a,b\n1,2\n", "has no column source"),
        (f"{HEAD}x,ddp,1,64,,images_per_s,10,1,one\n", "has two rows of at most 16 ranks; use"),
        (f"{HEAD}x,ddp,0,64,,images_per_s,10,1,one\n", "world_size below 1"),
        (f"{HEAD}x,ddp,two,64,,images_per_s,10,1,one\n", "numbers alone stand in such columns"),
        (f"{HEAD}x,ddp,,64,,images_per_s,10,1,one\n", "images_per_s has no world_size"),
        (f"{HEAD}x,ddp,inf,64,,images_per_s,10,1,one\n", "world_size below 1 or above 1e+12"),
        (f"{HEAD}x,ddp,1,0,,images_per_s,10,1,one\n", "batch_per_rank below 1"),
        (f"{HEAD}x,ddp,1,many,,images_per_s,10,1,one\n", "numbers alone stand in such columns"),
    ],
    ids=[
        "empty",
        "columns",
        "one row",
        "no ranks",
        "words",
        "blank",
        "endless",
        "no batch",
        "batch",
    ],
)
def test_a_table_that_tells_nothing_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert main(["predict", "--from", str(path)]) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"error: {path}")
    assert line.count("\n") == 1
    assert said in line
