"""Serves an engine as an OpenAI-compatible endpoint, so that the real client is exercised over real HTTP.

A typed task is known by the line of its prompt that names it (`# Task: <name>`); its inputs are read from the
fence. Two sample models answer plain questions, so that a table has two rows to compare; neither knows any medicine:
`sample-generic` gives every question the same careful advice, `sample-evidence` copies the sentences of retrieved
passages that share most words with the question. What is served is named honestly: every model id begins with "rules"
or "sample", and an OpenAIEngine with a "rules" model counts as the rules engine.
"""

import json
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Annotated, Literal
from uuid import uuid4

from pydantic import BaseModel, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from medlive.errors import EndpointUnavailable, MedliveError, first_fault
from medlive.guard.bounds import RULES_REQUEST_BYTES
from medlive.llm.engine import (
    RULES_MODEL,
    Engine,
    Finish,
    Prompt,
    Reply,
    Request,
    Usage,
)
from medlive.llm.prompts import TASK_LINE, read_inputs

from .text import (
    Language,
    bigrams,
    language_of,
    sentences,
    stem,
    words,
)

# Passages' texts for a question, best first
Search = Callable[[str], Awaitable[Sequence[str]]]

MODELS = ("sample-generic", "sample-evidence")

_GENERIC: dict[Language, str] = {
    "en": (
        "This is a standard answer that does not look at the details of the question.\n"
        "The cause cannot be told for certain from a description alone. Please see a physician, who can take the "
        "full history, examine you and decide which tests are needed. Until then rest, drink enough, do not "
        "start, stop or change any prescription medicine on your own, and write down how the symptoms develop. "
        "Go to an emergency department at once if you have severe or sudden pain, trouble breathing, chest pain, "
        "confusion, fainting, weakness on one side, heavy bleeding, or a high fever that does not fall."
    ),
    "zh": (
        "这是一段标准回答，没有针对问题的细节。\n"
        "仅凭文字描述不能确定病因。建议到医院就诊，由医师了解完整病史、进行体格检查，并决定需要哪些检查。在此之前注意休息，"
        "适量饮水，不要自行开始、停止或更改处方药，并记录症状的变化。如果出现剧烈或突发的疼痛、呼吸困难、胸痛、意识不清、"
        "晕厥、一侧肢体无力、大量出血或持续高热，请立即到急诊就诊。"
    ),
}
_PREFACE: dict[Language, str] = {
    "en": "These sentences were copied from literature because they share words with the question:\n",
    "zh": "以下句子因与问题用词相近而摘自文献：\n",
}
_LONGEST = 5  # Sentences in an extractive answer
_EVERYDAY_TEXT = (
    "a an the and or but if of in on at to for from with by is are was were be been am do does did has have had "
    "i me my you your he she it its his her they them this that these those there what which who when why how "
    "can could should would may might will shall not no any some all so as than then about also patient please "
    "doctor help year old day week month know want get take"
)
_EVERYDAY = frozenset(map(stem, _EVERYDAY_TEXT.split()))
_STOP_ZH = re.compile(
    r"[的了吗呢吧啊是我你您他她有在和与就都也不会要能可以什么怎么请问患者医生这那个一]"
)


def generic_answer(question: str) -> str:
    """The same careful advice for every question, in the question's language."""
    return _GENERIC[language_of(None, question)]


def evidence_answer(question: str, passages: Sequence[str]) -> str:
    """The passages' sentences nearest to the question, verbatim; the generic answer where none is near."""
    wanted = _terms(question)
    places: dict[str, int] = {}
    shares: dict[str, float] = {}
    for rank, passage in enumerate(passages):
        for sentence in sentences(passage):
            text = " ".join(sentence.split())
            terms = _terms(text)
            shared = len(terms & wanted)
            is_said = len(text) <= 500 and text[-1] not in "?？"
            if shared >= 2 and is_said and text not in places:
                places[text] = len(places)
                shares[text] = shared / (len(terms) + 8) - 0.01 * rank
    if not places:
        return generic_answer(question)
    best = sorted(places, key=shares.__getitem__, reverse=True)[:_LONGEST]
    preface = _PREFACE[language_of(None, question)]
    return preface + "\n".join(sorted(best, key=places.__getitem__))


def _terms(text: str) -> set[str]:
    text = text[:20_000]
    return (set(map(stem, words(text))) - _EVERYDAY) | bigrams(text, _STOP_ZH)


_FINISH = {
    Finish.STOP: "stop",
    Finish.LENGTH: "length",
    Finish.REFUSAL: "content_filter",
}


def _json(value: object, status: int = 200) -> Response:
    # ASCII only: a lone surrogate of a hostile text has no UTF-8 form.
    content = json.dumps(value, separators=(",", ":"))
    return Response(content, status, media_type="application/json")


async def _explain(_: HttpRequest, error: Exception) -> Response:
    """An error in OpenAI's form."""
    message, status = str(error), 400
    if isinstance(error, HTTPException):
        message, status = error.detail, error.status_code
    elif isinstance(error, EndpointUnavailable):
        status = 503
    kind = "invalid_request_error" if status < 500 else "server_error"
    body = {"message": message, "type": kind, "param": None, "code": None}
    return _json({"error": body}, status)


def _tokens(text: str) -> int:
    """A fourth of the bytes, since nothing here has a tokeniser."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


class _Message(BaseModel):
    role: str
    content: str | None = None


class _Chat(BaseModel):
    """What is used of a chat request."""

    model: str
    messages: Annotated[list[_Message], Field(min_length=1)]
    stream: Literal[False] | None = None

    @property
    def task(self) -> str | None:
        """The task's name, from the prompt's own line."""
        for line in self.last("system").splitlines():
            if line.startswith(TASK_LINE):
                return line.removeprefix(TASK_LINE).strip()
        return None

    def last(self, role: str) -> str:
        """The text of the last message of a role, "" where it has none."""
        texts = [m.content or "" for m in self.messages if m.role == role]
        return texts[-1] if texts else ""


async def _read(http: HttpRequest) -> _Chat:
    """The request's chat. Raises HTTPException for another body."""
    body = bytearray()
    async for part in http.stream():
        body += part
        if len(body) > RULES_REQUEST_BYTES:
            raise HTTPException(413, f"The body is over {RULES_REQUEST_BYTES} bytes.")
    try:
        return _Chat.model_validate_json(bytes(body))
    except ValidationError as error:
        text = f"The body is not a chat request: {first_fault(error)}"
        raise HTTPException(400, text) from error


async def _ask_task(chat: _Chat, engine: Engine) -> Reply:
    """The engine's reply to a task of medlive's. Raises HTTPException."""
    task = chat.task
    if task is None:
        raise HTTPException(
            400, f"No task: expected a line {TASK_LINE!r} in the system message."
        )
    inputs = read_inputs([message.model_dump() for message in chat.messages])
    if inputs is None:
        text = f"The request for {task} holds no inputs between the fences."
        raise HTTPException(400, text)
    prompt = Prompt(task, chat.last("system"))
    try:
        return await engine.answer(Request(task, prompt, inputs, {}))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        # The inputs came over the wire and may lack what the task reads.
        text = f"The inputs of {task} cannot be used: {error!r}"
        raise HTTPException(400, text) from error


async def _ask_sample(chat: _Chat, search: Search | None) -> Reply:
    """A sample model's reply to a question. Raises HTTPException."""
    if chat.model not in MODELS:
        raise HTTPException(404, f"The model {chat.model!r} does not exist.")
    question = chat.last("user")
    if not question.strip():
        raise HTTPException(400, "The last user message holds no text.")
    text = generic_answer(question)
    if chat.model == "sample-evidence" and search is not None:
        text = evidence_answer(question, await search(question))
    return Reply(text, Finish.STOP, Usage(), chat.model)


def build_app(engine: Engine, search: Search | None = None) -> Starlette:
    """The application with `/v1/chat/completions` and `/v1/models`; it does not close the engine.

    `search` gives `sample-evidence` its passages.
    """
    own_model = engine.identity.model

    async def models(_: HttpRequest) -> Response:
        data = []
        for name in dict.fromkeys((RULES_MODEL, own_model, *MODELS)):
            model = {"id": name, "object": "model", "created": 0}
            data.append({**model, "owned_by": "medlive"})
        return _json({"object": "list", "data": data})

    async def complete(http: HttpRequest) -> Response:
        chat = await _read(http)
        if chat.model in (RULES_MODEL, own_model):
            reply = replace(await _ask_task(chat, engine), model=own_model)
        else:
            reply = await _ask_sample(chat, search)
        asked = sum(_tokens(message.content or "") for message in chat.messages)
        answered = _tokens(reply.text)
        message = {"role": "assistant", "content": reply.text, "refusal": None}
        finish = _FINISH[reply.finish]
        return _json(
            {
                "id": f"chatcmpl-{uuid4()}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": reply.model,
                "choices": [{"index": 0, "finish_reason": finish, "message": message}],
                "usage": {
                    "prompt_tokens": asked,
                    "completion_tokens": answered,
                    "total_tokens": asked + answered,
                },
            }
        )

    return Starlette(
        routes=[
            Route("/v1/chat/completions", complete, methods=["POST"]),
            Route("/v1/models", models),
        ],
        exception_handlers={HTTPException: _explain, MedliveError: _explain},
    )
