"""Writes what the gate has found into one comment of the pull request.

The comment begins with a hidden marker, by which the next run finds it and replaces its text. It
must be of the same author, since anybody can write the marker. Where no comment can be written, as
on a pull request from a fork, the step says so and succeeds: the summary has the same text.

Reads:
    ESBENCH_TOKEN: a token that may write comments of pull requests.
    ESBENCH_AUTHOR: the login of its owner.
    ESBENCH_NAME: the name of the gate; each has a comment of its own.
    ESBENCH_FILES: the folder with ``check.md``.
    ESBENCH_ARTIFACT: the address of the uploaded files; empty if there is none.
    GITHUB_EVENT_PATH, GITHUB_API_URL, GITHUB_SERVER_URL, GITHUB_REPOSITORY, GITHUB_RUN_ID
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

from runner import annotate, event, shortened, variable

LONGEST = 65_000  # characters; GitHub allows 65,536
PAGE = 100
NOT_ALLOWED = (
    401,
    403,
    404,
)  # of a token of a fork, an expired one, and one without the repository
TIMEOUT_S = 30.0


def call(method: str, path: str, content: dict[str, Any] | None = None) -> Any:
    """Send a request to GitHub's API and return its content."""
    base = variable("GITHUB_API_URL", "https://api.github.com").rstrip("/")
    repository = f"{base}/repos/{variable('GITHUB_REPOSITORY')}"
    request = urllib.request.Request(
        f"{repository}/{path}",
        method=method,
        data=None if content is None else json.dumps(content).encode(),
        headers={
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {variable('ESBENCH_TOKEN')}",
            "Content-Type": "application/json",
            "User-Agent": "esbench",
            "X-GitHub-Api-Version": "2022-11-28",
        },
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def find_comment(number: int, marker: str) -> int | None:
    """The first comment of a pull request with the marker and of the right author."""
    page = 1
    while True:
        comments = call("GET", f"issues/{number}/comments?per_page={PAGE}&page={page}")
        for comment in comments:
            is_own = comment["user"] and comment["user"]["login"] == variable("ESBENCH_AUTHOR")
            if is_own and (comment["body"] or "").startswith(marker):
                return int(comment["id"])
        if len(comments) < PAGE:
            return None
        page += 1


def comment_text(marker: str, text: str, commit: str) -> str:
    """The marker, what was found, and links to the run and the files."""
    server = f"{variable('GITHUB_SERVER_URL')}/{variable('GITHUB_REPOSITORY')}"
    links = [f"[log](<{server}/actions/runs/{variable('GITHUB_RUN_ID')}>)"]
    if artifact := variable("ESBENCH_ARTIFACT"):
        links.insert(0, f"[report and files](<{artifact}>)")
    end = f"\n\n{variable('ESBENCH_NAME')} at {commit[:8]}: {', '.join(links)}\n"
    room = LONGEST - len(marker) - len(end)
    text = shortened(text, room, "The text is too long for a comment; the files have all of it.")
    return f"{marker}\n{text.rstrip()}{end}"


def update(number: int, commit: str) -> str:
    """Write the comment, and return a sentence with its address."""
    marker = f"<!-- esbench gate: {variable('ESBENCH_NAME')} -->"
    text = (Path(variable("ESBENCH_FILES")) / "check.md").read_text(encoding="utf-8")
    body = {"body": comment_text(marker, text, commit)}
    if (found := find_comment(number, marker)) is not None:
        return f"updated {call('PATCH', f'issues/comments/{found}', body)['html_url']}"
    return f"wrote {call('POST', f'issues/{number}/comments', body)['html_url']}"


def main() -> None:
    """Write the comment, or say why there is none; the exit code is 0 in any case."""
    pull_request = event().get("pull_request")
    if not pull_request:
        annotate("notice", "no comment: this run is not of a pull request")
    elif not variable("ESBENCH_TOKEN"):
        annotate("notice", "no comment: there is no token; the summary of the run has the result")
    else:
        head = pull_request.get("head") or {}
        is_fork = (head.get("repo") or {}).get("full_name") != variable("GITHUB_REPOSITORY")
        try:
            sys.stdout.write(f"{update(pull_request['number'], str(head.get('sha')))}\n")
        except urllib.error.HTTPError as error:
            error.close()
            where = " of a pull request from a fork" if is_fork else ""
            if error.code in NOT_ALLOWED:
                reason = f"the token{where} may not write one (HTTP {error.code})"
                hint = "" if is_fork else "; the job needs the permission 'pull-requests: write'"
                text = f"no comment: {reason}{hint}; the summary of the run has the result"
                annotate("notice" if is_fork else "warning", text)
            else:
                annotate("warning", f"no comment: GitHub answered with HTTP {error.code}")
        except (OSError, HTTPException, ValueError) as error:
            annotate("warning", f"no comment: {error}")


if __name__ == "__main__":
    main()
