"""Tells a refusal in plain words from a reply that was merely spoilt: the one is a decision of the model's and is
not asked to be mended, the other is."""

import re
from typing import Final

from medlive.llm.reading import without_thinking

LONGEST: Final = 2000
"""Characters of the longest text that is taken for a refusal: models that refuse are brief."""

_OPENING: Final = 400
"""Characters at the beginning in which the refusal must stand."""

_UNABLE: Final = (
    r"(?:can(?:['’]?t|\s?not)|could not|won['’]?t|will not|am (?:not able|unable|not allowed|not permitted)"
    r"|['’]m (?:not able|unable|not allowed|not permitted)|must decline|have to decline|decline)"
)
_WHAT: Final = (
    r"(?:help|assist|provide|give|offer|answer|comply|do (?:that|this)|fulfil+|process|complete|continue|engage"
    r"|generate|produce|create|share|discuss|support|analy[sz]e|respond|advise|be used|participate)"
)
_REFUSALS: Final = re.compile(
    rf"\bI\s?{_UNABLE}\s(?:\w+\s){{0,3}}{_WHAT}\b"
    r"|\bI must (?:respectfully )?(?:decline|refuse)\b"
    r"|\bI (?:refuse|decline) to\b"
    r"|\b(?:against|violates?) (?:my|our|the|openai['’]?s?) (?:guidelines|polic(?:y|ies)|programming|terms)\b"
    r"|\bas an ai(?: language)? model,? I (?:can(?:['’]?t|not)|am not|do not|don['’]t)\b"
    r"|\b(?:your|the|this) request (?:was|has been|is) (?:rejected|blocked|refused|declined|flagged)\b"
    r"|(?:我|本(?:模型|助手|AI))?(?:无法|不能|不可以|没办法|不便)(?:够)?(?:为您|为你|向您|给您|对此|就此)?"
    r"(?:提供|协助|帮助|回答|满足|完成|执行|处理|继续|生成|参与|给出|讨论|作答)"
    r"|拒绝(?:回答|提供|执行|协助)|违反(?:了)?(?:相关|我们的|平台)?(?:规定|政策|法律|准则)"
    r"|(?:您|你)的(?:请求|问题|输入)(?:被拒绝|包含敏感|不符合)",
    re.IGNORECASE,
)


def is_refusal(text: str) -> bool:
    """Whether a text in which no JSON stands is a model that declines, in English or Chinese."""
    text = without_thinking(text)
    return 0 < len(text) <= LONGEST and _REFUSALS.search(text[:_OPENING]) is not None
