"""For and against, and for whom: what a sentence orders or forbids, about which objects, in which patients."""

import re
from typing import Final

from medlive.llm.rules import lexicon_en, lexicon_zh
from medlive.llm.rules.text import plain

AGAINST: Final = re.compile(
    r"\b(?:(?:should|must|can|could|may|do|does|did|shall|will|would|ought) ?(?:not|never)(?: be| "
    r"ever| usually| generally)?|don't|doesn't|shouldn't|can't|mustn't|won't|cannot|never|"
    r"avoid(?:ed|ing|s)?|"
    r"contraindicat\w+|not (?:be )?(?:recommended|advis\w+|safe|used|use|given|indicated|effective|"
    r"work|help|suitable|appropriate|prescribed|taken)|unsafe|harmful|dangerous|"
    r"stop(?:ped)? (?:taking|using)|refrain|discontinu\w+|must be stopped|should be stopped|be "
    r"(?:stopped|avoided)|no (?:role|benefit|evidence)|ineffective|against (?:the )?us(?:e|ing))\b"
    r"|不(?:能|可|宜|应|要|得|建议|推荐|适合|可以|会|起)|禁(?:用|忌|止|服)|忌|避免|慎用|勿|停用|"
    r"停止|无效|没有(?:作用|效果|用)|不能(?:治|缩短)|严禁|切忌|切勿|有害|危险"
)
"""Orders against, or denies an effect."""
FOR: Final = re.compile(
    r"\b(?:take|takes|taking|use|uses|using|give|giving|start|continue|increase|double|raise|"
    r"recommend(?:ed|s)?|advis(?:e|ed|able)|suggest(?:ed)?|should|can|may|must|safe(?:ly)?|"
    r"effective|cure[sd]?|"
    r"treat(?:s|ed)?|prescribed?|tolerate|fine|helps?|prevents?|works?|add|try|apply|be (?:used|"
    r"taken|given|started|continued|increased|doubled))\b"
    r"|可以|可用|建议|推荐|首选|应该?|使用|服用|口服|继续|加(?:倍|量|到|用)|给(?:予)?|安全|有效|"
    r"能(?:治|用|吃|喝|够)|治愈|没关系|吃|用|喝|打"
)
"""Orders for, allows, or claims an effect."""
EFFICACY: Final = re.compile(
    r"\b(?:do|does|did|will|would|can)(?: not|n't) (?:work|help|cure|fight|treat|kill|shorten|"
    r"prevent|affect|relieve)|\b(?:cannot|ineffective|not effective|no (?:role|benefit|effect))\b"
    r"|无效|不能治|没有(?:作用|效果|用)|不起"
)
"""Denies that a thing works, which harms nobody whom it is not given for."""
LIMITED: Final = re.compile(
    r"\b(?:more than|longer than|over \d|exceed\w*|unless|without (?:asking|talking|consult\w*|a "
    r"doctor)|until|too (?:much|many)|at the same time|together with|along with|before (?:talking|"
    r"asking)|except|only if|suddenly|abruptly|on your own|if you (?:have|are|take)\b(?! "
    r"(?:pregnan|under)))"
    r"|超过|过量|除非|直到|同时|突然|自行|擅自|长期"
)
"""Limits an order to an amount, a time or a company: no order against the thing itself."""

_CLASSES: Final[tuple[tuple[str, str], ...]] = (
    ("nsaid",
        r"\b(?:nsaids?|ibuprofen|naproxen|diclofenac|indomethacin|ketoprofen|ketorolac|etoricoxib|"
        r"celecoxib|meloxicam|piroxicam|anti-inflammator\w+)\b|布洛芬|双氯芬酸|萘普生|吲哚美辛|"
        r"塞来昔布|洛索洛芬|非甾体|消炎止痛"),
    ("aspirin", r"\b(?:aspirin|acetylsalicylic|salicylates?)\b|阿司匹林|水杨酸"),
    ("antibiotic",
        r"\b(?:antibiotics?|amoxicillin|azithromycin|augmentin|cef\w+|cephal\w+|doxycycline|"
        r"ciprofloxacin|levofloxacin|clarithromycin|penicillin|antimicrobial\w*)\b|抗生素|抗菌药|头孢|"
        r"阿莫西林|阿奇霉素|青霉素|左氧氟沙星|克拉霉素|消炎药"),
    ("metformin", r"\bmetformin\b|二甲双胍"),
    ("ace", r"\b(?:ace inhibitors?|lisinopril|enalapril|ramipril|perindopril|captopril)\b|普利"),
    ("arb", r"\b(?:losartan|valsartan|telmisartan|candesartan|olmesartan|angiotensin receptor)\b|沙坦"),
    ("betablocker", r"\b(?:beta[- ]?blockers?|propranolol|atenolol|metoprolol|bisoprolol|nebivolol)\b|洛尔"),
    ("statin", r"\b(?:statins?|\w+vastatin)\b|他汀"),
    ("steroid",
        r"\b(?:cortico)?steroids?\b|\b(?:prednis\w+|dexamethasone|hydrocortisone)\b|激素|泼尼松|"
        r"地塞米松"),
    ("retinoid", r"\b(?:isotretinoin|accutane|retinoids?|acitretin|tretinoin)\b|维[Aa]酸|异维"),
    ("tetracycline", r"\b(?:tetracyclines?|doxycycline|minocycline)\b|四环素|多西环素|米诺环素"),
    ("fluoroquinolone", r"\b(?:fluoroquinolones?|\w+floxacin)\b|沙星"),
    ("warfarin", r"\b(?:warfarin|coumadin)\b|华法林"),
    ("alcohol",
        r"\b(?:alcohol\w*|drinking alcohol|beer|wine|liquor|spirits)\b|喝酒|饮酒|酒精|白酒|啤酒|"
        r"[喝饮][^，。]{0,6}酒"),
    ("smoking", r"\b(?:smok\w+|cigarettes?|tobacco)\b|吸烟|抽烟"),
    ("codeine", r"\b(?:codeine|opioids?|tramadol|morphine)\b|可待因|曲马多|阿片"),
    ("decongestant", r"\b(?:pseudoephedrine|phenylephrine|decongestants?)\b|伪麻"),
    ("benzodiazepine", r"\b(?:benzodiazepines?|diazepam|alprazolam|clonazepam|lorazepam)\b|地西泮|阿普唑仑|安定"),
    ("estrogen",
        r"\b(?:o?estrogens?|estradiol|combined (?:pill|contracepti\w+)|hormone (?:replacement "
        r")?therapy)\b|雌激素|短效避孕药"),
    ("valproate", r"\bvalpro\w+\b|丙戊酸"),
    ("methotrexate", r"\bmethotrexate\b|甲氨蝶呤"),
    ("paracetamol", r"\b(?:paracetamol|acetaminophen|tylenol)\b|对乙酰氨基酚|扑热息痛"),
    ("coughmedicine", r"\b(?:cough (?:medicines?|syrups?)|cold medicines?|dextromethorphan)\b|止咳药"),
    ("honey", r"\bhoney\b|蜂蜜"),
    ("laxative", r"\blaxatives?\b|泻药"),
    ("antidiarrheal", r"\b(?:loperamide|imodium|antidiarrh\w+)\b|洛哌丁胺|止泻药"),
    ("vaccine", r"\b(?:vaccines?|vaccinat\w+|immuni[sz]ation)\b|疫苗"),
    ("insulin", r"\binsulin\b|胰岛素"),
    ("lithium", r"\blithium\b|碳酸锂"),
    ("triptan", r"\b\w+triptan\b|曲普坦"),
    ("nitrate", r"\b(?:nitrates?|nitroglycerin)\b|硝酸甘油"),
    ("sildenafil", r"\b(?:sildenafil|viagra|tadalafil|cialis)\b|西地那非|他达拉非"),
)  # fmt: skip
CLASSES: Final = tuple((name, re.compile(pattern)) for name, pattern in _CLASSES)
"""Objects that go by several names: a word list, taken from pharmacological class names."""

_CONDITIONS: Final[tuple[tuple[str, str], ...]] = (
    ("pregnancy",
        r"\b(?:pregnan\w+|trimester|expecting a baby|weeks? pregnant|unborn|fetus)\b|怀孕|"
        r"孕[妇期早中晚]|妊娠|胎儿"),
    ("breastfeeding", r"\b(?:breast[- ]?feed\w*|lactat\w+|nursing (?:mother|a baby))\b|哺乳|母乳|喂奶"),
    ("child",
        r"\b(?:child(?:ren)?|infants?|bab(?:y|ies)|toddlers?|teen(?:ager)?s?|adolescents?|under (?:the "
        r"age of )?\d{1,2}|younger than|kids?|my (?:\w+ )?(?:son|daughter|baby|child)|(?:\b[1-9]|"
        r"1[0-5])[- ]?(?:years?|months?)[- ]old)\b|儿童|小儿|孩子|宝宝|患儿|婴儿|幼儿|儿子|女儿|青少年"),
    ("viral",
        r"\b(?:flu|influenza|chicken ?pox|varicella|viral (?:infection|illness)\w*|viruses?|viral)\b|"
        r"流感|水痘|病毒"),
    ("cold", r"\b(?:common cold|colds?|upper respiratory|runny nose|sneez\w+)\b|感冒|上呼吸道"),
    ("kidney", r"\b(?:kidney|renal|egfr|gfr|creatinine|nephropathy|dialysis|ckd)\b|肾|eGFR|egfr|肌酐|透析"),
    ("liver", r"\b(?:liver|hepatic|cirrhosis|hepatitis)\b|肝"),
    ("heartfailure", r"\b(?:heart failure|cardiac failure)\b|心衰|心力衰竭"),
    ("asthma", r"\basthma\w*\b|哮喘"),
    ("ulcer", r"\b(?:ulcers?|gi bleed\w*|stomach bleeding)\b|溃疡|消化道出血"),
    ("bleeding", r"\b(?:bleeding disorder|h(?:a)?emophilia|blood thinners?|anticoagula\w+)\b|抗凝|血友病"),
    ("diabetes", r"\bdiabet\w+\b|糖尿病"),
    ("hypertension", r"\b(?:hypertensi\w+|high blood pressure)\b|高血压"),
    ("glaucoma", r"\bglaucoma\b|青光眼"),
    ("gout", r"\bgout\b|痛风"),
    ("dengue", r"\bdengue\b|登革"),
    ("epilepsy", r"\b(?:epilep\w+|seizures?)\b|癫痫"),
    ("elderly", r"\b(?:elderly|older (?:adults?|people)|over (?:the age of )?(?:65|70|75))\b|老年人"),
    ("allergy", r"\ballerg(?:y|ic) to\b|过敏者"),
    ("bronchitis", r"\bbronchitis\b|支气管炎"),
    ("heartdisease", r"\b(?:heart (?:disease|attack)|coronary|angina)\b|冠心病|心梗"),
    ("stroke", r"\bstroke\b|中风|脑梗"),
    ("hiv", r"\bhiv\b|艾滋"),
    ("cancer", r"\b(?:cancer|chemotherapy|tumou?rs?)\b|癌|肿瘤|化疗"),
    ("surgery", r"\b(?:before|after) (?:\w+ )?surgery\b|术前|术后"),
    ("baby", r"\b(?:infants?|newborns?|under (?:1|one) year|babies)\b|婴儿|新生儿"),
    ("porphyria", r"\bporphyria\b|卟啉"),
    ("myasthenia", r"\bmyasthenia\b|肌无力"),
)  # fmt: skip
CONDITIONS: Final = tuple((name, re.compile(pattern)) for name, pattern in _CONDITIONS)
_DENIAL: Final = re.compile(
    r"\b(?:no|not|never|without|denies|don't|doesn't|isn't|negative for|neither|nor)\b[^,.;]*|"
    r"(?:没有?|无|不是|否认|未)[^，。；]*"
)
_LAB: Final = (
    r"(?P<lab>egfr|gfr|creatinine clearance|potassium|sodium|creatinine|platelets?|inr|"
    r"ha?emoglobin|tsh|glucose|hba1c|lithium level|qtc|血钾|血钠|肌酐|血小板|血红蛋白|血糖|钾)"
)
_BELOW: Final = r"below|under|less than|lower than|<|低于|小于|＜|不足|少于"
_ABOVE: Final = r"above|over|more than|higher than|greater than|exceeds?|>|高于|大于|超过|＞"
_LAB_LIMITS: Final = (
    re.compile(
        rf"{_LAB}[^.。;；\d]{{0,24}}?(?:(?P<below>{_BELOW})|"
        rf"(?P<above>{_ABOVE}))[^.。;；\d]{{0,12}}(?P<n>\d{{1,6}}(?:\.\d{{1,6}})?)"
    ),
    re.compile(
        rf"(?:(?P<below>{_BELOW})|"
        rf"(?P<above>{_ABOVE}))[^.。;；\d]{{0,6}}{_LAB}[^.。;；\d]{{0,6}}(?P<n>\d{{1,6}}(?:\.\d{{1,6}})?)"
    ),
    re.compile(rf"{_LAB}(?: level)?(?: of| is| at|为|是)?\s?(?P<n>\d{{1,6}}(?:\.\d{{1,6}})?)"),
)
_LAB_VALUE: Final = re.compile(rf"{_LAB}[^\d.,;。，；]{{0,20}}(?P<n>\d{{1,6}}(?:\.\d{{1,6}})?)")
_SAME_LAB: Final = {
    "gfr": "egfr",
    "creatinine clearance": "egfr",
    "血钾": "potassium",
    "钾": "potassium",
    "血钠": "sodium",
    "肌酐": "creatinine",
    "血小板": "platelet",
    "platelets": "platelet",
    "血红蛋白": "hemoglobin",
    "haemoglobin": "hemoglobin",
    "血糖": "glucose",
}
_NEGATED_IN_CLAUSE: Final = re.compile(
    r"\b(?:not|never|avoid\w*|stop\w*|don't|shouldn't|cannot|can't|no|instead of|rather than|"
    r"discontinue\w*|hold|without|contraindicat\w+|switch from|replace\w*|away from)\b|不|禁|避免|"
    r"停|忌|勿|别|代替|换掉"
)


def objects(text: str) -> set[str]:
    """What a text speaks of that can be ordered or forbidden: classes and single drug names."""
    folded = plain(text)
    found = {name for name, pattern in CLASSES if pattern.search(folded)}
    found |= {w for w in re.findall(r"[a-z]{4,}", folded) if lexicon_en.is_drug(w)}
    if not found:
        found |= set(lexicon_zh.DRUG.findall(text)[:10])
    return found


_ILL: Final = {
    "kidney": re.compile(
        r"\b(?:(?:kidney|renal) (?:disease|failure|impairment|insufficiency|problems?|damage|"
        r"function (?:is )?(?:low|reduced|impaired))|ckd|nephropathy|dialysis|(?:egfr|gfr|"
        r"clearance)\D{0,12}[1-5]?\d\b(?!\d))|"
        r"肾(?:功能)?(?:不全|衰竭?|下降|损害|病|炎)|透析|尿毒症|(?:egfr|gfr)\D{0,6}[1-5]?\d(?!\d)"
    ),
    "liver": re.compile(
        r"\b(?:liver (?:disease|failure|damage)|cirrhosis|hepatitis)\b|肝(?:硬化|衰竭?|炎|功能(?:异常|"
        r"不全|损害))|[乙丙甲]肝"
    ),
}
"""What in a patient's story counts as the disease, where passages name only the organ."""
_NOT_SURE: Final = re.compile(
    r"\b(?:normal|negative|fine|probably|think|thought|might|maybe|possibly|suspect\w*|worried|"
    r"afraid|scared|could (?:i|it|this)|is it|am i|ruled out|mother|father|brother|sister|"
    r"family)\b|正常|阴性|以为|可能|考虑|怀疑|担心|害怕|会不会|是不是|是否|排除|家族|[父母]亲(?:有|"
    r"患)"
)
_YEARS: Final = re.compile(r"\b(\d{1,3})[ -]?(?:years?|yrs?|y/?o)\b|(\d{1,3})\s?岁")


def conditions(text: str, *, told: bool = False) -> set[str]:
    """The conditions that a text names.

    In a patient's story (`told`) only what is affirmed counts: nothing denied, normal, feared or a relative's.
    """
    folded = plain(text)
    if not told:
        return {name for name, pattern in CONDITIONS if pattern.search(folded)}
    kept = " ; ".join(
        _DENIAL.sub(" ", c) for c in re.split(r"[,.;!?，。；！？](?!\d)", folded) if not _NOT_SURE.search(c)
    )
    found = {name for name, pattern in CONDITIONS if _ILL.get(name, pattern).search(kept)}
    ages = [int(a or b) for a, b in _YEARS.findall(folded)]
    if ages and min(ages) >= 18:
        found -= {"child", "baby"}
    return found


def clauses_of(sentence: str) -> list[str]:
    """A sentence's clauses, cut where polarity may change."""
    return [
        c
        for c in re.split(
            r"[,;:，；：]|\b(?:but|although|however|whereas|while|instead)\b|但是?|而是|不过", sentence
        )
        if c.strip()
    ]


def ordered(text: str, thing: str) -> bool | None:
    """Whether a claim orders or allows `thing` (True), forbids it (False), or does neither plainly (None)."""
    pattern = dict(CLASSES).get(thing)
    for clause in clauses_of(plain(text)):
        if not (pattern.search(clause) if pattern else thing in clause):
            continue
        if _NEGATED_IN_CLAUSE.search(clause):
            return False
        if FOR.search(clause):
            return True
    return None


def lab_values(story: str) -> list[tuple[str, float]]:
    """(laboratory, value) for each value that a patient's story gives."""
    return [(_lab(m["lab"]), float(m["n"])) for m in _LAB_VALUE.finditer(plain(story))][:100]


def limit_met(folded: str, values: list[tuple[str, float]]) -> bool | None:
    """Whether the laboratory limit that a sentence names is met by a patient's values.

    None when the sentence names no limit; False also when the patient gives no such value.
    """
    limit = next((m for pattern in _LAB_LIMITS if (m := pattern.search(folded))), None)
    if limit is None:
        return None
    groups = limit.groupdict()
    bound, lab = float(groups["n"]), _lab(groups["lab"])
    for name, number in values:
        if name != lab:
            continue
        if groups.get("below"):
            met = number < bound
        elif groups.get("above"):
            met = number > bound
        else:
            met = number == bound
        if met:
            return True
    return False


def _lab(name: str) -> str:
    return _SAME_LAB.get(name, name)
