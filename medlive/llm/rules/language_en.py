"""English patterns: who is greeted, what is asked, what is only said to be kind, what is advice."""

import re
from typing import Final


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{p})" for p in patterns), re.IGNORECASE)


GREETING: Final = re.compile(
    r"^(?:(?:hi|hello|hey|hellow|dear|respected|greetings|good\s(?:day|morning|evening|afternoon|"
    r"night)|namaste|welcome)\b"
    r"(?:\s(?:there|all|to|and|dr|doc|doctors?|sir|madam|mam|maam|ma'am|everyone|colleagues|friend|"
    r"user|patient|mr|ms|mrs|"
    r"icliniq(?:\.com)?|chatdoctor|healthcaremagic|healthcare\smagic|forum|"
    r"(?:the\s)?[‘'\"]?ask\sa\sdoctor['’\"]?(?:\sservice)?)\b)*"
    r"\s?[,.!:;\-–]*\s*)+",
    re.IGNORECASE,
)
"""A leading greeting, to be stripped from a sentence."""
LEAD: Final = re.compile(
    r"^(?:(?:and|but|so|also|then|now|well|ok|okay|actually|anyway|btw|by the way|moreover|besides|"
    r"plus|sir|madam|doctor|"
    r"doc|in brief|in summary|however)\b[\s,:]*)+",
    re.IGNORECASE,
)
SMALLTALK: Final = _any(
    r"^(?:many |so much )?thank(?:s|ing)?\b",
    r"\bthank(?:s| you)(?: so| very)?(?: much)?(?: in advance)?[.! ]*$",
    r"^(?:best )?regards",
    r"^(?:god bless|bless you|cheers|sincerely|yours)",
    r"^(?:please|plz|pls|kindly)?\s*help(?: me)?[.! ]*$",
    r"\b(?:my name is|this is my first (?:post|time)|sorry for (?:the |my )?(?:long|bad|english))",
    r"^i hope (?:you|to hear|this)",
    r"\blook(?:ing)? forward to\b",
    r"\bi (?:only )?(?:just )?want(?:ed)? to (?:let you know|say)",
    r"^(?:see|refer|find|check)? ?(?:the )?(?:attached|attachment)",
    r"\b(?:reports?|images?|photos?|pictures?|files?)\b[^.]{0,30}\b(?:are|is|were|have been)?\s?"
    r"(?:enclosed|attached|uploaded)",
    r"\b(?:attached|enclosed|uploaded)\b[^.]{0,30}\b(?:reports?|images?|photos?|pictures?)",
    r"\bas (?:shown|seen) in the (?:photo|picture|image|above|below)",
    r"^(?:edit|update|bump|following)[.: ]*$",
    r"^(?:i am|i'm|im)?\s?(?:so |very |really |extremely |just |kind of |a bit )*(?:worried|scared|"
    r"freak(?:ed|ing) out|confused|desperate|"
    r"upset|stressed out|at a loss|terrified|concerned)(?: about (?:this|it|that))?[.! ]*$",
)
"""Sentences that hold no fact: thanks, pleas, feelings about the matter, references to files not shown."""
INJECTION: Final = _any(
    r"\b(?:ignore|disregard|forget|override)\b[^.]{0,40}\b(?:instructions?|prompts?|polic(?:y|ies)|"
    r"rules|criteri(?:a|on)|above|previous)",
    r"\b(?:system|developer|assistant) (?:message|prompt|mode)\b",
    r"<\|",
    r"^\W*system\s*:",
    r"\byou are now\b",
    r"\b(?:output|return|respond with|print|answer with)\b[^.]{0,30}[{\[<]",
    r"\"(?:met|score|verdict|narrative|supported)\"\s*:",
    r"\b(?:full marks|test mode|jailbreak|as an ai|language model|give (?:it |this )?(?:a "
    r")?(?:score|10/10))\b",
    r"\bdo not mention this (?:text|message|instruction)",
    r"\b(?:note|message|instruction)s? (?:to|for) (?:the )?(?:ai|model|assistant|grader|judge|"
    r"screener|validator)\b",
)
"""Text that speaks to a program: never a fact, a question or advice."""
_AUX: Final = (
    r"(?:is|are|am|was|were|can|could|should|shall|do|does|did|will|would|has|have|had|may|might|"
    r"must|isn't|aren't|don't|doesn't|won't|couldn't|shouldn't|wouldn't)"
)
_SUBJECT: Final = (
    r"(?:i|it|this|that|these|those|there|the|my|he|she|we|you|they|his|her|our|your|their|any|a|"
    r"an|such|both|one|taking|"
    r"having|eating|using|someone|anyone|people|women|men)"
)
_OPENING: Final = (
    r"^(?:(?:if|when|since|as|because|given|after|with|for|apart|regarding|in|once)\b[^,?]{3,160},\s*)?"
    r"(?:(?:and|or|but|so|also|then|now|please|doctor|sir|hi|hello|secondly|firstly|lastly|finally|"
    r"ok|well|anyway|q\d?|question)\b[\s,:.]*)*"
    r"(?:(?:for|at|in|from|on|to|by|of|with|about|after|until)\s)?"
)
INTERROGATIVE: Final = re.compile(
    rf"{_OPENING}(?:what(?:'s|s)?|why|how|when|where|which|who|whom|whose|{_AUX}\s(?:{_SUBJECT}|"
    rf"[a-z]{{4,}}))\b",
    re.IGNORECASE,
)
INVERTED: Final = re.compile(
    rf"{_OPENING}(?:(?:what|why|how|when|where|which|who|whom|whose)\s(?:\w+\s)?{_AUX}\s{_SUBJECT}|"
    rf"what\s(?:is|are|was|were|causes?|could|can|should|would|about|if|to)|"
    rf"how\s(?:to|long|much|many|often|soon|about|come)|why\s{_AUX}|why not|(?:is|are|can|could|"
    rf"should|do|does|did|will|would|may|shall|am)\s{_SUBJECT})\b",
    re.IGNORECASE,
)
"""A question even where the question mark is missing: verb before subject."""
INNER_QUESTION: Final = re.compile(
    r"(?:[,;:.\-–]\s?|\b(?:and|but|so|or)\s|"
    r"\s(?=(?:what|how) (?:do|should|can|could|would) (?:i|we)\b|should (?:i|we)\b|is (?:it|this) "
    r"(?:normal|safe|serious)\b))"
    r"(?:(?:please |doctor,? |then |also |so |and "
    r")*)(?P<q>(?:what(?:'s)?|why|how|when should|where|which|who|"
    r"(?:is|are|can|could|should|does|do|did|will|would|may|am) (?:i|it|this|that|these|there|the|"
    r"my|he|she|we|they|you|any)\b)[^?]{3,400}\?)",
    re.IGNORECASE,
)
REQUEST: Final = _any(
    r"\b(?:please|kindly|pls|plz)\b[^.]{0,25}\b(?:suggest|advi[sc]e|guide|help|tell|explain|let me "
    r"know|recommend|clarify|give|provide|"
    r"comment|confirm|share|assist|interpret|review|inform|answer|enlighten|prescribe)",
    r"\b(?:suggest|advise|guide|help|tell|inform) (?:me|us)\b",
    r"^(?:any|some) (?:advice|help|suggestions?|ideas?|thoughts|input)\b",
    r"\b(?:would|i'd|i'?d?) (?:like|love|want) to (?:know|ask|understand|hear|find out)",
    r"\b(?:want|wanted|need|wish) to (?:know|ask|understand|find out)\b",
    r"\b(?:need|want|seeking|looking for|appreciate|request)\b[^.]{0,25}\b(?:advice|opinion|"
    r"suggestions?|guidance|input|thoughts|second opinion|explanation)\b",
    r"\b(?:can|could|would) (?:you|someone|anyone|anybody|u)\b",
    r"\b(?:wondering|curious|wonder) (?:if|whether|what|how|why|about)\b",
    r"\bnot sure (?:if|whether|what) (?:i|this|it|to)\b",
    r"\b(?:your|any) (?:advice|opinion|thoughts|suggestions?|recommendations?)\b",
    r"\bgive (?:me|us) (?:some |your |an? )?(?:advice|suggestions?|opinion|solution)",
    r"\bmy questions? (?:is|are)\b",
    r"\bdo you think\b",
    r"\badvi[sc]e (?:on|about|regarding)\b",
    r"\b(?:worried|afraid|concerned) (?:if|whether)\b",
)
"""A request, with or without a question mark."""
DEMAND: Final = _any(
    r"\bwhat (?:should|can|could|do|must|would|shall) (?:i|we|he|she)\b",
    r"\bshould (?:i|we|he|she|it)\b",
    r"\b(?:can|may|could|shall) (?:i|we|he|she)\b",
    r"\bis (?:it|this|that|there)\b",
    r"\b(?:cause|causing|caused|reason|why)\b",
    r"\btreat(?:ment|ed)?\b|\bcure\b|\bmedic(?:ine|ation)s?\b|\bdos(?:e|age)\b",
    r"\bsafe\b|\bside effects?\b|\brisks?\b|\bharm",
    r"\bhow (?:long|much|many|often|soon|to|can|do|should)\b",
    r"\btests?\b|\bscan\b|\bsurgery\b",
    r"\bnormal\b|\burgent\b|\bserious\b|\bchances?\b|\bsymptoms?\b|\bsign of\b|\bmean\b",
)
"""What makes a question a medical demand."""
LOGISTIC: Final = _any(
    r"\b(?:book|get|need|want|give|fix|make|schedule|arrange|have|take|"
    r"send)\b[^.?]{0,25}\bappointments?\b|\bappointment (?:with you|number|slot)",
    r"\bbook(?:ing)?\b[^.]{0,20}\b(?:slot|visit|me|an?)\b",
    r"\b(?:fees?|price|cost|charges|insurance|refund|coupon)\b",
    r"\b(?:phone|contact|whatsapp|mobile) (?:number|no|details)\b",
    r"\b(?:your|clinic) (?:address|number|email|timings?)\b",
    r"\bwhich (?:hospital|doctor|clinic)\b",
    r"\bwhere (?:can|do|could|should) (?:i|we) (?:get|buy|find|order|purchase|go)\b",
    r"\b(?:send|write|give|e-?mail|issue|renew|refill)\b[^.]{0,20}\b(?:prescriptions?|certificate|"
    r"sick note|letter)\b",
    r"\bprescribe (?:me|us|him|her|some|something|a|an|any)\b",
    r"\bplease prescribe\b",
    r"\b(?:video|phone) (?:call|consult)",
    r"\bcan i (?:call|meet|visit|contact|consult|message) you\b",
    r"\badmit (?:me|him|her)\b",
    r"\badmission\b",
    r"\b(?:reply|answer|respond|call)\b[^.]{0,12}\b(?:soon|asap|quickly|immediately|me back)\b",
)
"""Asks for a service, not for knowledge."""
NONCLINICAL: Final = _any(
    r"\b(?:fake|forge|forged|fraud|falsif)",
    r"\bwithout (?:being|any) (?:ill|sick|illness)\b",
    r"\bsick (?:certificate|note|leave)\b",
    r"\b(?:get|buy|obtain|order|score|sell)\b[^.?]{0,40}\bwithout (?:a |any )?prescription\b",
    r"\b(?:dealer|black market|street price|get high)\b",
    r"\b(?:pass|beat|cheat)\b[^.?]{0,20}\bdrug (?:test|screen)",
    r"\b(?:kill|poison|drug) (?:my|him|her|someone)\b",
    r"\b(?:controlled drug|ketamine|oxycodone|fentanyl|adderall)\b[^.?]{0,60}\b(?:record|log|"
    r"logbook|unnoticed|divert|for myself|sign(?:ing)? out)\b",
    r"\b(?:divert|steal)\w*\b",
    r"\b(?:usmle|mcat|step [123]\b|board exam|residency|fellowship|personal statement|gpa|salary|"
    r"match list|interview)\b",
    r"\b(?:exam question|correct answer is|answer key|multiple.choice|mcq)\b",
    r"\b(?:[a-e]\)|\([a-e]\)).{1,60}(?:[b-e]\)|\([b-e]\))",
    r"\b(?:apologi[sz]e|forgive|girlfriend|boyfriend|break ?up|divorce|marry|horoscope|lawyer|sue|"
    r"court)\b(?![^.?]*\b(?:pain|bleed|pregnan|std|hiv|infect|"
    r"test|period|pill))",
    r"\bmy (?:sister|brother|friend|boss|manager)s? (?:is|are|was) (?:right|wrong|unfair|mean)\b",
)
"""Illegal, social, about careers or examinations."""
RETRACT: Final = _any(
    r"\b(?:take|taking) (?:that|this|it) back\b",
    r"\b(?:sorry|correction|apologies)\b[^.]{0,15}\b(?:i meant|meant to (?:say|write)|it is|it's|"
    r"it was|i was wrong|not)\b",
    r"\bi (?:misspoke|mistyped|made a (?:mistake|typo)|was (?:wrong|mistaken))\b",
    r"^correction\b",
    r"\b(?:another|other) patient'?s? (?:result|value|report|chart)",
    r"\bwhat i (?:wrote|said) (?:before|earlier|above) (?:was|is) (?:wrong|not)",
    r"\bi wrote (?:that )?wrong",
    r"\bscratch that\b",
    r"\bi meant\b",
)
BARE: Final = re.compile(
    r"^(?:yes|no|yeah|yep|nope|nah|yup|none|never|not (?:really|yet|at all)|ok(?:ay)?|sure|of "
    r"course|correct|right|i (?:do|did|don't|have|haven't|am|am not)|"
    r"it (?:is|does|doesn't|isn't))(?:[,.!\s]+(?:sir|doctor|doc|it (?:is|does|doesn't|isn't)|i "
    r"(?:do|did|don't|have|haven't)))?[.! ]*$",
    re.IGNORECASE,
)
"""An answer that says nothing without its question."""
PERSON: Final = re.compile(
    r"\b(?:i|i'm|im|i've|ive|my|me|mine|myself|we|our|us|he|she|his|her|him|hers|they|their|them|"
    r"mother|father|mom|mum|dad|wife|husband|son|daughter|"
    r"baby|child|brother|sister|girlfriend|boyfriend|partner|uncle|aunt|grandmother|grandfather|"
    r"friend|patient|\d{1,3}[ -]?(?:y/?o|yrs?|years?|months?|weeks?)[ -]?old|"
    r"\d{1,3}\s?(?:f|m|yo|yom|yof)|(?:male|female|man|woman|boy|girl)|clinic patient)\b",
    re.IGNORECASE,
)
"""Speaks of somebody."""
MEASURE: Final = re.compile(
    r"\d\s?(?:%|mg|mcg|ug|µg|g|kg|kgs|lb|lbs|ml|l|cm|mm|mmhg|mmol|iu|units?|bpm|beats|degrees?|°|"
    r"c\b|f\b|years?|yrs?|months?|weeks?|wks?|days?|hours?|hrs?|"
    r"minutes?|mins?|times?|feet|ft|inch(?:es)?)|\b\d{2,3}\s?/\s?\d{2,3}\b|\b(?:one|two|three|four|"
    r"five|six|seven|eight|nine|ten|few|couple of|several|many|last|past)\s"
    r"(?:years?|months?|weeks?|days?|hours?|times?|nights?)\b|\b\d+ out of \d+",
    re.IGNORECASE,
)
OBJECTIVE: Final = re.compile(
    r"\b(?:mri|ct|x-?rays?|ultrasound|usg|scan|ecg|ekg|echo|eeg|endoscopy|colonoscopy|biopsy|blood "
    r"(?:test|work|count|pressure|sugar)|test(?:s|ed)?|report|"
    r"culture|h[ab]a?1c|h(?:ae|e)moglobin|platelets?|wbc|tsh|creatinine|egfr|cholesterol|ldl|hdl|"
    r"bp|pulse|temperature|spo2|saturation|positive|negative|"
    r"bmi|weigh(?:s|ed|t)?|kg|lbs|mmhg|mg/dl|mmol|heart rate|inr|ck|crp|esr|ferritin|bilirubin|"
    r"sgot|sgpt|alt|ast|potassium|sodium|troponin|exam(?:ination)?)\b",
    re.IGNORECASE,
)
HYPOTHETICAL: Final = re.compile(r"^(?:if|in case|suppose|assuming|should)\b", re.IGNORECASE)

BOILERPLATE: Final = _any(
    r"-->|--->|<link>|https?://|www\.",
    r"\bconsult an? [\w\s/()-]{3,60}? online\b",
    r"\bfor (?:further|more|any|other)\b[^.]{0,60}\b(?:consult|information|queries|"
    r"query|doubts?|clarifications?|questions?|contact|revert|write|follow)",
    r"\brevert (?:back )?(?:with|to|after|for)\b",
    r"\b(?:hope|trust)\b[^.]{0,20}\b(?:help|answer|clear|clarif|useful|solve|assist|satisf|you "
    r"(?:feel|get|find|are|will|have)|it )",
    r"\bi hope\b",
    r"\bhope i\b",
    r"\bthank(?:s| you|ing)\b",
    r"\b(?:gone|went|go) through (?:your|the)\b",
    r"\b(?:read|reviewed|understood|understand|noted|seen|received|analy[sz]ed) (?:and \w+ "
    r")?(?:through )?(?:your|the) "
    r"(?:query|queries|question|concern|concerns|problem|complaint|history|case|post|message|"
    r"description|details|situation|medical|all|relevant|email|mail)",
    r"\bunderstand your\b",
    r"\b(?:i can |i )?(?:do )?understand (?:how|that|what) (?:you|this|it)\b",
    r"\b(?:feel free|do not hesitate|don't hesitate|let me know|get back to|"
    r"write (?:back )?to|keep me (?:posted|informed)|reach out|be happy to|glad to|pleased to|"
    r"happy to (?:help|answer))",
    r"\b(?:take care|best (?:wishes|regards|of)|warm regards|regards|wish(?:ing)? you|wishing "
    r"(?:good|you|your|him|her)|get well|good luck|god bless|have a (?:good|nice|great|healthy)|"
    r"all the best|stay (?:safe|healthy))\b",
    r"\bwelcome (?:to|back)\b",
    r"\bwould you like to (?:video|chat|text|talk)",
    r"\bvideo or text chat\b",
    r"\b(?:rate|feedback|review) (?:me|us|my|our|the)\b|\b5 stars?\b",
    r"\b(?:not a substitute|educational purposes?|informational purposes?|disclaimer|cannot "
    r"replace|in no way)\b",
    r"\bdifficult to (?:precisely )?(?:confirm|comment|make|give)\b[^.]*\b(?:diagnosis|without)\b",
    r"\bbased on the (?:medical )?information (?:provided|given)\b",
    r"\b(?:subscribe|click|download|visit our|our (?:website|app|course|team|channel)|sign up|call us)\b",
    r"\bask (?:a|the) doctor\b",
    r"^(?:in brief|answer|reply|hello|hi|ok|okay|yes|no|sure|good|great|fine|exactly|correct|noted|"
    r"agree[d]?|i agree|i disagree|good catch|as above|"
    r"following)[.!: ]*$",
    r"\bi (?:am|'m) (?:dr|doctor)\b",
    r"\bmy name is\b",
    r"\b(?:happy|glad) (?:that|to)\b",
    r"\bsorry (?:to hear|for|that|about)\b",
    r"\b(?:i|we) (?:cannot|can't|could not|do not) (?:find|see|open|view|read|advise|comment|"
    r"prescribe|diagnose|say)\b[^.]*\b(?:message|attach|image|report|question|online|without|here)",
    r"\b(?:send|upload|attach|share|provide|post)\b[^.]{0,40}\b(?:me|reports?|images?|pictures?|"
    r"photos?|details|scan|x-?ray|us)\b",
    r"\bplease (?:answer|reply|tell|mention|elaborate|describe|clarify|specify|let|get back)\b",
    r"\bconsult your (?:specialist )?doctor\b[^.]*\bdiscuss with him\b|\btake (?:the "
    r")?(?:treatment|medicines?) with (?:his )?consent|\bafter their consent",
    r"\b(?:the |these |any one of the )?following(?: (?:medicines?|measures|investigations?|tests?|"
    r"things|steps|tips|details|points))?[.:]?$|\bthe below\b[^.]{0,20}$",
    r"\bi (?:have|need|want|would like) to (?:see|know|examine|look)\b|\blet (?:him|her) see\b|"
    r"\bbring (?:the |your )?(?:x-?rays?|reports?|films?)\b",
    r"\b(?:the )?front desk\b|\bbooking page\b|\bgive you the slot\b|\bfees\b",
)
RESTATE: Final = _any(
    r"\byou (?:have |had |also |just )?(?:mention|said|say|state|describ|report|wrote|write|told|"
    r"asked|complain|provid|express)",
    r"^(?:as|from what) (?:you|per your|i|mentioned|per the history)\b[^,]*$",
    r"^(?:so )?your (?:query|question|concern|problem) (?:is|was|about)\b",
    r"^i (?:understand|see|note|read|know|appreciate|feel)\b",
    r"^(?:it is|it's) (?:good|nice|great|understandable|sad|natural)\b",
    r"^(?:(?:at present|currently|now),? )?you are (?:taking|using|on|already|currently)\b",
    r"^(?:you are|you're) (?:a )?\d+",
    r"^(?:you have|you had|you've) (?:been|had|a history|undergone|taken)\b(?![^.]*\b(?:likely|"
    r"probably|may|should|must)\b)",
)
"""The history told back, which is no advice."""
REASSURE: Final = re.compile(
    r"^(?:so |please |but |also )*(?:(?:do not|don't|dont|no need to|nothing to|need not|you need "
    r"not|there is nothing to|stop|you should not|not to|never) (?:be )?"
    r"(?:worry|worried|panic|afraid|scared|stress|bother|fear)|(?:be|stay|keep|rest) (?:calm|"
    r"positive|assured|strong|happy|patient)|relax|let go of your anxiety|"
    r"you(?:'ll| will) be (?:fine|ok|okay|fit|alright|all right)|everything (?:is|will be) (?:fine|"
    r"ok|okay|normal)|(?:it|that)(?:'s| is| will be| should be) "
    r"(?:fine|ok|okay|good|great|normal|nothing serious|not serious|alright|all right))\b[^,;]{0,40}$",
    re.IGNORECASE,
)
PLAN: Final = _any(
    r"\b(?:should|must|needs? (?:to|an?|the|some|urgent|further)|have to|has to|ought to|required "
    r"to|advi[sc]e[sd]?|"
    r"suggest(?:ed)?|recommend(?:ed|s)?|better to|had better|consider|try|can (?:be |also )?"
    r"(?:take|use|apply|try|give|do|go|start|have|add|continue|get|stop|undergo|eat|drink|switch|"
    r"change|opt|wait|treated|managed|used|taken|given|increased|reduced|started))\b",
    r"(?:^|[,;]\s|\bthen\s)(?:(?:please|kindly|also|then|first|firstly|next|meanwhile|and|so|"
    r"instead|afterwards|for "
    r"now|in the meantime|at present|now|rather|initially|otherwise|always|just|simply|"
    r"only)\b[\s,]*)*"
    r"(?:take|use|apply|avoid|stop|start|continue|get|do|go|have|keep|eat|drink|try|give|increase|"
    r"decrease|reduce|maintain|wash|clean|rest|consult|see|visit|meet|contact|call|follow|"
    r"check|repeat|undergo|add|switch|change|limit|exercise|gargle|rinse|massage|put|wear|quit|"
    r"monitor|measure|hold|restart|raise|lose|sleep|elevate|refrain|abstain|cut|practi[cs]e|"
    r"perform|test|treat|perfuse|insert|remove|place|inhale|discontinue|withdraw|taper|titrate|"
    r"double|halve|discuss|ask|bring|report|send|mention|let|make|ensure|drain|seek|isolate|"
    r"return|walk|stretch|chew|swallow|leave|complete|finish|don't|do not|never|no (?:need|alcohol|"
    r"smoking))\b",
    r"\b(?:treatment|management|therapy|investigations?|tests?|medications?|prevent(?:ive|ion) "
    r"measures?|follow.?up)\b[^.:]{0,30}:",
    r"\b(?:treatment|option|choice|first.line|plan|next step|investigation|drug of choice|"
    r"therapy)s?\b[^.]{0,40}\b(?:is|are|would be|include|includes|being)\b",
    r"\b(?:not advisable|advisable|contraindicated|indicated|avoided|is needed|are needed|is "
    r"required|are required|is necessary|be (?:done|checked|taken|given|used|stopped|avoided|"
    r"started|repeated|treated|seen|removed|evaluated|examined|ruled out|reported|raised|increased|"
    r"reduced))\b",
    r"\bi would\b",
    r"\bwould (?:stop|start|hold|give|use|wait|advise|suggest|recommend)\b",
)
ASSESSMENT: Final = _any(
    r"\b(?:may|might|could|can|would|will|seems?|appears?|look(?:s)? like|likely|unlikely|"
    r"possib(?:le|ly|ility)|probab(?:le|ly)|suggest(?:s|ive|ing)?|indicat(?:e|es|ing|ive)|"
    r"consistent with|"
    r"due to|because of|caused? by|causes?|result of|secondary to|related to|associated|suffering "
    r"from|diagnos(?:is|ed|tic)|chance|chances|risk|common|rare|normal|abnormal|"
    r"sign of|known|effect|effects|means?|typical|usually|often|generally|is|are|was|has|have|"
    r"takes?|fits?|explains?|leads?|increases?|reduces?|raises?|lowers?|helps?|prevents?|improves?|"
    r"resolves?|settles?)\b",
)
JUDGED: Final = re.compile(
    r"\b(?:may|might|could|can) (?:be|have|cause|lead|also be)\b|\b(?:likely|possib\w+|probab\w+|"
    r"suggestive|suggests|due to|caused by|is an?|are usually|diagnosis|chances?)\b",
    re.IGNORECASE,
)
ORDER: Final = re.compile(
    r"\b(?:should|must|need to|have to|advi[sc]e[sd]?|suggest (?:you|to|that|taking|doing)|i "
    r"(?:would )?(?:suggest|recommend|advise)|recommend(?:ed)?|better to|try|you can|can (?:be "
    r")?(?:take|taken|use|used|apply|given))\b|"
    r"(?:^|[,;]\s|\bthen\s)(?:please |also |then )*(?:take|use|apply|avoid|stop|start|continue|get|"
    r"do|go|keep|eat|"
    r"drink|try|give|reduce|rest|consult|see|visit|check|repeat|do not|don't|never)\b",
    re.IGNORECASE,
)
BARE_CONDITION: Final = re.compile(r"^(?:if|when|unless|in case)\b[^,]*$", re.IGNORECASE)
MAIN_CLAUSE: Final = re.compile(
    r"\bthen\b|\b(?:you|he|she|it|they) (?:can|may|should|could|need|must|will|would|have to|has "
    r"to)\b|\b(?:take|go to|consult|see|visit|get|do|use|stop|start|is|are)\b.*\b(?:take|go|"
    r"consult|see|visit|get|do|use|stop|start|is|are)\b",
    re.IGNORECASE,
)
"""What a condition leads to, in text that has lost its commas."""
HEADING: Final = re.compile(r":\s*(?:\d{1,2}[.)])?\s*$")
LIST_HEADING: Final = re.compile(
    r"\b(?:investigations?|tests?|diagnosis|diagnoses|treatment|plan|measures?|causes?|"
    r"medications?|tips|steps|following|options|advice|suggestions?)\b[^.]{0,40}:\s*$",
    re.IGNORECASE,
)
UNFINISHED: Final = re.compile(
    r"(?:\b(?:a|an|the|of|to|and|or|with|in|on|for|by|at|from|is|are|was|be|been|should|must|can|"
    r"may|will|would|which|that|your|his|her|my|if|as|than|because|such|not|very|more|"
    r"should be|into|also|but|while|when|where|after|before)|[,\-–(]|\.{3,}|…)\s*$",
    re.IGNORECASE,
)
"""An end that is none: the text was cut off."""
FRAGMENT_START: Final = re.compile(
    r"^(?:which|that is|because|as well as|such as|than|whereas|who|whose|etc|they are|these are|"
    r"all these|this rarely|either of these|it is also|can be|by this)\b",
    re.IGNORECASE,
)
