"""A runner of composite actions: expressions, outputs and steps as GitHub has them.

Steps that use other actions do nothing, except that an upload has an address.
"""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from checkout import ROOT

ARTIFACT = "https://github.test/o/r/artifacts/7"
STATUS = re.compile(r"!?(?:success|failure|cancelled|always)\(\)")
NAME = re.compile(r"\b(?:inputs|steps|github)(?:\.[\w-]+)+")


def parse_outputs(text: str) -> dict[str, str]:
    """The content of GITHUB_OUTPUT, in its form of several lines."""
    found = {}
    while text:
        head, _, rest = text.partition("\n")
        name, _, end = head.partition("<<")
        value, _, text = rest.partition(f"\n{end}\n")
        found[name] = value
    return found


@dataclass
class Runner:
    """Runs the steps of ``action.yml`` in a folder.

    Attributes:
        log: what the steps have printed.
        ran: the names of the steps, or the actions that they use.
        failed: the names of those that have failed; the job fails if there is one.
    """

    folder: Path
    environment: Mapping[str, str]
    log: str = ""
    ran: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def run(self, **given: str) -> dict[str, str]:
        """Run all steps with inputs, and return the outputs of the action."""
        action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
        context: dict[str, Any] = {
            "github": {"action_path": str(ROOT), "token": "secret"},
            "inputs": {},
            "steps": {},
        }
        for name, own in action["inputs"].items():
            value = given.pop(name.replace("-", "_"), own.get("default", ""))
            context["inputs"][name] = _text(value, context)
        assert not given
        for step in action["runs"]["steps"]:
            condition = step.get("if", "")
            if (STATUS.search(condition) or not self.failed) and _holds(condition, context):
                failed = len(self.failed)
                outputs = self._step(step, context)
                outcome = "success" if len(self.failed) == failed else "failure"
                context["steps"][step.get("id", "")] = {"outputs": outputs, "outcome": outcome}
        return {name: _text(own["value"], context) for name, own in action["outputs"].items()}

    def _step(self, step: dict[str, Any], context: dict[str, Any]) -> dict[str, str]:
        if "uses" in step:
            self.ran.append(step["uses"].partition("@")[0])
            assert all(_text(value, context) for value in step["with"].values()), step
            return {"artifact-url": ARTIFACT}
        self.ran.append(step["name"])
        output = self.folder / "output"
        output.write_text("")
        own = {name: _text(value, context) for name, value in step["env"].items()}
        done = subprocess.run(
            [step["shell"], "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            env={**self.environment, "GITHUB_OUTPUT": str(output), **own},
            cwd=self.folder / _text(step.get("working-directory", "."), context),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.log += done.stdout
        if done.returncode:
            self.failed.append(step["name"])
        return parse_outputs(output.read_text())


def _text(text: str, context: dict[str, Any]) -> str:
    """Text with the values of its names in ``${{ }}``."""
    names = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")
    return names.sub(lambda match: _look_up(match[1], context), text)


def _look_up(name: str, context: dict[str, Any]) -> str:
    value: Any = context
    for part in name.split("."):
        value = value.get(part, {})
    return value if isinstance(value, str) else ""


def _holds(condition: str, context: dict[str, Any]) -> bool:
    """Whether a condition of comparisons holds where no step is canceled."""
    inner = STATUS.sub("True", condition).replace("${{", "").replace("}}", "").strip()
    inner = NAME.sub(lambda match: repr(_look_up(match[0], context)), inner)
    return bool(eval(inner.replace("&&", "and") or "True"))
