"""Who watches a grid run, in tests that look at what it leaves behind."""

from __future__ import annotations

from typing import final


@final
class Silent:
    """Watches nothing."""

    def trial_started(self, *_: object) -> None: ...
    def generation_done(self, *_: object) -> None: ...
    def scoring_started(self, *_: object) -> None: ...
    def trial_ended(self, *_: object) -> None: ...
