"""`medlive evidence`: build an index over medical evidence, list it, search it."""

from pathlib import Path
from typing import Annotated

import typer

from medlive.cli.output import JsonOption, print_json, print_table, progress, say, wait_for
from medlive.config import load_settings

app = typer.Typer(no_args_is_help=True)

IndexOption = Annotated[
    Path | None, typer.Option("--index", help="The index's folder; default: under MEDLIVE_HOME.")
]


@app.command()
def build(
    corpora: Annotated[
        list[Path], typer.Argument(help="MedQuAD archives, PubMedQA JSON, passages JSONL, folders of text.")
    ],
    index: IndexOption = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget corpora that the index already holds.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Read evidence and index it; corpora of other names stay, one of the same name is replaced."""
    from medlive.evidence.build import Progress, build_index
    from medlive.evidence.corpora.registry import open_corpus
    from medlive.service.paths import index_path

    out = index or index_path(load_settings().settings)
    stages: list[Progress] = []
    with progress("passages") as tick:

        def report(step: Progress) -> None:
            stages.append(step)
            tick(step.passages)

        manifest = build_index([open_corpus(path) for path in corpora], out, report, fresh=fresh)
    for step in stages:
        for problem in step.problems:
            say(f"{step.corpus}: {problem.member}: {problem.cause}")
    unchanged = stages[-1].stage == "unchanged"
    if as_json:
        print_json({"path": out, "unchanged": unchanged, **manifest.model_dump(mode="json", exclude={"files"})})
        return
    say("unchanged: the index holds just this already" if unchanged else f"built {out}")
    print_table(
        ["corpus", "kind", "documents", "passages", "unreadable", "licence"],
        [[c.name, c.kind, c.documents, c.passages, c.problems, c.licence] for c in manifest.corpora],
        title=f"{manifest.passages} passages, {manifest.retriever}, {manifest.index_digest[:19]}…",
    )


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the indexes under MEDLIVE_HOME."""
    from medlive.evidence.build import list_indexes
    from medlive.service.paths import index_path

    found = list_indexes(index_path(load_settings().settings).parent)
    if as_json:
        print_json(
            [
                {"path": i.path, "problem": i.problem,
                 "manifest": i.manifest and i.manifest.model_dump(mode="json", exclude={"files"})}
                for i in found
            ]
        )  # fmt: skip
        return
    print_table(
        ["index", "retriever", "passages", "corpora", "built", "problem"],
        [
            [i.path, i.manifest.retriever, i.manifest.passages, ", ".join(i.manifest.corpus_digests),
             f"{i.manifest.built_at:%Y-%m-%d %H:%M}", None]
            if i.manifest
            else [i.path, None, None, None, None, i.problem]
            for i in found
        ],
    )  # fmt: skip


@app.command()
def search(
    query: str,
    k: Annotated[int, typer.Option("-k", min=1, max=100, help="How many passages.")] = 5,
    index: IndexOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the passages nearest to a query, with scores."""
    from medlive.evidence.build import open_index
    from medlive.evidence.passage import Query
    from medlive.service.paths import index_path

    retriever = open_index(index or index_path(load_settings().settings))
    (hits,) = wait_for(retriever.search([Query(query)], k=k))
    if as_json:
        print_json(
            [
                {"rank": h.rank, "score": h.score, "id": h.passage.id, "title": h.passage.title,
                 "section": h.passage.section, "text": h.passage.text, "published": h.passage.published,
                 "licence": h.passage.licence}
                for h in hits
            ]
        )  # fmt: skip
        return
    print_table(
        ["rank", "score", "passage", "title", "text"],
        [
            [h.rank, round(h.score, 2), h.passage.id, h.passage.title, h.passage.text[:300]]
            for h in hits
        ],
    )  # fmt: skip
