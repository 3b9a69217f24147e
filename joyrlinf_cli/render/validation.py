"""What `joyrl validate` prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from joyrlinf_cli.render.findings import count, write_findings
from joyrlinf_cli.render.plan import plan_lines
from joyrlinf_cli.render.text import width_of, write_lines
from joyrlinf_core.config.loader import LoadedConfig
from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.build import check_loaded, plan_checked
from joyrlinf_core.plan.run_plan import RunPlan


@dataclass(frozen=True)
class Report:
    """A checked config; `plan` is None if it has an error."""

    loaded: LoadedConfig
    findings: tuple[Finding, ...]
    plan: RunPlan | None

    @classmethod
    def of(cls, loaded: LoadedConfig, *, check_paths: bool = False) -> Report:
        """Check a loaded config and plan its training run."""
        findings = check_loaded(loaded, check_paths=check_paths)
        if loaded.config is None or any(finding.severity == "error" for finding in findings):
            return cls(loaded, findings, None)
        return cls(loaded, findings, plan_checked(loaded.config, None))

    @property
    def ok(self) -> bool:
        """Whether the config has no error."""
        return not any(finding.severity == "error" for finding in self.findings)


def write_json(reports: Sequence[Report]) -> None:
    """Write one JSON document to standard output."""
    files = [
        {
            "file": report.loaded.source,
            "findings": [finding.to_json() for finding in report.findings],
            "plan": report.plan.model_dump(mode="json", exclude={"config"})
            if report.plan is not None
            else None,
        }
        for report in reports
    ]
    ok = all(report.ok for report in reports)
    print(json.dumps({"schema": 1, "ok": ok, "files": files}, indent=2))


def write_text(reports: Sequence[Report]) -> None:
    """Write findings and plans to standard output."""
    for report in reports:
        write_findings(report.findings, report.loaded.source_map, sys.stdout)
        print(f"{report.loaded.source}: {count(report.findings) or 'ok'}")
        if report.plan is not None:
            write_lines(plan_lines(report.plan, width_of(sys.stdout)), sys.stdout)
