"""OpenTelemetry spans: one for each request to a model's endpoint, with no word of prompts, replies or keys.

Spans are sent by OTLP over HTTP to where OTEL_EXPORTER_OTLP_ENDPOINT says, and to nowhere without it. Attributes
are those of the semantic conventions for generative AI.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from structlog.contextvars import get_contextvars

from medlive import __version__
from medlive.errors import MissingExtra
from medlive.llm.engine import Reply
from medlive.trust import authorities_file, has_own_authority

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.trace import Tracer

ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_AUTHORITIES: Final = (
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
)
_SYSTEM: Final = "openai"
"""Which API is spoken, whoever serves it."""
_IDS: Final = ("thread", "job", "run", "step", "week")
"""The ids of log lines that a span repeats."""

_tracer: "Tracer | None" = None


def configure(environment: Mapping[str, str]) -> None:
    """Send spans from now on where the variables of OpenTelemetry say, if they say it.

    Raises MissingExtra without medlive[otel].
    """
    global _tracer
    if not environment.get(ENDPOINT) or _tracer is not None:
        return
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        sender = exporter(environment)
    except ImportError as error:
        raise MissingExtra(
            f"{ENDPOINT} is set, but OpenTelemetry is not installed",
            hint="pip install 'medlive[otel]'",
        ) from error
    named = {
        "service.name": environment.get("OTEL_SERVICE_NAME", "medlive"),
        "service.version": __version__,
    }
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(sender))
    _tracer = provider.get_tracer("medlive", __version__)


def exporter(environment: Mapping[str, str]) -> "OTLPSpanExporter":
    """What sends spans; it believes OpenTelemetry's own variable for authorities, else those of `medlive.trust`.

    Raises ImportError without medlive[otel].
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    authorities = None
    if has_own_authority() and environment.keys().isdisjoint(_AUTHORITIES):
        authorities = str(authorities_file())
    return OTLPSpanExporter(certificate_file=authorities)


@contextmanager
def call_span(
    model: str, host: str, parameters: Mapping[str, Any]
) -> Iterator[Callable[[Reply], None]]:
    """A span around one request; the block passes the reply to what is yielded."""
    if _tracer is None:
        yield lambda reply: None
        return
    from opentelemetry.trace import SpanKind, StatusCode

    sent = {
        name: parameters[name]
        for name in ("temperature", "top_p", "max_tokens")
        if name in parameters
    }
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": _SYSTEM,
        "gen_ai.provider.name": _SYSTEM,  # what newer versions of the conventions call it
        "gen_ai.request.model": model,
        "server.address": host,
        **{f"gen_ai.request.{name}": value for name, value in sent.items()},
        **{
            f"medlive.{key}": value
            for key, value in get_contextvars().items()
            if key in _IDS
        },
    }
    with _tracer.start_as_current_span(
        f"chat {model}",
        kind=SpanKind.CLIENT,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:

        def answered(reply: Reply) -> None:
            span.set_attributes(
                {
                    "gen_ai.response.model": reply.model,
                    "gen_ai.response.finish_reasons": [reply.finish.value],
                    "gen_ai.usage.input_tokens": reply.usage.input_tokens,
                    "gen_ai.usage.output_tokens": reply.usage.output_tokens,
                }
            )

        try:
            yield answered
        except Exception as error:
            # Its class or status alone: messages may repeat what an endpoint sent.
            span.set_attribute(
                "error.type", str(getattr(error, "status", type(error).__name__))
            )
            span.set_status(StatusCode.ERROR)
            raise
