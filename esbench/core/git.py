"""What git knows about a folder: its commit and the web address of its repository."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from esbench.core.errors import UsageError

FAILURES: Final = (OSError, subprocess.SubprocessError, ValueError)  # of ``git``
# A folder of somebody else may name programs: one that watches its files, and hooks.
_NO_PROGRAMS: Final = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
# A host of code with the path of a commit there, by a word in the host's name.
_HOSTS: Final = {
    "gitlab": "/-/commit/", "bitbucket": "/commits/",
    "github": "/commit/", "codeberg": "/commit/", "gitea": "/commit/", "forgejo": "/commit/",
}  # fmt: skip
_REMOTE: Final = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/\s]*@)?|[\w.-]+@)(?P<host>[\w.-]+)(?::\d+(?=/))?[:/]"
    r"(?P<path>[\w.~/-]+?)(?:\.git)?/?"
)
_ADDRESS: Final = re.compile(r"https?://(?P<host>[\w.-]+)(?::\d+)?(?:/[\w.~-]+)+")


def git(folder: Path, *arguments: str, timeout: float = 10.0) -> str:
    """What git prints, without surrounding space; one of ``FAILURES`` if it fails."""
    command = ["git", *_NO_PROGRAMS, "-C", str(folder), *arguments]
    environment = os.environ | {"LC_ALL": "C"}
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=timeout, env=environment
    ).stdout.strip()


def commit_of(folder: Path, own: Sequence[str] = ()) -> tuple[str | None, str | None]:
    """The commit of the checkout that a folder is in, and its date.

    The commit ends with "+" if files have changed, or files are new in the folders ``own``.
    """
    try:
        commit, date = git(folder, "show", "-s", "--format=%H %cI", "HEAD").split()
        changed = git(folder, "status", "--porcelain", "-uno")
        new = own and git(folder, "ls-files", "--others", "--exclude-standard", "--", *own)
        return commit + ("+" if changed or new else ""), date
    except FAILURES:
        return None, None


def by_ancestry(folder: Path, commits: Collection[str], since: datetime) -> list[str]:
    """Those of some commits that the repository of a folder has, each after its ancestors.

    Commits before the date ``since`` are left out. Empty if git cannot say.
    """
    options = "--topo-order", "--reverse", "--ignore-missing", f"--max-age={since.timestamp():.0f}"
    try:
        return [
            each for each in git(folder, "rev-list", *options, *commits).split() if each in commits
        ]
    except FAILURES:
        return []


def commit_address(folder: Path, repository: str | None = None) -> str:
    """The web address of a commit of a repository, without the commit; empty if it is not known.

    The repository is at the address ``repository``, or is the origin of the checkout that a folder
    is in, if that is on a known host: GitHub, GitLab, Bitbucket, Codeberg, Gitea or Forgejo.

    Raises:
        UsageError: ``repository`` is no address.

    Examples:
        >>> commit_address(Path(), "https://gitlab.com/me/agents")
        'https://gitlab.com/me/agents/-/commit/'
    """
    if repository is not None:
        address = repository.removesuffix("/").removesuffix(".git")
        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise UsageError(
                f"--repository {repository}: expected the web address of a repository, such as "
                "https://github.com/me/agents"
            )
        return address + _commit_path(found["host"], "/commit/")
    try:
        remote = _REMOTE.fullmatch(git(folder, "remote", "get-url", "origin"))
    except FAILURES:
        return ""
    path = _commit_path(remote["host"], "") if remote else ""
    return f"https://{remote['host']}/{remote['path'].strip('/')}{path}" if remote and path else ""


def _commit_path(host: str, default: str) -> str:
    return next((path for word, path in _HOSTS.items() if word in host.lower()), default)
