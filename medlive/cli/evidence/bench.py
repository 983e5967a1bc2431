"""`medlive evidence bench`: how well and how fast the index at hand finds its own passages."""

import platform
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from medlive.cli.evidence.options import IndexOption, ModelsOption, encoder_settings, index_folder
from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, print_table, say, wait_for
from medlive.errors import UsageError

DEPTHS = (1, 5, 32)
K = 32
COLUMNS = ("retriever", *(f"recall@{depth}" for depth in DEPTHS), "p50 ms", "p95 ms", "batch, ms a query")


def bench(
    index: IndexOption = None,
    queries: Annotated[int, Option(min=10, max=10_000, help="Passages to look for.")] = 200,
    encoder: Annotated[str | None, Option(help="Default: the one that the index names.")] = None,
    models: ModelsOption = None,
    out: Annotated[Path | None, Option(help="Write the result there, as Markdown.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the index: known-item recall with intervals, latency, and the dense side against exact search."""
    from medlive.clock import now
    from medlive.evidence.build import vectors_of
    from medlive.evidence.manifest import read_manifest
    from medlive.evidence.measure import dense_recall, known_items
    from medlive.evidence.open_index import open_index, open_store

    folder = index_folder(index)
    manifest = read_manifest(folder)
    if out is not None:
        try:
            out.touch()
        except OSError as exc:
            raise UsageError(f"{out} cannot be written: {exc.strerror}") from exc
    items = known_items(open_store(folder, manifest), queries)
    if not items:
        raise UsageError(
            f"no passage of {folder} begins with a sentence of 8 words or more to make a query of",
            hint="words are told apart by spaces: an index over Chinese alone is not measured by this",
        )
    names = ("bm25",) if manifest.dense is None else ("bm25", "dense", "hybrid")
    if manifest.dense is None:
        say(f"bm25 only: {manifest.reason}")
    rows = []
    for name in names:
        rows.append(_measured(folder, name, items, encoder, models))
        say(f"{name}: done")
    result: dict[str, Any] = {
        "measured_at": now().isoformat(timespec="seconds"),
        "command": shlex.join(["medlive", *sys.argv[1:]]),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "index_digest": manifest.index_digest,
        "corpora": manifest.corpus_digests,
        "passages": manifest.passages,
        "encoder": manifest.encoder and f"{manifest.encoder.name} {manifest.encoder.digest}",
        "kind": manifest.dense and manifest.dense.kind.value,
        "queries": len(items),
        "made_of": "every second word of a passage's first sentence; the passage stays in the index",
        "retrievers": rows,
    }
    if manifest.dense is not None:
        opened = open_index(folder, settings=encoder_settings(models), encoder=encoder, retriever="dense")
        assert opened.dense is not None
        vectors, texts = vectors_of(folder, manifest), [item.query for item in items]
        shares = dense_recall(opened.dense, vectors, open_store(folder, manifest), texts, K)
        result["dense_against_exact"] = mean_and_interval(shares)
    if out is not None:
        out.write_text(_markdown(result), encoding="utf-8")
        say(f"wrote {out}")
    print_result(result, as_json, lambda: _print(result))


def _print(result: dict[str, Any]) -> None:
    title = f"{result['queries']} known items among {result['passages']} passages: {result['made_of']}"
    print_table(COLUMNS, _rows(result), title=title)
    if "dense_against_exact" in result:
        say(f"dense side against exact search: recall@{K} {_shown(result['dense_against_exact'])}")


def _rows(result: dict[str, Any]) -> list[list[str]]:
    return [
        [r["retriever"], *(_shown(r[f"recall@{d}"]) for d in DEPTHS),
         *(f"{r[name]:.1f}" for name in ("p50_ms", "p95_ms", "batch_ms"))]
        for r in result["retrievers"]
    ]  # fmt: skip


def _measured(
    folder: Path, name: Any, items: Sequence[Any], encoder: str | None, models: Path | None
) -> dict[str, Any]:
    import numpy as np

    from medlive.evidence.measure import timed_search
    from medlive.evidence.open_index import open_index

    retriever = open_index(folder, settings=encoder_settings(models), encoder=encoder, retriever=name)
    ranked, seconds, batch = wait_for(timed_search(retriever, [item.query for item in items], K))
    row: dict[str, Any] = {"retriever": name}
    for depth in DEPTHS:
        row[f"recall@{depth}"] = mean_and_interval(
            [float(item.passage in found[:depth]) for item, found in zip(items, ranked, strict=True)]
        )
    row["p50_ms"], row["p95_ms"] = (float(ms) for ms in np.percentile(np.array(seconds) * 1000, [50, 95]))
    row["batch_ms"] = batch * 1000
    return row


def mean_and_interval(values: Sequence[float]) -> dict[str, float]:
    """The mean over queries and its 95 % interval, by the bootstrap over queries (1,000 draws, seed 0)."""
    import numpy as np

    from medlive.statistics.bootstrap import bootstrap_means, interval

    column = np.array(values, dtype=np.float64)[:, None]
    low, high = interval(bootstrap_means(column)[:, 0]) or (float("nan"), float("nan"))
    return {"mean": float(column.mean()), "low": low, "high": high}


def _shown(measure: dict[str, float]) -> str:
    return f"{measure['mean']:.3f} ({measure['low']:.3f} to {measure['high']:.3f})"


def _markdown(result: dict[str, Any]) -> str:
    lines = [
        "# An evidence index, measured",
        "",
        f"Written by `{result['command']}` on {result['measured_at']}, {result['machine']}.",
        "",
        f"Index `{result['index_digest']}`, {result['passages']} passages:",
        "",
        *(f"- `{name}` `{digest}`" for name, digest in result["corpora"].items()),
        *([f"- encoder {result['encoder']}, {result['kind']}"] if result["encoder"] else []),
        "",
        f"{result['queries']} known items: {result['made_of']}. In brackets the 95 % interval over queries.",
        "",
        *(f"| {' | '.join(row)} |" for row in (COLUMNS, ["---"] * len(COLUMNS), *_rows(result))),
    ]
    if "dense_against_exact" in result:
        lines += ["", f"Dense side against exact search: recall@{K} {_shown(result['dense_against_exact'])}."]
    return "\n".join(lines) + "\n"
