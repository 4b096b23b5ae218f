"""Hostile study and site files: refused in one line, or no shell executes what they say."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.config import UsageError
from bench.study.files import read_study, read_text
from slurm.directives import Request
from slurm.fit import fit, jobs, text_of
from slurm.load import read_site
from slurm.render import render_batch, render_report
from tests.slurm.scripts import complaint, planned
from tests.slurm.studies import ROOT, SMALL

COMMANDS = """$(touch MARK)|`touch MARK`|' ; touch MARK; '|" ; touch MARK; "|\ntouch MARK\n|\\\n\
touch MARK #|a[$(touch MARK)]|\nEND_OF_STUDY\ntouch MARK\n|\u2028touch MARK|{{ 1 }} %} <# MARK"""
SHOWN = st.characters(exclude_categories=["Cc", "Cs"])
TEXT = st.builds(str.__add__, st.text(SHOWN, max_size=3), st.sampled_from(COMMANDS.split("|")))
SITE = (ROOT / "slurm/sites/generic.toml").read_text()
STUDY = SMALL.replace('"digits"', '"my.images:make"').replace('"ddp/mpi"', '"ddp/gloo"')
# of a site and of a study, dotted keys of free text; a list gets the text as its one element
OF_SITE = "title notes launch_args access.extra network.ifname setup.modules setup.venv env.OPTION"
OF_STUDY = "question run.data_dir"
LISTS = ("notes", "launch_args", "extra", "modules")


def planted(text: str, keys: str, values: dict[str, str]) -> str:
    """Put values under those of its dotted keys that are named."""
    document = tomlkit.parse(text).unwrap()
    for key in set(values) & set(keys.split()):
        *tables, name = key.split(".")
        place = document
        for table in tables:
            place = place.setdefault(table, {})
        place[name] = [values[key]] if name in LISTS else values[key]
    return tomlkit.dumps(document)


def rendered(folder: Path) -> list[str]:
    source = folder / "study.toml"
    written, site = read_study(source), read_site(str(folder / "generic.toml"))
    study, request = fit(written, site, (1,), source), Request(site)
    job = jobs(planned(study, folder, 1), site)[0]
    text = text_of(study, written, read_text(source))
    return [render_batch(study, text, request, job, folder), render_report(study, request, folder)]


@settings(deadline=None, max_examples=150)
@given(
    st.dictionaries(st.sampled_from(f"{OF_SITE} {OF_STUDY}".split()), TEXT, min_size=1, max_size=2)
)
def test_no_shell_executes_a_value(values: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "slurm/driver").mkdir(parents=True)
        for file in ("slurm/driver/__main__.py", "module"):
            (folder / file).touch(0o755)
        (folder / "study.toml").write_text(planted(STUDY, OF_STUDY, values))
        (folder / "generic.toml").write_text(planted(SITE, OF_SITE, values))
        scripts, said = [], ""
        try:
            scripts = rendered(folder)
        except UsageError as error:
            said = str(error)
        assert "\n" not in said
        assert complaint(scripts) == ""
        env = {"PATH": f"{folder}:/usr/bin:/bin", "PYTHON": "/bin/true", "SLURM_JOB_ID": "1"}
        for script in scripts:
            subprocess.run(["bash"], input=script, cwd=folder, env=env, text=True, timeout=60)
        assert not [*folder.rglob("MARK")]
