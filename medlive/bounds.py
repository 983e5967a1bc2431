"""Bounds on what a stranger may send, and on what a stranger can make us do: every one of them, in one place.

A stranger is whoever writes a thread, a page, a passage, a reply of a model, a bundle or a request. What an
algorithm needs for itself (how often it tries, how much it keeps at hand) stays beside the algorithm. A bound is
the most that is taken; its name says of what, bytes or characters.
"""

from typing import Final

# Requests to the web

FORM_BYTES: Final = 1 << 20
"""The body of a request: a form with a whole case fits twenty times."""
HEADER_BYTES: Final = 32 * 1024
"""The request line and all headers together; longer ones are refused before anything reads them."""
QUERY_BYTES: Final = 8_192
"""What follows `?` in an address: every facet of a table with some values each, a search and a place."""
BACK_CHARS: Final = 2_000
"""An address that a page, a form or a sign-in leads back to; of a longer one the query is left out."""
CURSOR_CHARS: Final = 200
"""The key of a row after which a table goes on: a moment or a version, and numbers."""
SEARCH_CHARS: Final = 200
"""The words of a search in a table."""
VIEW_CHARS: Final = 2_000
"""The address of a saved view."""
VIEW_TITLE_CHARS: Final = 80
"""The name of a saved view."""
VIEWS: Final = 100
"""Saved views of an account."""
PASSWORD_CHARS: Final = 256
"""A password: nobody types more, and hashing takes time."""
COMMENT_CHARS: Final = 2_000
"""A rater's comment on an item of a study."""

# Pages of the web

MESSAGES_SHOWN: Final = 50
"""Messages of a thread on a page of it."""
MESSAGE_CHARS_SHOWN: Final = 8_000
"""Characters of a message on a page; the rest is on pages of its own."""
TITLE_CHARS_SHOWN: Final = 1_000
"""Characters of a thread's title on a page or in a list."""
REPLY_CHARS_SHOWN: Final = 20_000
"""Characters of a model's reply beside the thread that it is about."""
REQUEST_CHARS_SHOWN: Final = 200_000
"""Characters of each text of a request to a model, on its own page."""
HELD_SHOWN: Final = 100
"""Held cases on the review desk."""
CHANGES_SHOWN: Final = 100
"""Cases of each kind that the difference of two snapshots lists."""
