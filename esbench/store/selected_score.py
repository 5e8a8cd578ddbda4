"""The held-out score of a finished trial's best policy: ``best.json``, written on request only."""

from __future__ import annotations

from typing import Final

from esbench.core.errors import UsageError
from esbench.core.files import disk_errors
from esbench.core.json_text import Json
from esbench.store.schemas import StoredBest
from esbench.store.stored_json import StoredJson
from esbench.store.trial_folder import TrialFolder

_NAME: Final = "best.json"


def keep_selected_score(folder: TrialFolder, generation: int, score: Json) -> None:
    """Write the score of the best policy, which the search had after ``generation``.

    It belongs to the trial as it is now: it is void once the trial is extended.

    Raises:
        UsageError: another process runs the trial, or the file cannot be written.
    """
    content = {"generations": generation, **score}
    with folder.locked() as mine:
        if not mine:
            raise UsageError(f"{folder.path} is run by another process; expected a finished trial")
        content["last_digest"] = folder.result().get("digest")
        with disk_errors(folder.path):
            StoredJson(folder.path).write(_NAME, content)


def selected_score(folder: TrialFolder) -> Json | None:
    """The content of ``best.json``, or None if there is none for the trial as it is now."""
    if not (folder.is_done and (folder.path / _NAME).exists()):
        return None
    content = StoredJson(folder.path).read(_NAME, StoredBest)
    return content if content["last_digest"] == folder.result().get("digest") else None


def recorded_score(folder: TrialFolder, generation: int, *, best: bool) -> Json:
    """The recorded score of the last, or best, policy after a generation; empty if there is none.

    The last policy of that generation may be another one: an average, or a validated candidate.
    """
    if not best:
        return folder.result_of(generation) or {}
    found = selected_score(folder)
    return found if found is not None and found["generations"] == generation else {}
