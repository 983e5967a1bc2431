"""The public corpora that medlive fetches; a further one is one entry here, and a layout where its own is new.

Sizes are as last known (2026) and only for people who plan; what is fetched is checked against the publisher's own
figures. None of the addresses was ever asked from the machine on which this was written.
"""

from dataclasses import replace
from urllib.parse import urlsplit

from medlive.errors import UsageError
from medlive.evidence.fetch import layouts
from medlive.evidence.fetch.model import ArticleType, Selection, Source

_KB = 10**3
_MB = 10**6
_GB = 10**9
_NCBI = "ftp.ncbi.nlm.nih.gov"
_BOOKS = f"https://{_NCBI}/pub/litarch/"
_DAILYMED = "https://dailymed.nlm.nih.gov/dailymed/spl-resources-all-drug-labels.cfm"
_DAILYMED_FILES = "https://dailymed-data.nlm.nih.gov/public-release-files/"
_PMC_FILES = "https://pmc-oa-opendata.s3.amazonaws.com/"
_ENTREZ = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils/esearch.fcgi"
_ALL = Selection()
_SYNTHESES = Selection(
    types=(
        ArticleType.GUIDELINE,
        ArticleType.SYSTEMATIC_REVIEW,
        ArticleType.META_ANALYSIS,
    )
)
_CHINESE_JOURNALS = (
    "Zhongguo Fei Ai Za Zhi",
    "Zhongguo Dang Dai Er Ke Za Zhi",
    "Zhonghua Xue Ye Xue Za Zhi",
    "Nan Fang Yi Ke Da Xue Xue Bao",
    "Beijing Da Xue Xue Bao Yi Xue Ban",
    "Zhejiang Da Xue Xue Bao Yi Xue Ban",
    "Sichuan Da Xue Xue Bao Yi Xue Ban",
    "Zhong Nan Da Xue Xue Bao Yi Xue Ban",
    "Hua Xi Kou Qiang Yi Xue Za Zhi",
    "Zhongguo Xiu Fu Chong Jian Wai Ke Za Zhi",
)
"""Journals whose articles PMC holds in Chinese, several of them with the guidelines of Chinese societies."""


def _book(
    name: str, about: str, accession: str, *, licence: str, size: int, recommended: bool
) -> Source:
    return Source(
        name=name,
        about=about,
        address=f"{_BOOKS}file_list.csv",
        files=_BOOKS,
        hosts=frozenset({_NCBI}),
        layout=layouts.BOOKSHELF,
        reader="bookshelf",
        wanted=accession,
        licence=licence,
        checksums="none published: size, and the archive reads to its end",
        typical_bytes=size,
        typical_file=size,
        index_share=0.5,
        largest=8 * _GB,
        single=True,
        recommended=_ALL if recommended else None,
    )


def _labels(name: str, about: str, wanted: str, size: int) -> Source:
    return Source(
        name=name,
        about=about,
        address=_DAILYMED,
        files=_DAILYMED_FILES,
        hosts=frozenset({"dailymed.nlm.nih.gov", "dailymed-data.nlm.nih.gov"}),
        layout=layouts.DAILYMED,
        reader="dailymed",
        wanted=wanted,
        licence="public domain (labels as submitted to the FDA)",
        checksums="MD5 on the page",
        typical_bytes=size,
        typical_file=3 * _GB,
        index_share=0.2,
        largest=8 * _GB,
        recommended=_ALL,
    )


SOURCES: tuple[Source, ...] = (
    _book(
        "statpearls",
        "StatPearls: chapters on diseases, drugs and procedures",
        "NBK430685",
        licence="CC-BY-NC-ND-4.0",
        size=1_600 * _MB,
        recommended=True,
    ),
    _book(
        "pdq",
        "NCI's PDQ cancer information summaries",
        "NBK82221",
        licence="public domain (text; figures are their owners')",
        size=300 * _MB,
        recommended=True,
    ),
    _book(
        "genereviews",
        "GeneReviews: inherited diseases",
        "NBK1116",
        licence="University of Washington: non-commercial research",
        size=650 * _MB,
        recommended=False,
    ),
    _book(
        "livertox",
        "LiverTox: injury of the liver by drugs",
        "NBK547852",
        licence="public domain",
        size=400 * _MB,
        recommended=False,
    ),
    Source(
        name="medlineplus",
        about="MedlinePlus health topics in English",
        address="https://medlineplus.gov/xml.html",
        files="https://medlineplus.gov/xml/",
        hosts=frozenset({"medlineplus.gov"}),
        layout=layouts.MEDLINEPLUS,
        reader="medlineplus",
        licence="public domain",
        checksums="none published: the archive reads to its end",
        typical_bytes=5 * _MB,
        typical_file=5 * _MB,
        index_share=3.0,
        largest=500 * _MB,
        recommended=_ALL,
    ),
    _labels(
        "dailymed-rx", "DailyMed: labels of human prescription drugs", "rx", 16 * _GB
    ),
    _labels(
        "dailymed-otc",
        "DailyMed: labels of human over-the-counter drugs",
        "otc",
        24 * _GB,
    ),
    Source(
        name="pubmed",
        about="PubMed: abstracts, baseline and daily updates",
        address=f"https://{_NCBI}/pubmed/",
        files=f"https://{_NCBI}/pubmed/",
        hosts=frozenset({_NCBI}),
        layout=layouts.PUBMED,
        reader="pubmed",
        licence="NLM terms; the abstract is its publisher's",
        checksums="MD5 beside each file",
        typical_bytes=45 * _GB,
        typical_file=40 * _MB,
        index_share=1.5,
        largest=1 * _GB,
        recommended=_SYNTHESES,
    ),
    Source(
        name="pmc-chinese",
        about="Open-access articles in Chinese, from ten journals in PMC",
        address=_ENTREZ,
        files=_PMC_FILES,
        hosts=frozenset({urlsplit(_ENTREZ).netloc, urlsplit(_PMC_FILES).netloc}),
        layout=layouts.PMC,
        reader="bookshelf",
        wanted="({}) AND open access[filter]".format(
            " OR ".join(f'"{journal}"[journal]' for journal in _CHINESE_JOURNALS)
        ),
        licence="Creative Commons; each article names its own",
        checksums="MD5 in each article's metadata",
        typical_bytes=1_500 * _MB,
        typical_file=110 * _KB,
        index_share=0.8,
        largest=100 * _MB,
        may_be_absent=True,
        pause_s=0.34,
        recommended=_ALL,
    ),
)


def find_source(name: str, mirror: str | None = None) -> Source:
    """Return the source of that name, at its mirror if one is given.

    Args:
        name: A name of `SOURCES`.
        mirror: The address of a copy that is arranged in the same way; its host is then the only one asked.

    Raises:
        UsageError: for an unknown name, or a mirror that is no http address.
    """
    source = next((source for source in SOURCES if source.name == name), None)
    if source is None:
        known = ", ".join(source.name for source in SOURCES)
        raise UsageError(
            f"{name!r} is not a corpus that medlive fetches",
            hint=f"choose from {known}",
        )
    if mirror is None:
        return source
    host = urlsplit(mirror)
    if host.scheme not in ("http", "https") or not host.netloc or "@" in host.netloc:
        raise UsageError(
            f"[evidence.mirrors] {name} = {mirror!r}: expected an http or https address"
        )
    base = mirror.rstrip("/") + "/"
    page = source.address.rpartition("/")[2]
    return replace(
        source,
        address=base + page,
        files=base,
        hosts=frozenset({host.netloc}),
        mirrored=True,
    )
