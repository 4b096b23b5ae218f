"""Statistics, figures and a report from run logs; no part needs torch or starts a run."""

from pathlib import Path
from typing import TYPE_CHECKING

from bench import version  # it ends an old Python, which could not parse the rest

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load_runs", "version"]


def load_runs(folder: Path | str) -> "pd.DataFrame":
    """Return the usable training runs of a study's folder, one row each, for a notebook.

    The table is that of runs.csv. Raises UsageError if no log is usable. Columns:

    - what was run: `cell` (`backend`/`transport`), `arm` (the
      study's condition), `settings`, `world_size` (ranks), `batch_per_rank` and `global_batch`
      (images), `warmup_steps`, `lead_in_steps` (untimed, before each window), `curves` (weak,
      strong, batch), `seed`, `study`, `model`, `dataset`, `precision`
    - whether it is real: `emulated` (true: compute slept), `timeline` (name of the timeline that an
      emulated run followed, with the head of its digest; empty for a real run)
    - where and when: `cpu`, `gpu` (names), `hosts`, `started` (UTC; empty in older logs), `launch`
      (-1: none), `position` in it, `allocation` (the job, or execution of a job
      script), `session` (its first start and the machine), `log` (its file)
    - speed: `step_seconds_mean` (s; all timed windows, slowest rank), `images_per_s` (1/s, of all
      ranks: global_batch / step_seconds_mean), `step_seconds_median`, `_p95`, `_p99` (s; from
      the last rank's end of a step to the next; p95 is empty below 20 steps, p99 below 100),
      `steps` and `windows` (timed), `input_share` (of the time, waiting for batches)
    - how sure: `judged` (false: too few steps to tell whether it was steady), `last_over_first`
      (seconds of a step, last window over first), `first_step_over_rest` and `lead_in_over_rest`
      (seconds of a window's first step, and of lead-in steps, over those of its other steps),
      `others_share` (of a node's processor time, by other processes or stolen), `busy_share` (of
      the busiest host's cores, at work in timed windows), `turns` (taken, or why not),
      `exit_code`, `gradient_bytes`, `parameters_sha256` (at the end), `parity_not_proven` (tensors
      whose parity no rank could show)

    Compare cells inside launches: the machine's speed drifts between them.
    """
    from bench.study.frames import load, require, tidy

    loaded = load(Path(folder))
    require(loaded, Path(folder))
    return tidy(loaded)
