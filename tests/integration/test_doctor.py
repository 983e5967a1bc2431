"""`medlive doctor` on sound and on broken set-ups, each made for real."""

import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from medlive.config import Settings
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.manifest import read_manifest
from medlive.evidence.online import service
from medlive.instance.opening import open_retriever
from medlive.instance.paths import index_path
from medlive.service.watch import doctor
from medlive.service.watch.doctor import Diagnosis, examine
from medlive.sources.registry import SITES
from tests.support.bad_endpoint import (
    BadEndpoint,
    bad_endpoint,
    completion,
    fails,
    sends,
)
from tests.support.forum import BOARD, Forum, serve_forum
from tests.support.literature import Article, serve_literature
from tests.support.receivers import serve_mail, serve_webhook

ROLES = ("screener", "validator", "controller", "rubric", "reader", "grader")
MODEL = "model-as-served"
PRICE = {MODEL: {"input": 1.0, "output": 2.0}}
READY = completion('{"ready": true}')


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("doctor")
    source = home / "sample.jsonl"
    row = {"id": "a", "title": "Fever", "text": "The treatment of fever is rest."}
    source.write_text(json.dumps(row) + "\n")
    build_index([open_corpus(source)], index_path(Settings(home=home)))
    return home


@dataclass
class SetUp:
    """The settings of an installation that is about to be broken."""

    home: Path
    environment: Callable[[str, str], None]
    values: dict[str, Any] = field(default_factory=dict)
    endpoint: BadEndpoint | None = None

    def change(self, **sections: Any) -> None:
        self.values |= sections

    async def examined(self) -> dict[str, Diagnosis]:
        findings = {}
        async for finding in examine(
            Settings.model_validate({"home": self.home, **self.values})
        ):
            findings[finding.subject] = finding
        return findings


@pytest.fixture
async def set_up(
    database_url: str, indexed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SetUp]:
    home = Path(shutil.copytree(indexed, tmp_path / "home"))
    os.chmod(home, 0o700)
    async with bad_endpoint([sends(READY)]) as endpoint, serve_forum(Forum()) as forum:
        role = {
            "engine": "openai",
            "base_url": endpoint.url,
            "model": MODEL,
            "max_retries": 0,
        }
        sdn = {"base_url": forum.url, "boards": [BOARD], "min_interval_s": 0}
        others = {name: {"enabled": False} for name in SITES if name != "sdn"}
        with serve_webhook() as (address, _):
            made = SetUp(home, monkeypatch.setenv, endpoint=endpoint)
            made.change(
                database_url=database_url,
                roles=dict.fromkeys(ROLES, role),
                prices=PRICE,
                notify={"webhook": address},
                harvest={"allow_loopback": True},
                sources={"sdn": sdn, **others},
                backup={"folder": str(tmp_path / "backups")},
            )
            yield made


async def test_a_sound_set_up_has_nothing_bad(set_up: SetUp) -> None:
    findings = await set_up.examined()
    assert {
        name for name, finding in findings.items() if finding.health == "bad"
    } == set()
    assert findings["role grader"].health == "good"
    assert findings["site sdn"].health == "good"
    assert findings["evidence"].health == "good"
    assert findings["messages"].health == "good"
    assert set_up.endpoint.asked == len(ROLES)


async def test_each_literature_service_is_tried_and_none_needs_an_index(
    set_up: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "BACKOFF_S", 0.0)
    monkeypatch.setattr(service, "INTERVAL_S", 0.0)
    monkeypatch.setattr(doctor, "find_differences", lambda url: [])
    await no_index(set_up)
    fever = Article("1", "Fever", "The treatment of fever is rest.")
    async with serve_literature(
        fever, replace(fever, pmid="2", source="PMC")
    ) as server:
        evidence = {
            "online": ("pubmed", "europepmc"),
            "online_email": "ops@example.org",
        }
        set_up.change(evidence={**evidence, "online_addresses": server.addresses})
        for health in ("good", "bad"):
            server.down = health == "bad"  # what it answered before is of no use
            findings = await set_up.examined()
            assert "evidence" not in findings
            assert {
                findings[f"evidence {name}"].health for name in ("pubmed", "europepmc")
            } == {health}


def role(set_up: SetUp, name: str, **changes: Any) -> None:
    """Change a role."""
    roles = set_up.values["roles"]
    set_up.change(roles={**roles, name: {**roles[name], **changes}})


async def home_below_a_file(set_up: SetUp) -> None:
    place = set_up.home / "file"
    place.write_text("a file")
    set_up.home = place / "home"


async def no_database(set_up: SetUp) -> None:
    set_up.change(database_url="postgresql://nobody@127.0.0.1:1/none")


async def another_model(set_up: SetUp) -> None:
    role(set_up, "grader", model="model-as-configured")


async def key_is_not_set(set_up: SetUp) -> None:
    role(set_up, "reader", api_key_env="MEDLIVE_TEST_NO_SUCH_KEY")


async def endpoint_refuses(set_up: SetUp) -> None:
    set_up.endpoint.script.insert(0, fails(401, "bad key"))


async def endpoint_talks(set_up: SetUp) -> None:
    talk = sends(completion("Certainly! I am ready."))
    set_up.endpoint.script.insert(0, talk)


async def no_index(set_up: SetUp) -> None:
    shutil.rmtree(set_up.home / "evidence")


async def damaged_index(set_up: SetUp) -> None:
    index = index_path(Settings(home=set_up.home))
    days = index / read_manifest(index).data / "days.bin"
    days.write_bytes(bytes(255 - byte for byte in days.read_bytes()))


async def nobody_takes_messages(set_up: SetUp) -> None:
    set_up.change(notify={"webhook": "http://127.0.0.1:1/"})


async def backup_folder_is_a_file(set_up: SetUp) -> None:
    place = set_up.home / "backups"
    place.write_text("a file")
    set_up.change(backup={"folder": str(place / "weekly")})


async def no_contact_for_sites(set_up: SetUp) -> None:
    set_up.change(harvest={})
    sdn = {"base_url": "https://forums.studentdoctor.net", "boards": [BOARD]}
    set_up.change(sources={**set_up.values["sources"], "sdn": sdn})


async def signing_key_for_everybody(set_up: SetUp) -> None:
    place = set_up.home / "key"
    place.write_text("untrusted comment: x\n")
    place.chmod(0o644)
    set_up.environment("MEDLIVE_SIGNING_KEY_FILE", str(place))


BROKEN = (
    {home_below_a_file: "home", no_database: "database"},
    {no_index: "evidence", no_database: "database"},
    {
        no_database: "database",
        another_model: "role grader",
        key_is_not_set: "role reader",
        endpoint_talks: "role validator",
        endpoint_refuses: "role screener",
        damaged_index: "evidence",
        nobody_takes_messages: "messages",
        backup_folder_is_a_file: "backup",
        no_contact_for_sites: "site sdn",
        signing_key_for_everybody: "signing key",
    },
)
"""What is broken at once, one after another → what is bad then; the endpoint is asked by the first roles first."""


@pytest.mark.parametrize("broken", BROKEN, ids=len)
async def test_each_broken_set_up_is_named_with_the_next_step(
    set_up: SetUp, broken: Mapping[Any, str]
) -> None:
    for breaks in broken:
        await breaks(set_up)
    findings = await set_up.examined()
    for subject in broken.values():
        assert findings[subject].health == "bad", subject
        assert findings[subject].text
        assert findings[subject].next_step


async def test_what_spoils_no_week_is_a_warning(set_up: SetUp) -> None:
    await no_database(set_up)
    silent = {**READY, "usage": None}
    set_up.endpoint.script = [sends(silent)]
    set_up.change(notify={}, backup={})
    findings = await set_up.examined()
    warned = ("role grader", "messages", "backup", "signing key")
    assert {findings[name].health for name in warned} == {"warning"}
    set_up.endpoint.script = [sends(READY)]
    set_up.change(prices={})
    assert "price" in (await set_up.examined())["role grader"].text


async def test_a_language_that_no_encoder_reads_is_named(
    set_up: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = open_retriever(Settings(home=set_up.home))
    side = SimpleNamespace(weights={"en": 1.0})
    read = SimpleNamespace(search=index.search, dense=[side])
    monkeypatch.setattr(doctor, "open_retriever", lambda settings: read)
    await no_database(set_up)
    finding = (await set_up.examined())["evidence"]
    assert finding.health == "warning"
    assert "in zh: no encoder reads it" in finding.text


async def test_mail_is_delivered_to_the_one_who_reads_it(set_up: SetUp) -> None:
    with serve_mail() as (port, received):
        mail = {
            "email_to": ["ops@example.org"],
            "smtp_host": "127.0.0.1",
            "smtp_port": port,
        }
        set_up.change(notify=mail)
        await no_database(set_up)
        assert (await set_up.examined())["messages"].health == "good"
    assert "test message" in received[0]["Subject"]
