"""Keeps the file of a check on a branch of the repository, and writes the page of all of them.

The branch is made if it is missing. It has one JSON file per check and no history in common with
the others.

Reads:
    ESBENCH_HISTORY: the name of the branch.
    ESBENCH_FILES: the folder with ``check.json``; the page is written beside it.
    ESBENCH_NAME: the name of the gate, whose files are its own.
    ESBENCH_TOKEN: a token that may write to the repository.
    GITHUB_SERVER_URL, GITHUB_REPOSITORY, GITHUB_SHA, GITHUB_RUN_ID, GITHUB_RUN_ATTEMPT

Sets the output: page.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from run_gate import Execute, esbench
from runner import annotate, end_with_error, variable, write_outputs

BRANCH = r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}"
AUTHOR = {"NAME": "esbench", "EMAIL": "esbench@localhost"}
TRIES = 3  # two gates may push at once


def git(folder: Path, *words: str) -> str:
    """Run git in a folder; the token is in no argument, which other processes can read."""
    settings = {"core.hooksPath": os.devnull, "init.defaultBranch": "main"}
    if token := variable("ESBENCH_TOKEN"):
        login = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        settings["http.extraHeader"] = f"Authorization: Basic {login}"
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    for role in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{role}_{key}": value for key, value in AUTHOR.items()}
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def address() -> str:
    """Where the repository is."""
    return f"{variable('GITHUB_SERVER_URL')}/{variable('GITHUB_REPOSITORY')}"


def keep(check: Path, branch: str, folder: Path) -> None:
    """Add the file of a check to the branch, and leave its files in ``folder``."""
    attempt = variable("GITHUB_RUN_ATTEMPT", "1")
    run = f"{variable('GITHUB_SHA')}-{variable('GITHUB_RUN_ID', '0')}-{attempt}"
    name = f"{run}-{variable('ESBENCH_NAME', 'esbench')}.json"
    git(folder, "init", "--quiet")
    git(folder, "remote", "add", "origin", address())
    reference = f"refs/heads/{branch}"
    for left in reversed(range(TRIES)):
        if git(folder, "ls-remote", "origin", reference):
            git(folder, "fetch", "--quiet", "--depth", "1", "origin", reference)
            git(folder, "checkout", "--quiet", "--force", "--detach", "FETCH_HEAD")
        shutil.copyfile(check, folder / name)
        git(folder, "add", name)
        message = f"Check {variable('GITHUB_SHA')[:8]}"
        git(folder, "commit", "--quiet", "--allow-empty", "--message", message)
        try:
            git(folder, "push", "--quiet", "origin", f"HEAD:{reference}")
        except subprocess.CalledProcessError:
            if not left:
                raise
        else:
            return


def main(esbench: Execute = esbench) -> None:
    """Keep the check and write the page; a check that cannot be kept fails the step."""
    branch, files = variable("ESBENCH_HISTORY"), Path(variable("ESBENCH_FILES"))
    if not re.fullmatch(BRANCH, branch) or ".." in branch or branch.endswith((".lock", "/", ".")):
        end_with_error(f"history: {branch!r}; expected the name of a branch")
    if not (files / "check.json").exists():
        annotate("warning", "no check was kept, because none has ended without an error")
        return
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "checks")
        kept.mkdir()
        try:
            keep(files / "check.json", branch, kept)
        except subprocess.CalledProcessError as error:
            sys.stderr.write(error.stderr)
            lines = (error.stderr.strip() or "no output").splitlines()
            last = next((line for line in lines if "remote:" in line or "[" in line), lines[-1])
            end_with_error(
                f"history: git could not push to the branch {branch!r}: {last}; expected a job "
                "with the permission 'contents: write', and a branch that takes pushes"
            )
        page = files / "history.html"
        words = ["history", str(kept), "--html", str(page), "--repository", address()]
        if esbench(words).code:
            end_with_error("history: the page could not be written; the log has the reason")
    write_outputs({"page": page})


if __name__ == "__main__":
    main()
