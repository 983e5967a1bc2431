"""Handles are hashed; identifiers of people go, clinical words stay."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.deidentify.detect import find_identifiers, keyed_handle, redact
from medlive.threads.model import Message
from medlive.threads.prepare import prepared
from tests.support.scripted import THREAD

ONCE_MISSED = {
    "my name's tamsin brownlee im 19": "my name's [name] im 19",
    "speedy recovery. dr. ayman darrag": "speedy recovery. dr. [name]",
    "grandma Ottilie is 91": "grandma [name] is 91",
    "our sons Ahmed and Zoltar cough": "our sons [name] and [name] cough",
    "contact Zelinka at zel@mail.example": "contact [name] at [email]",
    "under UHID AH00238871": "under UHID [record number]",
    "hi doc, anita kumar here, 31 yrs": "hi doc, [name] here, 31 yrs",
    "We live at 88 Old Mill Lane, Bristol": "We live at [address]",
    "接诊医生顾文斌说要手术": "接诊医生[name]说要手术",
    "谢谢\n——沈秋月": "谢谢\n——[name]",
    "skype live:anna.k.1990": "skype [wechat/qq]",
    "谢谢您贲医生，我找马医生看过": "谢谢您[name]医生，我找[name]医生看过",
    "患者周德胜，男，67岁": "患者[name]，男，67岁",
    "报告医生蒋敏，审核：陶颖": "报告医生[name]，审核：[name]",
    "我是患者史国强的女儿": "我是患者[name]的女儿",
    "姓名：鲁大海 性别：男": "姓名：[name] 性别：男",
    "患者家属 万芳 敬上": "患者家属 [name] 敬上",
    "我女儿朱可欣，4岁": "我女儿[name]，4岁",
    "她叫古丽米娜，新疆人": "她叫[name]，新疆人",
    "加我薇lily88213详聊": "加我薇[wechat/qq]详聊",
    "我住在望京西园四区411号楼": "我住在[address]",
}
"""Names and accounts that once stayed, by the words that give them away."""


@pytest.mark.parametrize("text", ONCE_MISSED)
def test_names_that_once_stayed_are_redacted(text: str) -> None:
    assert redact(text, None) == ONCE_MISSED[text]


def test_a_handle_is_keyed_and_stable() -> None:
    first = keyed_handle("jane_doe", b"key")
    assert (
        first == keyed_handle("jane_doe", b"key") != keyed_handle("jane_doe", b"other")
    )
    assert first.startswith("u_")
    assert "jane" not in first
    assert keyed_handle(first, b"key") == first
    assert [keyed_handle(r, b"key") for r in ("asker", "physician")] == [
        "asker",
        "physician",
    ]
    with pytest.raises(ValueError, match="key"):
        keyed_handle("jane", b"")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dr. Anil Kumar told me", "Dr. [name] told me"),
        ("My name is Rahul and I cough", "My name is [name] and I cough"),
        ("I am Priya, 27 years old", "I am [name], 27 years old"),
        ("Thanks,\nJohn Smith", "Thanks,\n[name]"),
        ("mail a.b+c@x-y.co.uk or www.example.com/q?x=1.", "mail [email] or [url]."),
        ("call +44 20 7946 0958 or (415) 555-2671", "call [phone] or [phone]"),
        (
            "DOB: 12/03/1980, MRN: 00123456",
            "DOB: [date of birth], MRN: [record number]",
        ),
        ("SSN 536-90-4399, ask @some_one", "SSN [id number], ask [handle]"),
        ("seen at Apollo Hospital in Mumbai", "seen at [place] in [place]"),
        ("张大夫您好，我叫王小明，男", "[name]大夫您好，我叫[name]，男"),
        ("谢谢李医生，电话13812345678", "谢谢[name]医生，电话[phone]"),
        ("微信：abc_12345，QQ 1234567", "微信：[wechat/qq]，QQ [wechat/qq]"),
        (
            "身份证11010519491231002X，住院号：A0012345",
            "身份证[id number]，住院号：[record number]",
        ),
        ("我在灌云县人民医院看的", "我在[place]看的"),
        ("北京大学肿瘤医院，住在杭州市西湖区", "[place]，住在[place]"),
        (
            "坐G1234次高铁，出生日期：1985年3月2日",
            "坐[record number]次高铁，出生日期：[date of birth]",
        ),
    ],
)
def test_identifiers_are_replaced_by_their_kind(text: str, expected: str) -> None:
    assert redact(text, None) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Crohn's disease, Parkinson disease, Hashimoto thyroiditis, Down syndrome, Lou Gehrig disease",
        "Dr said it is fine. Hi Doctor, thank you Doctor. I am Diabetic, 24 years old",
        "WBC 5600 7800, 120/80 98 97 96, FSH 4.5 E2 123456, dose 500 mg 1000 mg 1500 mg",
        "Glasgow coma scale 15, General Hospital, the clinic, Emergency Hospital",
        "白血病，高血压，黄体酮，马应龙，安宫牛黄丸，何杰金淋巴瘤，帕金森",
        "主治医生、全科医生、地方医生、当时医生说，和医生交流，请医生看看，健康医生，老主任，科主任",
        "病区，心前区，疫区，省人民医院，市医院，武汉肺炎，哈密瓜，医保定点",
        "2020-03-21 2020年3月21日 体温37.5 血压120/80",
        "My sons Asthma and Eczema got worse. Grandma Died. Ask for Metformin at 500 mg, my name is private",
        "牛皮癣专家，焦虑专家，主治医生严肃地说，主治医生明确说，主治医生查房，报告医生说没事，审核：通过",
        "患者高烧，男，5岁。尿道炎，女，30岁。我妈阿卡波糖，我爸卡马西平。加微创手术",
        "胡桃夹，女，12岁。我妈尚可，我是高血压患者的女儿，我是单亲家庭的孩子，姓名：保密",
    ],
)
def test_clinical_words_and_values_stay(text: str) -> None:
    assert redact(text, None) == text


_PIECES = st.sampled_from(
    [
        "Dr. Smith",
        "王医生",
        "13812345678",
        "a@b.com",
        "我叫李雷",
        "@me_too",
        "5 mg",
        "。",
        " ",
        "\n",
        "Hi Anna,",
        "DOB: 1/2/1980",
        "北京协和医院",
        "www.a.com",
    ]
)


@given(st.lists(_PIECES, max_size=10).map("".join))
def test_redacting_is_idempotent_and_spans_are_exact(text: str) -> None:
    found = find_identifiers(text, "en")
    assert all(text[i.start : i.end] == i.text for i in found)
    assert all(a.end <= b.start for a, b in pairwise(found))
    once = redact(text, "en")
    assert redact(once, "en") == once


def test_names_run_together_are_all_found_at_once() -> None:
    glued = "Dr. Smith" * 40
    assert [i.text for i in find_identifiers(glued, "en")] == ["Smith"] * 40
    assert "Smith" not in redact(glued, "en")


@given(st.text(max_size=150))
def test_no_text_breaks_it(text: str) -> None:
    redact(text, None)


LABELLED = Path(__file__).parents[3] / "benchmarks" / "data" / "pii.jsonl"
MESSY = [
    row
    for row in map(json.loads, LABELLED.read_text("utf-8").splitlines())
    if "-n" in row["id"]
]
"""Sentences of the kinds that were once missed, and such as look like them and name nobody."""


def test_the_messy_sentences_are_read_as_labelled() -> None:
    for row in MESSY:
        found = find_identifiers(row["text"], row["language"])
        assert [(i.kind, i.start, i.end) for i in found] == [
            (s["kind"], s["start"], s["end"]) for s in row["spans"]
        ], row["id"]


@pytest.mark.parametrize(
    "stranger",
    [
        "Мне тоже помогло это лекарство, но потом кашель вернулся. " * 10,
        "我也有同样的情况，吃了这个药以后咳嗽得很厉害，后来换了药就好了。" * 20,
        "Moi aussi j'ai eu la même toux avec ce médicament, je vais mieux. " * 10,
    ],
)
def test_strangers_do_not_change_a_thread_s_language(stranger: str) -> None:
    message = Message("m9", "u_9", "other", False, stranger)
    thread = replace(THREAD, messages=(*THREAD.messages, message))
    assert prepared(thread)[1] == "en"


def test_a_thread_of_few_words_is_in_the_language_that_its_source_declares() -> None:
    patient = "Lisinopril 10 mg, dry cough 3 weeks. Cause?"
    physician = "Lisinopril. Stop lisinopril, start losartan 50 mg."
    messages = (
        Message("m0", "u_1", "patient", False, patient),
        Message("m1", "u_2", "physician", True, physician),
    )
    thread = replace(THREAD, title="Lisinopril cough", messages=messages)
    assert prepared(thread)[1] == "en"
