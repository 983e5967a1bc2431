"""The settings of the filter chain, with the method's defaults."""

from datetime import date
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

NON_CLINICAL_SECTIONS = (
    # Student Doctor Network: boards of applicants and careers
    "pre-medical", "pre-medical-md", "pre-medical-do", "pre-med", "what-are-my-chances", "what are my chances",
    "what-are-my-chances-wamc-medical", "wamc", "confidential-expert-advice", "confidential expert advice",
    "medical school applications", "admissions", "application", "mcat",
    "usmle", "comlex", "step 1", "step 2", "nbme",
    "residency application", "residency match", "eras",
    "nrmp", "rotations and residencies", "research and career",
    "job market", "jobs", "careers", "career advice", "salary", "finance and investment", "practice management",
    "pre-dental", "pre-pharmacy", "pre-veterinary", "pre-optometry", "allied health students", "student loans",
    "off topic", "off-topic", "lounge", "the lounge",
    "introductions", "classifieds", "for sale", "site feedback",
    "forum announcements", "announcements", "forum games", "politics", "website help",
    # Chinese communities
    "招聘", "求职", "求职招聘", "就业", "考研", "考博",
    "医学考试", "考试交流", "执业医师考试", "资格考试", "职称考试", "职称", "规培",
    "论文", "论文写作", "课件", "资源下载", "文献求助", "灌水",
    "闲聊", "茶馆", "站务", "版务", "公告", "会议", "会议通知",
    "征文", "广告", "医院管理", "医患关系", "职场", "晋升", "进修", "留学", "二手交易", "交友",
)  # fmt: skip


class FilterSettings(BaseModel):
    """What the chain asks of a thread (LiveMedBench, post filters; points left open are settled here)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    posted_before: date = Field(
        default=date(2023, 1, 1), description="A thread posted before this day does not pass."
    )
    future_tolerance_hours: int = Field(
        default=24, ge=0, le=72, description="How far ahead a community's clock may be."
    )
    max_characters: int = Field(default=200_000, ge=1_000, description="Longest thread: title and all messages.")
    non_alphanumeric_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="From this share of the non-space characters on a thread does not pass.",
    )
    languages: tuple[Literal["en", "zh"], ...] = ("en", "zh")
    non_clinical_sections: tuple[str, ...] = Field(
        default=NON_CLINICAL_SECTIONS, description="Tags, boards and URL sections that hold no clinical questions."
    )
    identifier_kinds: int = Field(
        default=2,
        ge=1,
        le=8,
        description="Kinds of direct identifiers in the patient's text from which a case is a risk.",
    )
    duplicate_similarity: float = Field(
        default=0.8, gt=0, le=1, description="Jaccard similarity of a near duplicate."
    )
