"""`medlive doctor`: what a week needs, tried before the week."""

import asyncio
from collections import Counter
from dataclasses import asdict

from medlive.cli.options import JsonOption
from medlive.cli.output import echo, print_json
from medlive.errors import CheckFailed
from medlive.instance.loading import load_settings
from medlive.service.watch.doctor import Diagnosis, examine


def command(
    no_message: bool = False,
    as_json: JsonOption = False,
) -> None:
    """Try for real what a week needs: home, database, disk, keys, models, evidence, backup, messages, sites.

    Each role's endpoint is asked one small question, which costs a fraction of a cent; each community's robots.txt
    is read, and no page. Exit status 1 if anything is bad; warnings do not count.

    Args:
        no_message: Send no test message to the webhook and by e-mail.
    """
    findings = asyncio.run(_examine(send=not no_message, show=not as_json))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    counts = Counter(finding.health for finding in findings)
    if counts["bad"]:
        raise CheckFailed(
            f"{counts['bad']} of {len(findings)} examinations went badly",
            hint="take the steps above and run medlive doctor again",
        )


async def _examine(*, send: bool, show: bool) -> list[Diagnosis]:
    findings = []
    async for finding in examine(load_settings().settings, send=send):
        findings.append(finding)
        if show:
            _print(finding)
    return findings


def _print(finding: Diagnosis) -> None:
    echo(f"{finding.health:<8} {finding.subject}: {finding.text}")
    if finding.next_step:
        echo(f"         → {finding.next_step}")
