"""`make monitors`: a real Prometheus reads medlive's real metrics through deploy/monitoring.

promtool's checks, every query of the dashboard and the alerts, and each alert made to fire by its fault.
"""

import argparse
import asyncio
import logging
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from medlive.db.tables.work import Severity
from medlive.db.watch import acknowledge
from medlive.service.watch.checks import CHECKS, ENDS_AFTER
from tests.monitors.panels import EMPTY_AT_FIRST, dashboard_queries
from tests.monitors.prometheus import (
    MONITORING,
    Programs,
    Prometheus,
    find_programs,
    free_ports,
    run_promtool,
    start_prometheus,
    write_hurried,
)
from tests.monitors.stages import (
    ALONE,
    Ground,
    filling_disk,
    make_busy,
    make_fault,
    one_fault_a_check,
    open_stage,
    prepare_ground,
    run_metrics,
    serve_stage,
)
from tests.support.faults import FAULTS, Stage

HERE = Path(__file__).parent
MOST_S = 300.0
LIMIT_S = 60.0
"""An alert that has not come by then does not come."""
AT_ONCE = 5
_OF_SEVERITY = {Severity.PAGE: "MedliveProblem", Severity.TICKET: "MedliveTicket"}
ALERTS = {check.__name__: _OF_SEVERITY[severity] for check, severity in CHECKS.items()}
"""Code of a check → the alert that fires for it."""


class Monitors:
    """One run: Prometheus, a port for each stage, and what failed."""

    def __init__(self, ground: Ground, prometheus: Prometheus, ports: list[int]):
        self.ground = ground
        self.prometheus = prometheus
        self.ports = ports
        self.failed: list[str] = []

    def report(self, check: str, problem: str = "") -> None:
        """Print a line for a check; an empty problem: it passed."""
        print(f"{'FAIL' if problem else 'ok  '} {check}", flush=True)
        if problem:
            print(f"     {problem}", flush=True)
            self.failed.append(check)

    async def expect(self, check: str, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait until something holds, and report whether it did."""
        limit = time.monotonic() + LIMIT_S
        while not await holds():
            if time.monotonic() > limit:
                self.report(check, f"not within {LIMIT_S:g} s")
                return
            await asyncio.sleep(0.3)
        self.report(check)

    async def fires(self, **labels: str) -> bool:
        """Whether an alert with these labels fires now."""
        firing = await self.prometheus.firing()
        return any(labels.items() <= alert.items() for alert in firing)

    def alert(self, wanted: bool, **labels: str) -> Callable[[], Awaitable[bool]]:
        """A condition for `expect`: that an alert fires, or does not."""

        async def holds() -> bool:
            return await self.fires(**labels) is wanted

        return holds

    @asynccontextmanager
    async def served(self, stage: Stage) -> AsyncIterator[str]:
        """Serve a stage at a port of Prometheus' targets while the context lasts."""
        port = self.ports.pop()
        async with serve_stage(stage, port):
            yield f"127.0.0.1:{port}"
        self.ports.append(port)


async def check_well(run: Monitors) -> None:
    """Nothing answers, then `medlive serve --part metrics` does, then its database is away."""
    silent = run.alert(True, alertname="MedliveNotMeasured")
    await run.expect("MedliveNotMeasured fires: nobody serves metrics", silent)
    async with open_stage(run.ground) as stage, run_metrics(stage, run.ports.pop()):
        heard = run.alert(False, alertname="MedliveNotMeasured")
        await run.expect("MedliveNotMeasured ends: medlive is served", heard)
        await check_queries_at_first(run)
        firing = await run.prometheus.firing()
        run.report("no alert fires where all is well", str(firing or ""))
        await stage.change("ALTER TABLE pipeline_runs RENAME TO away")
        away = "MedliveNotMeasured fires: the database cannot be read"
        await run.expect(away, silent)


async def check_queries_at_first(run: Monitors) -> None:
    """Each query where nothing has happened: data, or the empty set that is expected."""
    for query, title in dashboard_queries().items():
        why = EMPTY_AT_FIRST.get(query)
        found = bool(await run.prometheus.query(query))
        expected = "data" if why is None else f"empty, {why}"
        problem = "" if found == (why is None) else f"found: {found}"
        run.report(f"panel at first: {title}: {query}: {expected}", problem)
    unknown = sorted(EMPTY_AT_FIRST.keys() - dashboard_queries().keys())
    run.report("every expected empty set is a panel's", ", ".join(unknown))


async def check_busy(run: Monitors) -> None:
    """Each query gives data where something of everything has happened; many threads failed."""
    async with open_stage(run.ground) as stage:
        await make_busy(stage)
        async with run.served(stage):
            for query, title in dashboard_queries().items():

                async def answers(query: str = query) -> bool:
                    return bool(await run.prometheus.query(query))

                await run.expect(f"panel in use: {title}: {query}: data", answers)
            failing = run.alert(True, alertname="MedliveFailureShare")
            await run.expect(
                "MedliveFailureShare fires: twelve threads failed", failing
            )
            await check_acknowledged(run, stage)


async def check_acknowledged(run: Monitors, stage: Stage) -> None:
    """`medlive status ack` ends an alert."""
    labels = {"alertname": ALERTS["circuit_open"], "code": "circuit_open"}
    await run.expect("circuit_open fires", run.alert(True, **labels))
    async with stage.database.begin() as session:
        await acknowledge(session, "circuit_open", patience=ENDS_AFTER)
    await run.expect("circuit_open, acknowledged, ends", run.alert(False, **labels))


async def check_disk(run: Monitors) -> None:
    """A disk that loses a gigabyte a second."""
    async with open_stage(run.ground) as stage:
        with filling_disk():
            async with run.served(stage):
                trend = run.alert(True, alertname="MedliveDiskTrend")
                await run.expect("MedliveDiskTrend fires: a disk fills", trend)


async def check_fault(run: Monitors, name: str) -> None:
    """The alert of one fault fires, with its code and from its instance."""
    fault = FAULTS[name]
    async with open_stage(run.ground) as stage:
        await make_fault(stage, name)
        async with run.served(stage) as instance:
            labels = {"alertname": ALERTS[fault.code], "code": fault.code}
            fires = run.alert(True, instance=instance, **labels)
            await run.expect(f"{ALERTS[fault.code]} fires: {fault.code}: {name}", fires)


async def check_faults(run: Monitors, names: Sequence[str]) -> None:
    """Some faults at once; those of this whole process alone."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with gate:
            await check_fault(run, name)

    async with asyncio.TaskGroup() as group:
        for name in names:
            if name not in ALONE:
                group.create_task(one(name))
    for name in names:
        if name in ALONE:
            await check_fault(run, name)


def check_files(programs: Programs) -> list[str]:
    """promtool's own checks of deploy/monitoring; what failed."""
    failed = []
    checks: dict[str, tuple[str | Path, ...]] = {
        "promtool check config": ("check", "config", MONITORING / "prometheus.yml"),
        "promtool check rules": ("check", "rules", MONITORING / "alerts.yml"),
    }
    for path in sorted(HERE.glob("*_test.yml")):
        checks[f"promtool test rules {path.name}"] = ("test", "rules", path)
    for name, arguments in checks.items():
        wrong = run_promtool(programs.promtool, *arguments)
        print(f"{'FAIL' if wrong else 'ok  '} {name}\n{wrong}".rstrip(), flush=True)
        if wrong:
            failed.append(name)
    return failed


async def watch(
    programs: Programs, folder: Path, names: Sequence[str], limit_s: float
) -> list[str]:
    """Run everything that needs Prometheus.

    Args:
        programs: Prometheus' programs.
        folder: Where everything is kept that this run makes.
        names: The faults to make.
        limit_s: The longest that it may take.

    Returns:
        The checks that failed.
    """
    ports = free_ports(AT_ONCE + 1)
    config = write_hurried(folder, ports)
    with prepare_ground(folder) as ground:
        async with start_prometheus(programs.prometheus, config, folder) as prometheus:
            run = Monitors(ground, prometheus, ports)
            try:
                async with asyncio.timeout(limit_s):
                    for check in (check_well, check_busy, check_disk):
                        await check(run)
                    await check_faults(run, names)
            except TimeoutError:
                run.report("everything in time", f"not within {limit_s:g} s")
    return run.failed


def main() -> int:
    """Check, print a line for each check; 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.monitors")
    parser.add_argument(
        "--all", action="store_true", help="every fault, not the first of each check"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    logging.getLogger("medlive").setLevel(
        logging.CRITICAL
    )  # faults are named there too
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="medlive-monitors-"))
    folder.chmod(0o755)  # root's PostgreSQL runs as another user
    try:
        programs = find_programs(folder)
        if programs is None:
            print(
                "not checked: Prometheus is not installed and apt does not provide it"
                " (Debian: apt-get install prometheus)"
            )
            return 0
        names = list(FAULTS) if options.all else one_fault_a_check()
        limit_s = 3 * MOST_S if options.all else MOST_S
        failed = check_files(programs)
        failed += asyncio.run(watch(programs, folder, names, limit_s))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    took = time.monotonic() - began
    print(f"{len(names)} faults, {took:.0f} s, failed checks: {len(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
