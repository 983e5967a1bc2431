"""The minimal checklist that a question needs, and what in the narrative entails each item.

Derived from the kind of question (symptom, drug, result, treatment of a known condition, risk) and from the
dangers it names (chest pain, head injury, fever in a small child, pregnancy …): a general scaffold of
history taking, no clinical judgement.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from medlive.llm.rules import lexicon_en, lexicon_zh
from medlive.llm.rules.text import Language, bigrams

_DANGERS: Final = 2
"""Danger signs that join the checklist: the first two that the chief complaint names."""
_I: Final = re.IGNORECASE


class Item(NamedTuple):
    """A requirement in both languages, and the patterns that entail it."""

    en: str
    zh: str
    found_en: re.Pattern[str]
    found_zh: re.Pattern[str]


def _item(en: str, zh: str, found_en: str, found_zh: str) -> Item:
    return Item(en, zh, re.compile(found_en, _I), re.compile(found_zh))


_NUM: Final = (
    r"(?:\d{1,6}(?:\.\d{1,6})?|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|few|"
    r"couple of|several|many|some|half an?)"
)
_SPAN: Final = r"(?:years?|yrs?|months?|weeks?|wks?|days?|hours?|hrs?|minutes?|nights?)"

AGE: Final = _item(
    "The patient's age",
    "患者的年龄",
    r"\b\d{1,3}[\s-]*(?:years?|yrs?|y/?o|months?|weeks?|days?)[\s,-]*(?:old|of age)\b|"
    r"\bage[d]?[\s:=-]*(?:is\s|of\s)?\d|\b\d{1,3}\s?(?:f|m|yo|yom|yof|y)\b|\b\d{2}[- ]?(?:years?|"
    r"yrs?)[- ](?:male|female|man|woman)|"
    r"\bi(?:'m| am)\s(?:an?\s)?(?:\w+\s){0,2}\d{1,2}\b(?!\s?(?:weeks?|months?|kg|lbs?|cm|mg|days?|"
    r"feet|ft))|\b(?:he|she|who|baby|son|daughter) is (?:only |just |about )?\d{1,2}\b(?!\s?(?:kg|"
    r"lbs?|cm|feet))|\bin (?:my|his|her) (?:\w+ )?(?:twenties|thirties|forties|fifties|sixties|"
    r"seventies|[2-9]0'?s)\b|"
    r"\bi turned \d{2}\b|\bat the age of \d|\b(?:newborn|infant)\b|\b(?:one|two|three|four|five|"
    r"six|seven|eight|nine|ten)[ -](?:years?|months?|weeks?)[ -]old\b",
    r"\d{1,6}\s?(?:岁|周岁|个?月大)|[一二三四五六七八九十两]{1,6}(?:岁|周岁|个多?月大)|年龄\D{0,3}\d|"
    r"新生儿|\d{2}年生|(?:[男女]|宝宝|孩子)[，, ]?\d{1,2}(?:\D|$)",
)
SEX: Final = _item(
    "The patient's sex",
    "患者的性别",
    r"\b(?:male|female|man|woman|girl|guy|boy|lady|gentleman|\d{1,3}\s?(?:f|m)|pregnan\w+|periods?|"
    r"menstrua\w+|vagin\w+|penis|penile|testic\w+|prostate|uter\w+|ovar\w+|erecti\w+|ejaculat\w+|"
    r"sperm|semen|breastfeed\w*|menopause|hysterectomy|vasectomy|"
    r"he|she|his|her|him|son|daughter|wife|husband|mother|father|mom|mum|dad|grand(?:mother|father|"
    r"ma|pa|son|daughter)|boyfriend|girlfriend|sister|brother|aunt|uncle)\b",
    r"男|女|儿子|爸|妈|父亲|母亲|爷爷|奶奶|外婆|外公|姥|老公|老婆|妻子|丈夫|姐|妹|哥|弟|怀孕[^情]|"
    r"孕|月经|例假|白带|子宫|卵巢|阴道|睾丸|前列腺|阴茎|婆婆|公公|他|她",
)
TIME: Final = _item(
    "When it began or how long it has lasted",
    "何时开始或持续多久",
    rf"\b(?:for|since|past|last|over|about|almost|nearly|within|after|in|during|every|from|"
    rf"the)\b[^.]{{0,18}}\b{_NUM}?\s?{_SPAN}\b|\b{_NUM}[\s+-]*(?:to \w+ )?{_SPAN}\s?(?:ago|back|"
    rf"before|now|earlier|later|straight|of)|\bsince\b|\b(?:yesterday|today|tonight|this "
    rf"(?:morning|week|month|evening)|last (?:night|week|month|year)|"
    r"recently|a while|childhood|birth|ago|teen\w*|(?:on|in) (?:january|february|march|april|may|"
    r"june|july|august|september|october|november|december)|lately)\b|\bmonths? (?:now|old)\b|"
    r"\bchronic\b|\b\d{1,2}(?:st|nd|rd|th)\b|\b\d{1,6}\s?(?:days?|weeks?|months?)\b|"
    r"\bstarted\b[^.]*\b(?:when|after|at)\b",
    r"\d{1,6}\s?(?:多|几|来)?\s?(?:年|个?多?月|周|天|小时|日|个?星期)|"
    r"[一二三四五六七八九十两几半]{1,6}(?:多|来|几)?(?:年|个?多?月|周|天|小时|个?星期)|昨|前[天几两]|"
    r"今[天早晚]|上(?:周|个?月)|去年|前年|最近|近[日来期]|开始|以来|小时候|从小|患病多久|刚刚|长期|"
    r"一直|凌晨|早上|晚上|每年|\d月\d|这几天|经常",
)
CHARACTER: Final = _item(
    "What the complaint is like: place, quality or severity",
    "不适的部位、性质或程度",
    r"\b(?:left|right|both sides?|upper|lower|behind|under(?:neath)?|middle|center|around|near|"
    r"inside|front|back of|side|top of|between)\b|\b(?:sharp|dull|burning|throbbing|stabbing|"
    r"pressing|cramp\w*|aching|achy|shooting|itchy|tingling|"
    r"constant\w*|intermittent|severe(?:ly)?|mild(?:ly)?|moderate|terrible|intense|unbearable|"
    r"extreme(?:ly)?|slight(?:ly)?|heavy|heavily|watery|bloody|dry|productive|yellow|green|white|"
    r"clear|brown|black|red|pink|swollen|hard|soft|firm|painful|painless|tender|"
    r"small|large|big|size[d]?|round|raised|flat|spread\w*|high|low|weak|numb|blurr\w+|loose|thick|"
    r"thin|foul|smell\w*|tight\w*|pressure|pulsat\w+|sudden(?:ly)?|feels? like|looks? like|out of "
    r"(?:10|ten)|\d/10|cm|mm|fever of|temperature)\b",
    r"[左右]侧?|两侧|上[腹肢]|下[腹肢]|后[背脑]|前[额胸]|中间|周围|部位|隐痛|刺痛|胀痛|绞痛|酸痛|"
    r"钝痛|跳痛|灼|闷|麻木|剧烈|厉害|轻微|轻度|中度|重度|严重|有点|明显|偶尔|持续|阵发|一阵|间断|"
    r"干咳|白[痰色]|黄[痰色]|绿|红|黑|水样|稀|硬|软|大小|肿|针扎|发[紧胀酸沉]|低烧|高烧|"
    r"\d{1,6}(?:\.\d{1,6})?[度℃]|很[痛疼痒晕]|特别",
)
COURSE: Final = _item(
    "How it went on: how often, how it changed",
    "经过：频率和变化",
    r"\b(?:worse|worsen\w*|better|improv\w+|increas\w+|decreas\w+|com(?:e|es|ing) and go(?:es|"
    r"ing)?|comes? back|came back|return\w*|recur\w*|relaps\w*|again|times? (?:a|per|in a|an) "
    r"(?:day|week|month|hour)|once (?:a|in|every)|twice|daily|every (?:day|night|time|few|morning|"
    r"other|\d)|frequent\w*|often|sometimes|"
    r"occasional\w*|always|all the time|constant\w*|continu\w*|persist\w*|still|gone|went away|"
    r"go(?:es)? away|disappear\w*|spread\w*|progress\w*|gradual\w*|sudden\w*|(?:started|began) "
    r"(?:to|as|with|getting|having)|got|getting|became|becom\w+|no (?:improvement|change)|on and "
    r"off|off and on|stable|the same|subsid\w*|"
    r"heal\w*|stopped|settled)\b",
    r"加重|减轻|好转|变[得好差]|越来越|反复|每[天次晚周月年隔]|经常|偶尔|有时|总是|一直|持续|频繁|"
    r"[一二三四五六七八九十两几\d]{1,6}次|不见好|复发|消失|好了|逐渐|仍|依然|断断续续|见好|时好时坏|"
    r"一阵|突然|又开始|又[发烧疼痛咳]|好[多些点]",
)
MODIFIERS: Final = _item(
    "What brings it on, makes it worse or eases it",
    "诱因、加重或缓解的因素",
    r"\b(?:reliev\w+|relief|eases?|eased|when(?:ever)? (?:i|he|she|it|we|my|lying|sitting|standing|"
    r"walking|eating|sleeping)|while|after (?:eating|meals?|food|taking|i|having|a|an|the|my|he|"
    r"she|exercise|sex|walking|running|waking|stopping|surgery|using|drinking)|before (?:eating|"
    r"bed|my|meals?)|at night|in the (?:morning|evening|night)|"
    r"during|only when|triggers?|triggered|due to|because|caused by|lying|sitting|standing|bending|"
    r"climbing|walking|exercise|exertion|stress|cold (?:air|weather)|spicy|(?:did(?:n't| not)|"
    r"does(?:n't| not)) (?:help|work)|helps?|helped|worked|no (?:relief|effect|use)|with (?:food|"
    r"movement|meals))\b",
    r"缓解|饭[前后]|餐[前后]|晚上|夜[里间]|早[上晨]|午后|运动|活动|走路|爬楼|劳累|受凉|着凉|淋雨|"
    r"熬夜|生气|吃[了完]|之后|以后|[过了]后|没有?(?:效果|用|改善)|有效|不管用|平躺|躺|坐|站|弯腰|"
    r"按|压|说话|深呼吸|空腹|天[冷热]|睡|因为",
)
ASSOCIATED: Final = _item(
    "Other symptoms, present or expressly absent",
    "伴随症状的有无",
    r"$^",
    r"$^",
)
HISTORY: Final = _item(
    "Past and family history, allergies, pregnancy or habits",
    "既往史、家族史、过敏、妊娠或生活习惯",
    r"\b(?:diabet\w+|hypertens\w+|high blood pressure|asthma\w*|thyroid\w*|allerg\w+|cancer|"
    r"surger\w+|operat(?:ion|ed)|history|diagnosed|family|mother|father|brother|sister|grand\w+|"
    r"smok\w+|cigarettes?|alcohol\w*|drink(?:s|ing|er)?|vape|no (?:other )?(?:medical|known|"
    r"chronic|past|health|previous|"
    r"significant|major|illness)\w*|(?:otherwise |generally |perfectly )?(?:healthy|fit and well)|"
    r"pregnan\w+|miscarr\w+|hysterectomy|chronic|disease|disorder|syndrome|epilepsy|stroke|heart "
    r"attack|depress\w+|anxiety|bipolar|married|never (?:had|smoked)|suffer(?:ed|ing)? from|"
    r"overweight|obese|vaccinat\w+|period[s]?|"
    r"menopause|hepatitis|hiv|tb|tuberculosis|arthritis|pcos|gerd|ibs|kidney|weigh(?:t|s)?|bmi|"
    r"sexually|unprotected|intercourse|condom|exposed|contact with|travel\w*|injur\w+|accident|had "
    r"(?:a|an|my))\b",
    r"过敏史|既往|病史|高血压|糖尿病|冠心病|心脏病|哮喘|手术|做过|得过|患过|家族|遗传|母亲|父亲|"
    r"妈妈|爸爸|吸烟|抽烟|不?[喝饮]酒|没有?(?:其他|别的|基础|慢性)|身体(?:一直)?(?:很|健康|挺|"
    r"还)?好|健康|怀孕|孕|月经|流产|肝炎|乙肝|结核|过敏|慢性|接触|去过|回来|隔离|疫区|武汉|"
    r"旅[行游]|肥胖|体重|疫苗|确诊|"
    r"做了|术后|住院",
)
TREATED: Final = _item(
    "What has been taken or tried, or that nothing was",
    "已用的药物或治疗，或未用药",
    r"$^",
    r"$^",
)
TESTS: Final = _item(
    "The result itself: test and value or finding",
    "检查结果：项目和数值或所见",
    r"\b(?:mri|ct|x-?rays?|ultrasound|usg|scan|ecg|ekg|echo\w*|eeg|\w+scopy|biops\w+|blood "
    r"(?:tests?|work|count|pressure|sugar)|tests?|tested|reports?|culture|h[ab]a?1c|h(?:ae|"
    r"e)moglobin|platelets?|wbc|tsh|t[34]|creatinine|e?gfr|cholesterol|ldl|hdl|bp|inr|ck|crp|esr|"
    r"ferritin|bilirubin|sgot|sgpt|alt|ast|"
    r"hb|hiv|elisa|titer|antibod\w+|hcg|fsh|lh|amh|psa|vitamin|level|count|sugar|glucose|uric acid|"
    r"potassium)\b[^.]*(?:\d|\b(?:normal|abnormal|negative|positive|show(?:s|ed|ing)?|reveal\w*|"
    r"clear|found|high|low|elevated|reactive|detected|came)\b)|\d{1,6}(?:\.\d{1,6})?\s?(?:mg/dl|mmol|ng/ml|"
    r"g/dl|iu|u/l|mmhg|%)|\b\d{2,3}/\d{2,3}\b",
    r"(?:CT|ＣＴ|MRI|B超|彩超|超声|核磁|胸片|胃镜|肠镜|化验|检查|血常规|尿常规|体温|血压|血糖|核酸|"
    r"抗体|白细胞|肌酐|尿酸|转氨酶|血红蛋白|糖化|血小板|甲功|DNA|dna|结节|指标|肝功|肾功|淋巴|"
    r"中性粒|C反应|CRP|eGFR|心电图|甘油三酯|胆固醇)[^。]{0,40}(?:\d|正常|异常|偏[高低]|阳性|阴性|"
    r"显示|提示|升高|降低|没有?|高|低|发现|可见|是)|\d{1,6}(?:\.\d{1,6})?\s?(?:mmol|mg|U/L|g/L|%)|阳性|阴性",
)
_DRUG_CONTEXT: Final = re.compile(
    r"\b(?:taking|took|take|takes|taken|on|using|used|use|prescribed|started|stopped|given|gave|"
    r"tried|medicat\w+|medicines?|tablets?|pills?|mg|antibiotics?|course of|injections?|inject\w*|"
    r"ointment|cream|drops|treated|treatment|therapy|surgery|surgical|operat\w+|steroids?|"
    r"supplements?|vaccine)\b",
    _I,
)
_TREATED_ZH: Final = re.compile(
    r"吃[了着过药的]|服[了用药]|用[了过药着]|口服|药|打[了针点]|输液|住院|手术|治疗|停[了药]|胶囊|"
    r"颗粒|片|冲剂|注射|激素|中药|针|放疗|化疗|换药|涂|抹|喷"
)
DOSE: Final = _item(
    "How much of the drug, how often or for how long",
    "药物剂量、次数或疗程",
    rf"\d{{1,6}}(?:\.\d{{1,6}})?\s?(?:mg|mcg|ug|µg|g|ml|iu|units?|%|tablets?|pills?|drops?|puffs?|caps\w*|"
    rf"days?|weeks?|months?|years?|times?)\b|\b(?:once|twice|daily|nightly|every (?:day|night|\d{{1,6}} "
    rf"hours)|{_NUM} (?:times?|tablets?|pills?|days?|weeks?|months?|years?|course))\b|\b(?:bid|tid|"
    rf"qd|od|prn)\b",
    r"\d{1,6}(?:\.\d{1,6})?\s?(?:毫克|克|mg|ml|毫升|片|粒|包|袋|支|单位|g|万|IU|iu|天|周|个?月|年|次)|"
    r"[一二两三四五六七八九十半几]+(?:片|粒|包|袋|支|次|天|周|个?月|年|盒|瓶|颗)|每[天日次晚]|"
    r"一[天日][一二两三\d]",
)
NAMED_DRUG: Final = _item("Which drug it is about", "所问的是哪种药", r"$^", r"$^")
WHY_DRUG: Final = _item(
    "What the drug is or was taken for",
    "用药的原因或所治的病",
    r"$^",
    r"$^",
)
CONDITION: Final = _item("The condition or situation in question", "所问的疾病或情形", r"$^", r"$^")
AIM: Final = _item(
    "Severity or stage of the condition, by findings or effect on life",
    "病情的程度或分期，对生活的影响",
    r"\b(?:grade|stage|severe|mild|moderate|advanced|early|size|cm|mm|large|small|multiple|single|"
    r"\d{1,6}\s?%|unable to|cannot|can not|can't|could not|difficult\w*|trouble|affect\w*|work|school|"
    r"sleep|walk|daily|worse|worsen\w*|spread\w*|bleeding|painful|pain|weak\w*|swollen|swelling|"
    r"lost|loss|control\w*|normal|stable|positive|negative)\b",
    r"[ⅠⅡⅢⅣ]|[一二三四1-4I]{1,6}期|级|轻度|中度|重度|严重|厉害|早期|晚期|大小|厘米|毫米|mm|cm|"
    r"\d{1,6}(?:\.\d{1,6})?|影响|不能|无法|睡不|吃不|走|疼|痛|加重|扩散|多发|稳定|控制|正常|阳性|阴性|反复",
)
EXPOSURE: Final = _item(
    "What the contact or exposure was",
    "接触或暴露的经过",
    r"\b(?:exposed|exposure|contact|touch\w*|travel\w*|visited|flight|met|sex|intercourse|condom|"
    r"unprotected|oral|kiss\w*|bitten|bite|bit|scratch\w*|needle|blood|shared?|lives? with|living "
    r"with|roommate|family member|positive|confirmed|public|outbreak|quarantin\w+|crowd\w*|"
    r"work(?:s|ed|ing)?|mask)\b",
    r"接触|去过|来过|回来|坐[了过车]|聚餐|同事|邻居|确诊|疑似|疫区|武汉|湖北|返|隔离|高危|性行为|"
    r"套|咬|抓|扎|共[用餐]|口罩|外出|超市|医院|公交|地铁|飞机|火车|快递",
)


class Danger(NamedTuple):
    """A sign that must not stay without its particulars."""

    trigger_en: re.Pattern[str]
    trigger_zh: re.Pattern[str]
    item: Item


def _danger(trigger_en: str, trigger_zh: str, en: str, zh: str, found_en: str, found_zh: str) -> Danger:
    return Danger(re.compile(trigger_en, _I), re.compile(trigger_zh), _item(en, zh, found_en, found_zh))


DANGERS: Final = (
    _danger(
        r"\bchest (?:pain|tight\w*|pressure|discomfort)|pain in (?:my |the )?chest|palpitation",
        r"胸[口部]?[痛疼闷]|心[慌悸绞]",
        "Chest complaint: breathlessness, exertion, radiation, sweating or heart findings",
        "胸部不适：气短、与活动的关系、放射、出汗或心脏检查",
        r"\b(?:breath\w*|exert\w*|exercise|walking|climb\w*|stairs|arm|jaw|sweat\w*|faint\w*|"
        r"dizz\w*|ecg|ekg|echo\w*|troponin|angiogra\w*|tmt|stress test|holter|heart rate|pulse|"
        r"blood pressure|bp|cough\w*|swallow\w*|eating|meals?|acid\w*|press(?:ed|ing)? on|x-?ray)\b",
        r"气[短促喘]|呼吸|活动|走路|爬楼|运动|放射|后背|左[肩臂]|出汗|大汗|晕|心电图|彩超|心率|"
        r"血压|咳|反酸|吃饭|CT|胸片|发[烧热]|体温",
    ),
    _danger(
        r"\bhead ?aches?\b|\bmigraines?\b|\bhead (?:hurts|pain)",
        r"头[痛疼]",
        "Headache: onset, fever, vomiting, sight, weakness or a scan",
        "头痛：起病、发热、呕吐、视物、肢体无力或影像",
        r"\b(?:sudden\w*|fever\w*|temperature|vomit\w*|nause\w*|vision|sight|blur\w*|eyes?|light|"
        r"sound|weak\w*|numb\w*|neck|mri|ct|scan|dizz\w*|aura|throbbing|injur\w*|blood pressure|bp|"
        r"woke|wake|cough\w*)\b",
        r"突然|发[烧热]|体温|吐|恶心|视|眼|无力|麻|颈|脖|CT|核磁|MRI|晕|血压|外伤|睡|咳",
    ),
    _danger(
        r"\bhead injur|\b(?:hit|bang\w*|bump\w*|struck|fell on) (?:\w+ ){0,2}head|concussion",
        r"(?:头|脑)(?:部)?(?:外伤|受伤|撞|磕|摔)|撞[了到]?头|磕[了到]?头",
        "Head injury: consciousness, vomiting, behaviour or a scan",
        "头部外伤：意识、呕吐、行为或影像",
        r"\b(?:conscious\w*|passed out|black\w* out|vomit\w*|confus\w*|memory|drows\w*|sleepy|"
        r"alert|normal\w*|ct|mri|scan|headache|dizz\w*|vision|seizure)\b",
        r"意识|昏|清醒|吐|嗜睡|精神|哭|玩|CT|核磁|头[晕痛]|记",
    ),
    _danger(
        r"\b(?:fever|temperature)\b",
        r"发[烧热]|高[烧热]|低[烧热]|体温",
        "Fever: how high or how long, and what goes with it",
        "发热：度数或天数及伴随表现",
        r"\d{2,3}(?:\.\d{1,6})?\s?(?:°|degrees?|f\b|c\b)|\b(?:no|not|without|any|low[- ]grade|high|"
        r"mild) (?:a |have (?:a |any )?)?(?:fever|temperature)|\bno\b[^.]{0,40}\bfever|"
        r"\bfever\b[^.]{0,40}\b(?:days?|weeks?|since|night|evening|chills|cough|rash|throat|"
        r"headache|\d)",
        r"\d{2}(?:\.\d{1,6})?\s?(?:度|℃|左右)?|(?:没有?|无|不)(?:发)?[烧热]|[一二三四五六七几\d]{1,6}天|正常|不烧",
    ),
    _danger(
        r"\b(?:stomach|abdom\w*|belly|pelvic|tummy) (?:\w+ )?(?:pain|ache|cramps?|hurts?)|pain in "
        r"(?:my |the )?(?:\w+ )?(?:abdomen|stomach|belly|pelvis)",
        r"(?:肚子|腹部?|胃)[痛疼]|腹痛",
        "Belly pain: vomiting, stool, fever, bleeding, urine or periods",
        "腹痛：呕吐、大便、发热、出血、小便或月经",
        r"\b(?:vomit\w*|nause\w*|stools?|bowel\w*|diarrh\w*|constipat\w*|fever\w*|bleed\w*|"
        r"blood\w*|urin\w*|periods?|pregnan\w*|eat\w*|meals?|appetite|gas\w*|bloat\w*|weight|"
        r"ultrasound|scan|endoscopy)\b",
        r"吐|恶心|大便|拉|便|发[烧热]|血|小便|尿|月经|吃|饭|胀|胃镜|B超|食欲|体温",
    ),
    _danger(
        r"\bback pain\b|\bpain in (?:my |the )?(?:\w+ )?back\b",
        r"(?:腰|背)[痛疼酸]",
        "Back pain: legs, weakness, numbness, bladder, injury or a scan",
        "腰背痛：腿部、无力麻木、大小便、外伤或影像",
        r"\b(?:legs?|numb\w*|weak\w*|tingl\w*|bladder|urin\w*|injur\w*|lift\w*|fell|accident|mri|"
        r"x-?ray|walk\w*|radiat\w*|sciatica|disc|sit\w*|bend\w*|stand\w*)\b",
        r"腿|麻|无力|大小便|尿|外伤|摔|CT|核磁|片|走|弯|坐|椎",
    ),
    _danger(
        r"\b(?:bleed\w*|blood in|spotting|vomiting blood|coughing blood)\b",
        r"出血|流血|便血|咳血|吐血|血丝",
        "Bleeding: how much, how often or with what",
        "出血：量、次数或伴随情况",
        r"\b(?:heav\w*|light|little|amount|clots?|bright|dark|drops?|spots?|pads?|days?|weeks?|"
        r"times?|after|pain\w*|since|brown|red|stopp?\w*)\b",
        r"多|少|量|血块|鲜|暗|黑|天|次|滴|丝|纸|后|疼|痛",
    ),
    _danger(
        r"\bpregnan(?:t|cy)\b|\btrimester\b",
        r"怀孕|孕[妇期]|妊娠|孕\d",
        "Pregnancy: how far, or when the last period or the contact was",
        "妊娠：孕周，或末次月经、同房的时间",
        r"\b\d{1,2}(?:st|nd|rd|th)? ?(?:weeks?|wks?|months?)|\b(?:trimester|last period|lmp|due "
        r"date|months? pregnant|missed (?:my )?period|periods?|not pregnant|weeks?|test)\b",
        r"\d{1,6}\s?(?:周|个?月|天)|孕[早中晚]期|末次|月经|未怀孕|没有?怀孕|"
        r"[一二三四五六七八九十]{1,6}(?:周|个月)|同房",
    ),
    _danger(
        r"\b(?:my|our|a|the) (?:\w+ ){0,3}(?:baby|infant|toddler|newborn|child|kid|son|daughter|"
        r"boy|girl)\b",
        r"宝宝|孩子|小孩|婴儿|患儿|新生儿|儿子|女儿",
        "The child's age",
        "孩子的年龄",
        r"\b\d{1,6}(?:\.\d{1,6})?[\s-]*(?:years?|yrs?|y/?o|months?|weeks?|days?|mo)\b|\b(?:one|two|three|"
        r"four|five|six|seven|eight|nine|ten|eleven|twelve)[\s-]*(?:years?|months?|weeks?|"
        r"days?)[\s-]*old|\b(?:newborn|teenage\w*|\d{1,6}th grade)\b|\baged? \d",
        r"\d{1,6}\s?(?:周?岁|个?月|天|周)|[一二三四五六七八九十两半]{1,6}(?:周?岁|个?半?月|天)|新生儿|年级",
    ),
    _danger(
        r"\bsuicid\w*|\bkill (?:myself|himself|herself)|\bself[- ]harm",
        r"自杀|轻生|不想活|自残",
        "Danger to self: plan, help or treatment",
        "自伤风险：计划、陪伴或治疗",
        r"\b(?:plan\w*|attempt\w*|therap\w*|psychiatr\w*|medicat\w*|hospital\w*|family|help)\b",
        r"计划|尝试|医院|治疗|药|家人|咨询",
    ),
)

_SYMPTOM_EN: Final = re.compile(
    r"\b(?:pain\w*|ache\w*|aching|hurt\w*|sore\w*|tender\w*|burn\w*|itch\w*|rash\w*|hives|swell\w*|"
    r"swollen|lump\w*|bump\w*|fever\w*|chills?|cough\w*|sneez\w*|phlegm|sputum|mucus|wheez\w*|"
    r"breath\w*|congest\w*|runny|throat|headaches?|"
    r"migraines?|dizz\w*|faint\w*|vertigo|nause\w*|vomit\w*|diarrh\w*|constipat\w*|bloat\w*|gas|"
    r"heartburn|reflux|appetite|weight (?:loss|gain)|(?:lost|gained) \w* ?weight|fatigue\w*|"
    r"tired\w*|weak\w*|numb\w*|tingl\w*|twitch\w*|cramp\w*|spasm\w*|stiff\w*|"
    r"bleed\w*|blood|discharge|urinat\w*|urin\w*|pee|stools?|bowel|sweat\w*|palpitat\w*|anxi\w*|"
    r"panic|depress\w*|insomnia|sleep\w*|vision|blur\w*|hearing|ringing|seizure\w*|tremor\w*|"
    r"shak\w*|blister\w*|pimple\w*|acne|spots?|ulcer\w*|"
    r"periods?|libido|erect\w*|ejaculat\w*|hair (?:loss|fall)|dry\w*|red(?:ness)?|irritat\w*|"
    r"confus\w*|memory|mood|smell|taste|hoarse\w*|limp\w*|bruis\w*|jaundice|yellow)\b",
    _I,
)
_SYMPTOM_ZH: Final = re.compile(
    r"[头胸腹腰背腿关节喉咙嗓肚胃肌全][^，。、]{0,3}[痛疼酸]|[疼痛痒]|咳嗽|干咳|咳|痰|鼻塞|流涕|"
    r"流鼻涕|喷嚏|发[烧热]|低[烧热]|高[烧热]|体温|头[晕昏]|乏力|无力|没力气|疲|恶心|呕吐|吐|腹泻|"
    r"拉肚子|便秘|大便|小便|尿|血|胸闷|气[短喘促]|呼吸|喘|心慌|"
    r"心悸|出汗|盗汗|失眠|睡|食欲|胃口|没有?味觉|嗅觉|消瘦|体重|肿|麻|抽[搐筋]|疹|斑|水疱|疱|溃疡|"
    r"红|白带|月经|腹胀|胀|反酸|嗳气|烧心|口[干苦]|视|耳鸣|嗓子|喉|咽|焦虑|抑郁|紧张|发[冷抖黄]|"
    r"寒战|畏寒|黄[疸]|水肿|结节|肿块|包块"
)
_NEGATIVE_EN: Final = re.compile(
    r"\b(?:no|not|never|without|denies|none|don't|doesn't|haven't|hasn't|didn't|neither|nor)\b", _I
)
_NEGATIVE_ZH: Final = re.compile(r"没有?|无|不|未")

_ASK_DRUG_EN: Final = re.compile(
    r"\b(?:tak(?:e|ing)|use|using|stop(?:ping)?|switch\w*|dos(?:e|age)|side effects?|interact\w*|"
    r"safe|medicines?|medications?|tablets?|pills?|drug|mg|withdraw\w*|taper\w*|continue|wean\w*|"
    r"overdose|combine\w*|contraindicat\w*)\b",
    _I,
)
_ASK_RESULT_EN: Final = re.compile(
    r"\b(?:results?|reports?|levels?|values?|test(?:s|ed)?|scan|mri|ct|ultrasound|x-?ray|biopsy|"
    r"counts?|reading|ecg|ekg|echo|interpret\w*|positive|negative|hba1c|tsh|conclusive)\b",
    _I,
)
_ASK_TREAT_EN: Final = re.compile(
    r"\b(?:treat\w*|cure[ds]?|therap\w*|remed\w*|medicines?|medications?|surgery|operat\w*|"
    r"procedure|manage\w*|control|get rid|reduce|prevent\w*|help|what (?:should|can|do|could) (?:i|"
    r"we|he|she)|relie\w*|heal\w*|fix\w*|recover\w*|suggest|advi[sc]e|guide|how to)\b",
    _I,
)
_ASK_RISK_EN: Final = re.compile(
    r"\b(?:chances?|risks?|possib\w+|can i (?:get|catch|be)|could i (?:have|be|get)|infect\w*|"
    r"transmi\w*|contagious|exposed|exposure|hiv|stds?|pregnant|covid\w*|corona\w*|hereditary|"
    r"genetic|spread)\b",
    _I,
)
_ASK_DRUG_ZH: Final = re.compile(
    r"能[^，。]{0,4}[吃服用喝打]|可以[^，。]{0,6}[吃服用喝打]|停药|换药|加药|减药|药量|剂量|副作用|"
    r"吃多久|怎么[吃用服减]|用药|要不要(?:吃|停|换|加)|服用|打胰岛素|加量"
)
_ASK_RESULT_ZH: Final = re.compile(
    r"结果|报告|指标|化验|检查|数值|正常吗|偏[高低]|阳性|阴性|CT|B超|核磁|结节|血常规|抗体|核酸|肌酐|转氨酶"
)
_ASK_TREAT_ZH: Final = re.compile(
    r"治|怎么办|吃什么药|用什么药|怎么处理|缓解|怎么调|手术|方法|办法|护理|注意|饮食|控制|恢复|如何"
)
_ASK_RISK_ZH: Final = re.compile(
    r"传染|感染|会不会(?:得|被|是)|风险|可能|几率|遗传|怀孕吗|中招|接触|隔离|危险|新冠|肺炎"
)


def category_of(text: str, language: Language) -> str:
    """Ely's top category of a clinical question, by what it asks for."""
    if language == "zh":
        if _ASK_DRUG_ZH.search(text) or re.search(r"治|吃什么药|用什么药|手术", text):
            return "treatment"
        if re.search(r"原因|是不是|什么病|怎么回事|症状|诊断|检查|正常吗|结果", text):
            return "diagnosis"
        if re.search(r"几率|概率|风险|预后|遗传|传染|严重吗|引起|能活|复发|会不会", text):
            return "epidemiology"
        return "management"
    if re.search(
        r"\b(?:treat\w*|cure|medicines?|medications?|dos(?:e|age)|take|tablets?|surgery|therap\w*|"
        r"drug|safe|stop|cream|side effects?|antibiotics?|vaccin\w*)\b",
        text,
        _I,
    ):
        return "treatment"
    if re.search(
        r"\b(?:caus\w+|why|what is (?:it|this|wrong)|diagnos\w*|is (?:it|this)|could (?:it|this|i)|"
        r"symptoms?|sign of|tests?|results?|reports?|mean|normal)\b",
        text,
        _I,
    ):
        return "diagnosis"
    if re.search(
        r"\b(?:chances?|risks?|prognosis|how long|hereditary|likel\w+|survive|surviv\w+|recover\w*|"
        r"prevent\w*|contagious)\b",
        text,
        _I,
    ):
        return "epidemiology"
    return "management"


Narrative = Sequence[tuple[str, str]]


def _template(statement: str) -> bool:
    """A form's empty field ("既往病史：无"): true, but no story."""
    return (
        re.match(
            r"^[【\[]?(?:过敏史|既往病史|怀孕情况|既往史|慢性疾病|手术)[】\]]?\s*[：:]\s*(?:无|"
            r"没有|未怀孕|否认|不详|暂无)?\s*$",
            statement,
        )
        is not None
    )


def _ids(narrative: Narrative, pattern: re.Pattern[str]) -> tuple[str, ...]:
    return tuple(i for i, s in narrative if pattern.search(s))[:20]


def _symptoms(statement: str, language: Language) -> set[str]:
    found = (_SYMPTOM_EN if language == "en" else _SYMPTOM_ZH).findall(statement)
    return {f.lower()[:4] if language == "en" else f for f in found}


def _associated(narrative: Narrative, language: Language) -> tuple[str, ...]:
    """The elements that make at least four different symptoms known, or three of which one is denied."""
    seen: set[str] = set()
    ids: list[str] = []
    denied = False
    for i, s in narrative:
        found = _symptoms(s, language)
        if found:
            ids.append(i)
            seen |= found
            denied = denied or (_NEGATIVE_EN if language == "en" else _NEGATIVE_ZH).search(s) is not None
    return tuple(ids[:20]) if len(seen) >= 4 or (denied and len(seen) >= 3) else ()


def _drug_names(text: str, language: Language) -> set[str]:
    if language == "zh":
        return set(lexicon_zh.DRUG.findall(text))
    return {w for w in re.findall(r"[a-z]{3,}", text.lower()) if lexicon_en.is_drug(w)}


def _treated(narrative: Narrative, language: Language) -> tuple[str, ...]:
    found = []
    for i, s in narrative:
        if language == "zh":
            if _TREATED_ZH.search(s) and not _template(s):
                found.append(i)
        elif _drug_names(s, "en") or _DRUG_CONTEXT.search(s):
            found.append(i)
    return tuple(
        dict.fromkeys([*found, *_ids(narrative, TESTS.found_en if language == "en" else TESTS.found_zh)])
    )[:20]


def _about(narrative: Narrative, query: str, language: Language) -> tuple[str, ...]:
    """The elements that speak of what the question speaks of, with something clinical in them."""
    if language == "zh":
        asked = bigrams(query, lexicon_zh.STOP)
        return tuple(
            i
            for i, s in narrative
            if lexicon_zh.CLINICAL.search(s) and (asked & bigrams(s, lexicon_zh.STOP) or s in query)
        )[:20]
    asked = set(lexicon_en.specific_words(query))
    return tuple(i for i, s in narrative if asked & set(lexicon_en.specific_words(s)))[:20]


def _complaint(narrative: Narrative, language: Language) -> tuple[str, ...]:
    return tuple(
        i
        for i, s in narrative
        if (
            lexicon_en.specific_words(s)
            if language == "en"
            else lexicon_zh.CLINICAL.search(s) and not _template(s)
        )
    )[:20]


def checklist(language: Language, query: str, narrative: Narrative) -> list[tuple[str, tuple[str, ...]]]:
    """The items that the question needs, each with the ids of the elements that entail it."""
    told = [(i, s) for i, s in narrative if not (language == "zh" and _template(s))]
    chinese = language == "zh"

    def mark(
        item: Item, ids: tuple[str, ...] | None = None, within: Narrative = told
    ) -> tuple[str, tuple[str, ...]]:
        pattern = item.found_zh if chinese else item.found_en
        return (item.zh if chinese else item.en, _ids(within, pattern) if ids is None else ids)

    about = _about(told, query, language)
    asks_drug = (_ASK_DRUG_ZH if chinese else _ASK_DRUG_EN).search(query) is not None and bool(
        _drug_names(query, language)
    )
    asks_result = (_ASK_RESULT_ZH if chinese else _ASK_RESULT_EN).search(query) is not None
    asks_risk = (_ASK_RISK_ZH if chinese else _ASK_RISK_EN).search(query) is not None
    condition = about or _complaint(told, language)
    associated = mark(ASSOCIATED, _associated(told, language))
    treated = mark(TREATED, _treated(told, language))
    items = [mark(AGE), mark(SEX), mark(CONDITION, condition), mark(TIME)]
    everything = " ".join(s for _, s in told)[:20_000]
    if asks_drug:
        names = _drug_names(query, language)
        naming = tuple(i for i, s in told if names & _drug_names(s, language))[:20]
        items += [
            mark(NAMED_DRUG, naming),
            mark(WHY_DRUG, _reasons(told, language)),
            mark(DOSE),
            mark(HISTORY),
            associated,
            mark(COURSE),
        ]
    elif asks_result and (TESTS.found_zh if chinese else TESTS.found_en).search(everything):
        items += [mark(TESTS), associated, mark(COURSE), mark(HISTORY), treated, mark(AIM)]
    elif asks_risk and (EXPOSURE.found_zh if chinese else EXPOSURE.found_en).search(everything):
        items += [mark(EXPOSURE), mark(CHARACTER), associated, mark(COURSE), mark(HISTORY), treated, mark(TESTS)]
    else:
        items += [
            mark(CHARACTER),
            mark(COURSE),
            mark(MODIFIERS),
            associated,
            mark(HISTORY),
            treated,
            mark(TESTS),
        ]
    chief = query + " " + " ".join(s for _, s in told[:3])
    dangers = [mark(d.item) for d in DANGERS if (d.trigger_zh if chinese else d.trigger_en).search(chief[:6000])]
    return items + dangers[:_DANGERS]


def _reasons(narrative: Narrative, language: Language) -> tuple[str, ...]:
    """The elements that name a symptom or a condition: what a drug may be for."""
    if language == "zh":
        return tuple(i for i, s in narrative if lexicon_zh.CLINICAL.search(lexicon_zh.DRUG.sub("", s)))[:20]
    return tuple(i for i, s in narrative if any(not lexicon_en.is_drug(w) for w in lexicon_en.specific_words(s)))[
        :20
    ]
