"""The filter rules, each of which looks at one thing, and `FilterChain`, which applies them to a thread.

A rule is a function from a `Subject` to an outcome, named after what it keeps out and entered once in `RULES`,
whose order decides which failure is the thread's reason. Its docstring says what passes.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache

from medlive.deidentify.detect import find_identifiers
from medlive.integrity.digest import digest_json
from medlive.text.normalise import Language, dominant_language
from medlive.threads.model import Thread
from medlive.threads.near_duplicates import Match

from .codebooks import Codebook
from .lexicon import unsafe_phrase
from .model import (
    EvidenceValue,
    FilterReason,
    FilterSettings,
    FilterVerdict,
)


@dataclass(frozen=True)
class Subject:
    """A thread and what else the rules need."""

    thread: Thread
    settings: FilterSettings
    codebook: Codebook
    duplicate_of: Match | None
    now: datetime

    def _text(self, parts: Iterable[str]) -> str:
        return "\n".join(parts)[: self.settings.max_characters]

    @cached_property
    def patient_text(self) -> str:
        """The patient's messages, at most the longest thread's length."""
        messages = self.thread.messages
        return self._text(m.text for m in messages if m.role == "patient")

    @cached_property
    def advice_text(self) -> str:
        """The messages that advice may be taken from."""
        return self._text(message.text for message in self.thread.advice_messages())

    @cached_property
    def whole_text(self) -> str:
        """Title and all messages."""
        texts = [message.text for message in self.thread.messages]
        return self._text([self.thread.title, *texts])

    @cached_property
    def lower(self) -> str:
        """The whole text in lower case."""
        return self.whole_text.lower()

    @cached_property
    def language(self) -> Language:
        """The language of the patient's text, else of the title, else as the source declares it."""
        for text in (self.patient_text, f"{self.thread.title} {self.patient_text}"):
            if (language := dominant_language(text)) != "unknown":
                return language
        declared = self.thread.language
        return "en" if declared == "en" else "zh" if declared == "zh" else "unknown"


Outcome = tuple[FilterReason | None, Mapping[str, EvidenceValue]]
"""Why the thread does not pass, or None; and the evidence for it."""
Rule = Callable[[Subject], Outcome]


def empty_thread(subject: Subject) -> Outcome:
    """The thread has messages, and the patient says something in one."""
    if not re.search(r"\w", subject.patient_text):
        return "empty_thread", {"detail": "no text by the patient"}
    return None, {}


def too_long(subject: Subject) -> Outcome:
    """Title and messages together are no longer than the limit."""
    length = len(subject.thread.title) + sum(
        len(m.text) for m in subject.thread.messages
    )
    limit = subject.settings.max_characters
    if length > limit:
        return "too_long", {"characters": length, "limit": limit}
    return None, {"characters": length}


def posted_before(subject: Subject) -> Outcome:
    """The thread is dated, not before the first day and not after now."""
    posted = subject.thread.posted_at
    if posted is None:
        return "posted_unknown", {}
    moment = posted.astimezone(UTC)
    evidence = {"posted_at": moment.isoformat()}
    if moment > subject.now + timedelta(hours=subject.settings.future_tolerance_hours):
        return "posted_in_future", evidence
    if moment.date() < subject.settings.posted_before:
        return "posted_before", evidence
    return None, evidence


def _slug(text: str) -> str:
    """Board and tag names as one spelling: `Pre-Medical [ MD ]` and `pre-medical-md.10` → `pre medical md`."""
    name = re.sub(r"\.\d+$", "", text.strip().lower())
    return re.sub(r"[-_\s]+", " ", name).strip()


@lru_cache(maxsize=8)
def _sections(names: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """The sections as slugs, and those of several words, which count inside a longer name too."""
    slugs = frozenset(map(_slug, names))
    return slugs, tuple(f" {s} " for s in sorted(slugs) if " " in s)


# Four lettered options in a row, and a word that says what they are: an examination item, no patient.
_EXAM_OPTIONS = re.compile(
    r"\bA ?[).．、:：][^\n]{1,150}?\bB ?[).．、:：][^\n]{1,150}?\bC ?[).．、:：][^\n]{1,150}?\bD ?[).．、:：]"
    r"|(?:^|\n)\s*A ?[).．、:：].{1,150}\n\s*B ?[).．、:：].{1,150}\n\s*C ?[).．、:：].{1,150}\n\s*D ?[).．、:：]"
    r"|A[.．、].{1,80}?B[.．、].{1,80}?C[.．、].{1,80}?D[.．、]"
)
_EXAM_WORDS = re.compile(
    r"\b(?:exams?|practice question|question bank|qbank|uworld|shelf|usmle|comlex|mcq|answer key"
    r"|which of the following)\b|考试|真题|模拟题|考点|正确答案|选择题|下列哪"
)


def not_clinical(subject: Subject) -> Outcome:
    """No tag, board or URL section is a non-clinical one, and the opening is not an exam question."""
    sections, phrases = _sections(subject.settings.non_clinical_sections)
    path = re.sub(r"^[a-z]+://[^/]*|[?#].*", "", subject.thread.url.lower())
    # The last part of a path is the thread's own title.
    parts = list(filter(None, path.split("/")))
    if parts and re.fullmatch(r"page-\d+", parts[-1]):
        parts.pop()
    for name in (*subject.thread.tags, *parts[:-1]):
        slug = _slug(name)
        plain = re.sub(r"\s*\[.*?\]\s*", " ", slug).strip()
        if {slug, plain} & sections or any(map(f" {plain} ".__contains__, phrases)):
            return "not_clinical", {"section": name[:100]}
    if (item := _EXAM_OPTIONS.search(subject.patient_text)) and _EXAM_WORDS.search(
        subject.lower
    ):
        return "not_clinical", {"exam_item": item.group()[:100]}
    return None, {}


# Words by which anybody shows a picture or a report
_SHOWN_EN = re.compile(
    r"\(?attachments? (?:was |were |has been |have been )?removed|\b(?:photo|picture|pic|image|video|attachment"
    r"|screenshot)s? (?:is |are |was |were )?(?:attached|enclosed|uploaded|below|above|here)\b|\b(?:attach(?:ed"
    r"|ing)|enclos(?:ed|ing)|upload(?:ed|ing)|post(?:ed|ing)|sending|sent|includ(?:ed|ing)|see|find) (?:here "
    r"|herewith |below )?(?:the |a |an |my |some |few |all |all my |these |two |three |\d )?(?:\w+ ){0,2}(?:photo"
    r"|picture|pic|image|video|attachment|screenshot)s?\b|\b(?:attached|enclosed|uploaded) (?:the |a |an |my "
    r"|all |all my |all the |herewith |here )?(?:\w+ ){0,2}(?:report|reports|x-?rays?|scans?|mri|results?|file"
    r"|files|document|documents)\b|\b(?:report|reports|x-?ray|x-?rays|scan|scans|results?)(?: is| are| have been"
    r"| has been)? (?:attached|enclosed)\b|\b(?:please |kindly |pls )?(?:see|find|check|view|look at) (?:the "
    r"|my )?(?:attached|enclosed)\b|\bas (?:shown|seen) in the (?:photo|picture|image|pic|attachment)"
)
_SHOWN_ZH = re.compile(
    "(?:如|见|看|详见|参见|附)(?:上|下|附)?图(?!像检查)|(?:上传|发|传|附)(?:了|的|过|给您|给你|您|一下|一张|几张"
    "|过来|上来|过去|上去|去)*(?:照片|图片|相片|片子|胶片|报告单|化验单|检查单|视频)|(?:照片|图片|相片|片子"
    "|报告单|化验单|检查单|报告|视频)(?:已|都|也|全|我|在)*(?:上传|传上|发您|发给您|发给你|发过去|发上|见附件"
    "|附上|在下面|在上面|如下图)"
    r"|您?看(?:一?下)?(?:我的?|我发的)?(?:照片|图片)|\[(?:图片|视频|照片)\]|【(?:图片|视频)】|点击查看图片"
)
# Words of a physician who has looked at a picture; nobody uses them of a picture that never came.
_PICTURE = (
    r"(?:photo|photograph|picture|pic|image|video|attachment|attached \w+|screenshot)s?"
)
_SEEN_EN = re.compile(
    r"attachments? (?:was |were |has been |have been )?removed"
    r"|(?<!not )(?<!n't )(?<!never )\b(?:seen|saw|reviewed|viewed|looked at|gone through|went through|checked"
    r"|examined|noted|received) (?:the |your |all |these |this |both |through )*(?:\w+ ){0,3}"
    rf"(?:{_PICTURE}|(?:report|x-?ray|scan|mri|result|file|document)s?)\b"
    r"|\b(?:from|in|on|per|by|to) (?:the|your|this|these|that|first|second) (?:\w+ ){0,2}"
    rf"{_PICTURE}\b"
    rf"|\b{_PICTURE} (?:you \w+ )?(?:show|suggest|reveal|look|appear|depict)s?\b"
)
_SEEN_ZH = re.compile(
    "(?<![没未])看(?:了|过|到|完)[^，。；\n]{0,10}(?:图|照片|片子|胶片|报告|化验单|检查单|视频)"
    "|(?:从|根据|按|由)[^，。；\n]{0,8}(?:图|照片|片子|胶片|视频)[^，。；\n]{0,2}(?:看|显示|所示|判断)"
    "|(?:图片|照片|片子|胶片|图[一二三123]|视频)(?:上|中|里|显示|看)"
    "|看(?:你的|您的|这|这个|上)?(?:图片?|照片|片子)[^，。；\n发传]{0,3}(?:考虑|像|是|属|应该|可能|没)|[你您]上传的"
    "|(?:图片|照片|片子|报告单?|化验单|检查单|视频)(?:我|已|都)*(?:看过|看了|看到|阅|收到)"
)
_SPOKEN_ZH = re.compile(
    r"语音(?:回复|已|消息)|\[语音\]|【语音】|点击播放(?:语音)?|暂不支持(?:查看|播放)"
)
_SHOWN_KINDS = frozenset(("image", "video"))


def not_text_only(subject: Subject) -> Outcome:
    """No picture is shown that a physician speaks of as seen, and nothing is said by voice.

    What is not certain by these words, the second reading decides (docs/curation.md).
    """
    media = {kind for message in subject.thread.messages for kind in message.media}
    if "audio" in media:
        return "not_text_only", {"media": "audio"}
    is_chinese = subject.language == "zh"
    if is_chinese and (spoken := _SPOKEN_ZH.search(subject.lower)):
        return "not_text_only", {"says": spoken.group()[:80]}
    seen = (_SEEN_ZH if is_chinese else _SEEN_EN).search(subject.advice_text.lower())
    if seen is None:
        return None, {}
    says = {"seen": seen.group()[:80]}
    if shown_media := sorted(_SHOWN_KINDS & media):
        return "not_text_only", {"media": shown_media[0], **says}
    pattern = _SHOWN_ZH if is_chinese else _SHOWN_EN
    if match := pattern.search(subject.lower):
        return "not_text_only", {"says": match.group()[:80], **says}
    return None, {}


_HAN = re.compile(r"[\u4e00-\u9fff]")
_WORD = re.compile(r"[^\W\d_]{2,}")
_NO_LETTER = re.compile(r"[\W_]+")


def non_alphanumeric(subject: Subject) -> Outcome:
    """Less than the set share of the non-space characters is neither letter nor digit (Chinese characters are)."""
    visible = sum(map(len, subject.whole_text.split()))
    share = 1 - sum(map(str.isalnum, subject.whole_text)) / visible if visible else 1.0
    is_noise = share >= subject.settings.non_alphanumeric_share
    return "non_alphanumeric" if is_noise else None, {"share": round(share, 4)}


def language(subject: Subject) -> Outcome:
    """The patient writes English or Chinese, and the physician answers in the same language."""
    asked = subject.language
    if asked not in subject.settings.languages:
        return "language", {"asked": asked}
    answered = dominant_language(subject.advice_text)
    if answered not in (asked, "unknown"):
        return "language", {"asked": asked, "answered": answered}
    return None, {"asked": asked}


def no_codebook_term(subject: Subject) -> Outcome:
    """The thread contains a term of the code book."""
    hit = next(subject.codebook.matches(subject.whole_text), None)
    if hit is None:
        return "no_codebook_term", {}
    return None, {"term": hit.term, "code": hit.code}


def duplicate(subject: Subject) -> Outcome:
    """The patient's text does not duplicate an earlier one."""
    match = subject.duplicate_of
    if match is None:
        return None, {}
    return "duplicate", {
        "of": match.key,
        "kind": "exact" if match.exact else "near",
        "similarity": round(match.similarity, 4),
    }


# Words without substance in a reply
_COURTESY_EN = re.compile(
    r"\b(?:hi|hello|hey|dear|good (?:morning|evening|afternoon|day)|welcome(?: back)?(?: to [\w.]+)?|greetings"
    r"|thanks?(?: you)?(?: for (?:your |the )?(?:query|question|asking|writing|consulting|posting"
    r"|using [\w.]+)\w*)?|regards|sincerely|take care|good luck|best wishes|wish you (?:good|all the) \w+"
    r"|hope (?:this|it|that) helps\w*|(?:glad|happy|here) to help(?: you)?|let me know|sir|madam|doctor|dr|friend"
    r"|user|patient|for (?:further|more) \w+ consult .{0,60}?online\s*-*>*|<link>)\b"
)
_COURTESY_ZH = re.compile(
    "你好|您好|不客气|不用客气|(?:非常)?(?:谢谢|感谢)(?:你|您)?(?:的)?(?:咨询|信任|提问|关注|支持|理解|配合)?"
    "|没关系|好的|嗯+|哦+|祝(?:你|您)?.{0,8}?(?:健康|愉快|顺利|康复|好运)|祝好|再见|早日康复|多保重"
    "|病情资料我已详细阅读|根据(?:你|您)(?:现有|提供)的资料|语音回复|欢迎(?:咨询|关注)|请点击"
    "|以上是对.{0,40}?问题的建议|希望(?:对|能)(?:你|您)?.{0,4}帮助|朋友|亲|患者|医生|是的?|没有|收到|可以|对"
)


def no_verified_reply(subject: Subject) -> Outcome:
    """A verified physician replies with more than courtesies."""
    replies = list(subject.thread.advice_messages())
    if not replies:
        return "no_verified_reply", {"detail": "no verified physician replies"}
    for message in replies:
        text = message.text[: subject.settings.max_characters]
        # More than courtesies: two words, or four Chinese characters
        if _HAN.search(text):
            has_substance = len(_NO_LETTER.sub("", _COURTESY_ZH.sub(" ", text))) >= 4
        else:
            words = _WORD.findall(_COURTESY_EN.sub(" ", text.lower()))
            has_substance = len(words) >= 2
        if has_substance:
            return None, {"replies": len(replies)}
    return "no_verified_reply", {"detail": "courtesies or a single word only"}


def unsafe_content(subject: Subject) -> Outcome:
    """Nobody is vilified and nothing asks how to do harm."""
    if (phrase := unsafe_phrase(subject.lower)) is not None:
        return "unsafe_content", {"kind": phrase[0], "says": phrase[1][:80]}
    return None, {}


_PERSONAL = frozenset(
    (
        "name",
        "phone",
        "email",
        "id number",
        "date of birth",
        "record number",
        "wechat/qq",
        "address",
    )
)
_PERSONAL_HINTS = (
    "@",
    "name",
    "我叫",
    "姓名",
    "名叫",
    "联系人",
    "出生",
    "生日",
    "生于",
    "born",
    "dob",
    "birth",
    "微信",
    "qq",
    "whatsapp",
)
_LONG_NUMBER = re.compile(r"\d{5}|\d{3}[ )-]{1,2}\d{3}")
_I_AM = re.compile(r"\bI(?: am|'m|’m) [A-Z][a-z]")


_INTRODUCED = re.compile(
    r"(?:name(?: is|['’]s)?|i am|i['’]m|我叫|本人叫|名叫|名字是|姓名|联系人)[\s:：=是为-]*$",
    re.IGNORECASE,
)


def reidentification_risk(subject: Subject) -> Outcome:
    """The patient's text holds fewer kinds of direct identifiers than make a person easy to find.

    Counted: the patient's own name, telephone, e-mail, messenger, identity and record numbers, date of birth; a
    place finer than a province counts beside one of these. A physician's name does not count.
    """
    text = f"{subject.thread.title}\n{subject.patient_text}"
    # Whether a closer look for identifiers is worth its time
    hinted = any(map(subject.lower.__contains__, _PERSONAL_HINTS))
    if not (hinted or _LONG_NUMBER.search(text) or _I_AM.search(text)):
        return None, {"kinds": 0}
    language = subject.language if subject.language in ("en", "zh") else None
    kinds: set[str] = set()
    places = False
    for identifier in find_identifiers(text, language):
        kind, start = identifier.kind, identifier.start
        places = places or kind == "place"
        before = text[max(0, start - 16) : start]
        if kind in _PERSONAL and (kind != "name" or _INTRODUCED.search(before)):
            kinds.add(kind)
    if kinds and places:
        kinds.add("place")
    if len(kinds) < subject.settings.identifier_kinds:
        return None, {"kinds": len(kinds)}
    return "reidentification_risk", {
        "kinds": len(kinds),
        "found": ", ".join(sorted(kinds)),
    }


RULES: tuple[Rule, ...] = (
    empty_thread,
    too_long,
    posted_before,
    not_clinical,
    not_text_only,
    non_alphanumeric,
    language,
    no_codebook_term,
    duplicate,
    no_verified_reply,
    unsafe_content,
    reidentification_risk,
)
"""Every rule, by the method's name for it, in the order in which the first failure decides."""

_RULES_VERSION = 2
"""The version of the rules, raised when one changes, so that stored verdicts can be distinguished."""


def first_failure(verdicts: Sequence[FilterVerdict]) -> FilterVerdict | None:
    """The first verdict that did not pass; None if the thread passed."""
    return next((verdict for verdict in verdicts if not verdict.passed), None)


class FilterChain:
    """The rules under one set of settings and one code book."""

    def __init__(self, settings: FilterSettings, codebook: Codebook) -> None:
        self.settings = settings
        self.codebook = codebook
        self.digest = digest_json(
            {
                "rules": [rule.__name__ for rule in RULES],
                "version": _RULES_VERSION,
                "settings": settings.model_dump(mode="json"),
                "codebook": codebook.digest,
            }
        )
        """The digest of rules, settings and code book, which a stored verdict names."""

    def judge(
        self,
        thread: Thread,
        *,
        duplicate_of: Match | None,
        now: datetime,
    ) -> tuple[FilterVerdict, ...]:
        """Return each rule's verdict, in the chain's order.

        `now` is aware; `duplicate_of` comes from the index of earlier texts.
        """
        subject = Subject(thread, self.settings, self.codebook, duplicate_of, now)
        verdicts = []
        for rule in RULES:
            reason, evidence = rule(subject)
            verdict = FilterVerdict(rule.__name__, reason is None, reason, evidence)
            verdicts.append(verdict)
        return tuple(verdicts)
