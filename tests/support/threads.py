"""The sample consultations as an import file holds them."""

from typing import Any

from medlive.demo.samples import SampleThread


def as_import(thread: SampleThread) -> dict[str, Any]:
    """A thread in the import format."""
    return {
        "source": thread.source,
        "thread_id": thread.thread_id,
        "url": thread.url,
        "title": thread.title,
        "language": thread.language,
        "tags": list(thread.tags),
        "posted_at": thread.posted_at.isoformat() if thread.posted_at else None,
        "messages": [
            {
                "author": m.author,
                "role": m.role,
                "verified": m.verified,
                "posted_at": m.posted_at.isoformat() if m.posted_at else None,
                "text": m.text,
                "media": list(m.media),
            }
            for m in thread.messages
        ],
    }
