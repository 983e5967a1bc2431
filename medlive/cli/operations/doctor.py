"""`medlive doctor`: try everything that a week's work needs, before the week begins."""

from medlive.cli.output import Result, progress, wait_for
from medlive.errors import CheckFailed
from medlive.instance.loading import read_settings
from medlive.service.watch.doctor import Diagnosis, examine


def doctor() -> Result:
    """Try for real what a week needs: home, database, disk, keys, models, evidence, backup, messages, sites.

    Each role's endpoint is asked one small question, which costs a fraction of a cent; each community's robots.txt
    is read, and no page; a test message is sent. Exit status 1 if anything is bad; warnings do not count.
    """

    async def run() -> list[Diagnosis]:
        findings = []
        with progress("examinations") as tick:
            async for finding in examine(read_settings()):
                findings.append(finding)
                tick(len(findings))
        return findings

    findings = wait_for(run())
    lines = []
    for finding in findings:
        lines.append(f"{finding.health:<8} {finding.subject}: {finding.text}")
        if finding.next_step:
            lines.append(f"         → {finding.next_step}")
    failure = None
    if bad := [finding for finding in findings if finding.health == "bad"]:
        failure = CheckFailed(
            f"{len(bad)} of {len(findings)} examinations went badly",
            hint="take the steps above and run medlive doctor again",
        )
    return Result(findings, lines, failure=failure)
