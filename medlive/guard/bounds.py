"""Bounds on what a stranger may send, and on what a stranger can make us do: every one of them, in one place.

A stranger is whoever writes a thread, a page, a passage, a reply of a model, a bundle or a request. What an
algorithm needs for itself (how often it tries, how much it keeps at hand) stays beside the algorithm. A bound is
the most that is taken; its name says of what, bytes or characters.
"""


# Requests to the web

FORM_BYTES = 1 << 20
"""The body of a request: a form with a whole case fits twenty times."""
HEADER_BYTES = 32 * 1024
"""The request line and all headers together; longer ones are refused before anything reads them."""
REQUEST_SECONDS = 30.0
"""How long a request may take to arrive, from its connection or its first byte to its last."""
QUERY_BYTES = 8_192
"""What follows `?` in an address: every facet of a table with some values each, a search and a place."""
BACK_CHARS = 2_000
"""An address that a page, a form or a sign-in leads back to; of a longer one the query is left out."""
CURSOR_CHARS = 200
"""The key of a row after which a table goes on: a moment or a version, and numbers."""
SEARCH_CHARS = 200
"""The words of a search in a table."""
EXPORT_BYTES = 2**25
"""An export of a table, which is made in memory: a hundred thousand threads have less."""
PASSWORD_CHARS = 256
"""A password: nobody types more, and hashing takes time."""
COMMENT_CHARS = 2_000
"""A rater's comment on an item of a study."""

# Pages of the web

MESSAGES_SHOWN = 50
"""Messages of a thread on a page of it."""
MESSAGE_CHARS_SHOWN = 8_000
"""Characters of a message on a page; `medlive thread show` prints the rest."""
TITLE_CHARS_SHOWN = 1_000
"""Characters of a thread's title on a page or in a list."""
REPLY_CHARS_SHOWN = 20_000
"""Characters of a model's reply beside the thread that it is about."""
REQUEST_CHARS_SHOWN = 200_000
"""Characters of each text of a request to a model, on its own page."""
LOG_CHARS_SHOWN = 4_000
"""Characters of each text of an entry of the audit log, on pages and by `medlive audit log`."""
GAPS_SHOWN = 200
"""Subjects without evidence, and parked threads, that a page lists."""
HELD_SHOWN = 100
"""Held cases on the review desk."""

# Harvested pages and imported files

PAGE_BYTES = 8 * 2**20
"""A fetched body after decompression, and markup that is parsed."""
RECORD_BYTES = 256 * 2**20
"""A record of a WARC file, unpacked: a page with its headers, whatever the settings were when it was fetched."""
PAGE_DEPTH = 512
"""Elements within each other on a page."""
PAGE_SECONDS = 180.0
"""All attempts and redirects of a page together, without waits."""
RETRY_AFTER_S = 600.0
"""A site's Retry-After that is waited for; after a longer one the host is not asked until then."""
REDIRECTS = 5
"""Redirects of a page, each to a host of its source, or on the way to a robots.txt (RFC 9309, 2.3.1.2)."""
LIST_PAGES = 500
"""Pages of one list that a run follows, against lists without an end."""
THREAD_PAGES = 100
"""Pages of one thread; a longer one is reported and left out."""
THREAD_ID_CHARS = 500
"""A thread's id; a thread with a longer one is not stored."""
MESSAGE_CHARS = 200_000
"""A message of a harvested thread; a thread with a longer one is reported and left out."""
IMPORT_LINE_BYTES = 20_000_000
"""A line of an imported file; a longer one is skipped and reported."""

# Evidence

PASSAGE_LINE_BYTES = 16 * 2**20
"""A line of a JSON Lines corpus."""
PUBMED_RECORD_BYTES = 8 * 2**20
"""A PubMed record: an article of five thousand authors has about two million bytes."""
ARCHIVE_BYTES = 16 * 2**30
"""An archive unpacked."""
ARCHIVE_MEMBER_BYTES = 32 * 2**20
"""A file of an archive, or beside one."""
ARCHIVE_HEADER_BYTES = 2**20
"""What a tar header may claim for a name: real ones have hundreds of bytes."""
XML_DEPTH = 200
"""Elements within each other in an article."""
XML_TEXT_DEPTH = 100
"""Elements within each other in an article's text."""
LITERATURE_BYTES = 32 * 2**20
"""A literature service's answer."""
LITERATURE_WAIT_S = 60.0
"""A literature service's Retry-After that is waited for; after a longer one the thread is retried later."""

# Models and what others evaluated

ENDPOINT_BODY_BYTES = 4 * 2**20
"""An endpoint's answer."""
ENDPOINT_WAIT_S = 120.0
"""An endpoint's Retry-After that is waited for; past it the endpoint counts as unavailable."""
REPLY_CHARS = 1_000_000
"""A model's reply: none of our tasks asks for a longer one."""
REPLY_TOKENS = 100_000_000
"""Most tokens that an endpoint may report for a request; a larger count is ignored, and an upper bound is charged."""
RULES_REQUEST_BYTES = 32 * 2**20
"""A request to `medlive llm serve`."""
LOG_LINE_BYTES = 256 * 2**20
"""A line of a run's log, which may hold many answers."""
RUN_FILE_BYTES = 2 * 2**30
"""A file of a run's folder that is read whole."""
RUN_INFO_BYTES = 16 * 2**20
"""A run's `run.json`."""
BUNDLE_BYTES = 2**29
"""A bundle, which is held in memory several times."""
BUNDLE_DOCUMENT_BYTES = 16 * 2**20
"""A document or a row of a bundle, which take up to fifty times as much memory when parsed."""

# Published snapshots and files that a user names

NAME_CHARS = 1_024
"""The name of a file below a folder: deeper folders than ours need no longer one."""
SNAPSHOT_FILES = 1_000
"""Entries of a snapshot's folder."""
SNAPSHOT_FILE_BYTES = 16 * 2**30
"""A file of a snapshot: a sparse one may claim any length."""
SNAPSHOT_LINE_BYTES = 4 * 2**20
"""A line of a snapshot's file; reading ends at a longer one."""
VERIFIED_FILE_BYTES = 4 * 2**20
"""A document of a snapshot that is read whole: parsed it may take forty times as much."""
SMALL_FILE_BYTES = 64 * 2**20
"""A file that is read whole, unless its reader says otherwise."""
CONFIG_BYTES = 4 * 2**20
"""A file of settings."""
GIVEN_BYTES = 4 * 2**30
"""A file that a user names on the command line, which may be a pipe."""
FETCH_REDIRECTS = 5
"""Redirects on the way to a published file: a place of publication needs one or two."""
FETCH_LEAST_RATE = 16 * 1024
"""Bytes a second below which a server counts as gone: a slow telephone line brings more."""
FETCH_GRACE_S = 60.0
"""Seconds that each answer may take beyond what its bytes need at that rate."""
FETCH_BYTES = 4 * 2**30
"""All files of a snapshot that is fetched; the largest one is in memory meanwhile."""
