"""Statistics, figures and a report from run logs. No part needs torch or starts a run."""

from pathlib import Path
from typing import TYPE_CHECKING

from bench import version  # it ends an old Python, which could not parse the rest

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load_runs", "version"]


def load_runs(folder: Path | str) -> "pd.DataFrame":
    """Return the usable training runs of a study's folder, one row each, for a notebook.

    The table is that of runs.csv. Raises UsageError if no training run is usable. Columns:

    - what was run: `cell` (`backend`/`transport`, also columns), `arm` (the study's condition),
      `settings` (shipped, matched, tuned), `world_size` (ranks), `batch_per_rank`, `global_batch`
      (images), `warmup_steps` (untimed, at the start), `lead_in_steps` (untimed, before each
      window), `curves` (weak, strong, batch), `seed`, `study`, `model`, `dataset`, `precision`
    - whether it is real: `emulated` (true: compute slept), `timeline` (name of the timeline that an
      emulated run followed, with the head of its digest; empty for a real run)
    - where and when: `cpu`, `gpu` (names), `hosts`, `started` (UTC; empty in older logs), `launch`
      (number of a pass over all cells and sizes; -1: not recorded), `position` (in the launch's
      order), `allocation` (the scheduler's job, or the execution of a job script), `session` (first
      start and machine of a series of runs without a pause of 3 h), `log` (file name)
    - speed: `step_seconds_mean` (s; all timed windows, slowest rank), `images_per_s` (1/s, of all
      ranks: global_batch / step_seconds_mean), `step_seconds_median`, `step_seconds_p95`,
      `step_seconds_p99` (s; from the last rank's end of a step to the next; p95 is empty below 20
      steps, p99 below 100), `steps` and `windows` (how many were timed), `input_share` (share of
      the time in which the slowest rank waited for batches)
    - how sure: `judged` (false: too few steps to tell whether it was steady), `last_over_first`
      (seconds of a step, last window over first), `first_step_over_rest` and `lead_in_over_rest`
      (seconds of a window's first step, and of lead-in steps, over those of its other steps),
      `others_share` (share of a node's processor time that other processes or guests took),
      `busy_share` (share of the busiest host's cores at work in timed windows), `turns` ('taken':
      cells alternated window by window; else 'none' or why not), `exit_code`, `gradient_bytes`,
      `parameters_sha256` (at the end), `parity_not_proven` (number of tensors without proof that
      gradients were averaged)

    Compare cells only inside one launch: the machine's speed drifts between launches.
    """
    from bench.study.frames import load, require, tidy

    loaded = load(Path(folder))
    require(loaded, Path(folder))
    return tidy(loaded)
