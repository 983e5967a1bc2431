"""Chinese names and places, found by what stands around them: a title, an introduction, an office word."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from medlive.deidentify.anchors import anchor
from medlive.deidentify.gazetteer import (
    CITIES_ZH,
    COMPOUND_SURNAMES,
    DOUBTFUL_CITIES_ZH,
    HOSPITALS_ZH,
    NOT_BEFORE_TITLE,
    NOT_GIVEN,
    PROVINCES_ZH,
    RARE_SURNAMES,
    SURNAMES,
)
from medlive.deidentify.identifiers import View

_TITLES: Final = [
    "主任",
    "大夫",
    "医生",
    "教授",
    "医师",
    "院长",
    "护士长",
    "护士",
    "老师",
    "先生",
    "女士",
    "小姐",
    "博士",
    "阿姨",
    "专家",
]
_TITLE_AT: Final = anchor("title zh", _TITLES)
_HAN_NAME: Final = r"[\u4e00-\u9fff](?:·?[\u4e00-\u9fff]){1,3}"
_NAME_END: Final = (
    r"(?=$|[\s,，。.;；、!！?？(（)）【\[0-9:：~～^\-—\"'”’/|a-z]|男|女|今年|来自|[\U0001f300-\U0001faff])"
)
_INTRODUCED: Final = re.compile(
    r"(?:我(?:的)?(?:大|真|全|小|中文)?名字?(?:是|叫|为)?|我叫|本人叫|本人姓名|名叫|名字(?:是|叫)|大名"
    r"|小名叫?|乳名|叫做"
    r"|(?:预约|主治|主管|接诊|就诊|推荐|管床|经治|主刀|手术|报告|审核|送检|签字|申请|责任|随访)(?:医生"
    r"|大夫|专家|医师|护士)(?:是|叫|[:：])"
    r"|(?:姓名|患者|病人|患儿|家属|联系人|收件人|签名|签字|签署|陪护人?|监护人|户主|投保人|持卡人|寄给"
    r"|医生|大夫|医师|护士|代诉人|署名|落款)(?:姓名|签名|签字)?(?:是|为|叫)?[:：]"
    r"|姓名(?:是|为)?|患者姓名|病人姓名|联系人|收件人|(?:我|他|她|孩子|宝宝|儿子|女儿|先生|老公"
    r"|老婆)(?:大名|名字)?叫)[\s:：]{0,2}"
    rf"(?P<name>{_HAN_NAME}?){_NAME_END}"
)
_RELATED: Final = re.compile(
    r"(?:我|俺|咱|他|她|家里?|我家|我们家)(?:的)?(?:(?:大|小|二|三|亲|堂|表|前)?(?:老公|老婆|丈夫|妻子"
    r"|爱人|媳妇|先生|太太|儿子|女儿|闺女|妈妈|爸爸|母亲|父亲|妈|爸|爷爷|奶奶|外婆|外公|姥姥|姥爷"
    r"|哥哥?|弟弟?|姐姐?|妹妹?|岳父|岳母|公公|婆婆|姑姑|姑妈|舅舅|舅妈|叔叔|婶婶|姨妈|小姨|大姨|侄子|侄女"
    r"|外甥女?|孙子|孙女|男朋友|女朋友|男友|女友|未婚夫|未婚妻|朋友|同事|同学|邻居|室友|闺蜜|宝宝|娃|孩子"
    r"|宝贝))"
    rf"(?:叫|名叫|名字是|名字叫|，|,)?(?P<name>{_HAN_NAME}?)(?=$|[\s,，。;；、!！?？(（0-9]|男|女|今年"
    r"|昨天|最近|前天|上周|去年|前年|因为?|得了|患|被|查|确诊|住院|在|有|是|生于|出生|已|刚|目前|现在|从"
    r"|说|的|于|也|都|和|体检|发烧|咳嗽)"
)
_I_AM: Final = re.compile(
    r"(?:我是|本人是?|这是|在下|我系)(?:患者|病人|家属|患者家属|孩子妈妈"
    rf"|孩子爸爸)?(?P<name>{_HAN_NAME}?)(?=$|[,，。;；!！\n(（]|[ 　]|男|女|今年|，|[0-9]{{1,2}}岁)"
)
_SIGNED: Final = re.compile(
    r"(?:敬礼|敬上|祝好|祝您?[\u4e00-\u9fff]{2,6}|谢谢(?:您|你|了|大家|医生|大夫)?|感谢|感激不尽"
    r"|拜托了?|跪求|叩首|不胜感激|多谢|致谢|顺祝商祺)[!！。.～~，, ]{0,3}(?:\s*\n+\s*|(?<=敬礼)\s*"
    r"|(?<=敬礼[!！。.，, ])\s*)(?:——|—|--|-"
    rf"|～)?\s*(?:患者|家属|病人|您的患者|孩子妈妈)?[:： ]?(?P<thanked>{_HAN_NAME}?)[ \t]*(?=$|\n"
    r"|\d{2,4}[年.-]|敬上|拜上|上$|上\n)"
    rf"|(?:——|—|--|～)\s*(?:患者|家属|病人)?[:： ]?(?P<dashed>{_HAN_NAME}?)[ \t。]*(?=$|\n)"
    rf"|(?:\n|^|[。！!，,] ?)(?:患者|家属|病人|学生|晚辈)?[:：]?(?P<humble>{_HAN_NAME}?)(?:敬上|拜上|叩上"
    r"|谨上|留|上)[。!！]?[ \t]*(?=$|\n)"
)
_SIGNED_AT: Final = anchor("signed zh", (
    "——", "—", "--", "～", "敬礼", "敬上", "祝好", "祝", "谢谢", "感谢", "感激不尽", "拜托", "跪求", "叩",
    "不胜感激", "多谢", "致谢", "拜上", "谨上", "上\n", "留\n",
))  # fmt: skip
_INTRODUCED_AT: Final = anchor("introduced zh", ["叫", "名字", "姓名", "小名", "大名", "乳名", "我名", *(
    word + middle + mark
    for word in ("患者", "病人", "患儿", "家属", "联系人", "收件人", "签名", "签字", "签署", "陪护",
    "陪护人", "监护人", "户主", "投保人", "持卡人",
                 "医生", "大夫", "医师", "护士", "专家", "代诉人", "署名", "落款")
    for middle in ("", "姓名", "签名", "签字", "是", "为") for mark in ":："
), "寄给", "联系人", "收件人"])  # fmt: skip
_RELATED_AT: Final = anchor("related zh", ["老公", "老婆", "丈夫", "妻子", "爱人", "媳妇", "先生",
"太太", "儿子", "女儿", "闺女", "妈", "爸", "母亲", "父亲", "爷爷", "奶奶", "外婆", "外公", "姥姥",
"姥爷", "哥", "弟", "姐", "妹", "岳父", "岳母", "公公", "婆婆", "姑姑", "姑妈", "舅舅", "舅妈", "叔叔",
"婶婶", "姨妈", "小姨", "大姨", "侄子", "侄女", "外甥", "孙子", "孙女", "男朋友", "女朋友", "男友",
"女友", "未婚夫", "未婚妻", "朋友", "同事", "同学", "邻居", "室友", "闺蜜", "宝宝", "娃", "孩子",
"宝贝"])  # fmt: skip
_I_AM_AT: Final = anchor("i am zh", ("我是", "本人", "这是", "在下", "我系"))
_NICKNAME_AT: Final = anchor("nickname zh", ["妈", "爸", *(
    before + name for before in "小老阿" for name in "王李张刘陈杨黄赵吴周徐孙朱胡郭何罗梁宋郑韩"
    "唐冯董萧程曹袁邓许傅沈曾彭"
    "吕苏卢蒋蔡贾丁魏薛叶"
)])  # fmt: skip
_AFTER_ROLE_AT: Final = anchor("role zh", [
    *(role + mark for role in ("主任", "大夫", "医生", "教授", "医师", "院长", "护士长", "护士",
    "专家") for mark in ":： "),
    *(mark + role for role in ("主任", "副主任", "大夫", "医生", "教授", "医师", "院长", "副院长",
    "护士长", "主治", "患者", "病人", "住院医") for mark in "(（"),
])  # fmt: skip
_NICKNAME: Final = re.compile(
    r"(?<![\u4e00-\u9fff])(?P<child>[\u4e00-\u9fff]{2,3})(?:妈妈?|爸爸?|的妈妈|的爸爸)(?=$|[，,。\s!！:：]"
    r"|您好|你好)"
    r"|(?P<old>(?:小|老|阿)[王李张刘陈杨黄赵吴周徐孙朱胡郭何罗梁宋郑韩唐冯董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡"
    r"贾丁魏薛叶])(?=(?:也|昨|今|是|说|去|得|确诊|住院|查|最近|他|她|，|,|。|$|和我|跟我))"
)
_AFTER_ROLE: Final = re.compile(
    r"(?:主任|大夫|医生|教授|医师|院长|护士长|护士|专家|主任医师|副主任医师|住院医师|主治医师)[:： "
    rf"](?P<name>{_HAN_NAME}?)(?=$|[\s,，。;；、!！(（])"
    rf"|(?P<before>{_HAN_NAME}?)[ ]?[(（](?:副?主任|大夫|医生|教授|医师|副?院长|护士长|主治|患者|病人|住院医)"
)
_ASSOCIATES: Final = (
    "同事", "同学", "同伴", "同行人员", "接触者", "接触人员", "密接", "员工", "职工", "工友",
    "室友", "邻居", "朋友", "家属",
    "名单", "人员", "确诊者", "感染者",
)  # fmt: skip
_ASSOCIATES_AT: Final = anchor("associates zh", _ASSOCIATES)
_ONE_LISTED: Final = r"(?:(?![和与])[\u4e00-\u9fff]){2,4}"
_ASSOCIATE_LIST: Final = re.compile(
    rf"(?:{'|'.join(_ASSOCIATES)})(?:有|是|包括|分别是|分别为|为|叫|如下)?[:：\s]{{0,2}}"
    rf"(?P<names>{_ONE_LISTED}?(?:[、和与,，]{_ONE_LISTED}?){{1,12}})"
    r"(?=$|[\s。；;.!！?？(（]|等|都|也|均|在|是|有|被|已|出现|感染|发|确诊|一起|[\u4e00-\u9fff]人)"
)
_LISTED: Final = re.compile(_ONE_LISTED)
_GIVEN_ALONE: Final = re.compile(
    r"(?:我叫|我的名字叫|本人叫|名叫)(?P<name>[\u4e00-\u9fff]{2,3})(?=$|[，,。.！!\s]|今年)"
)
_NOT_CALLED: Final = re.compile("[医救车人护他她你了来过着它们起不啥什]|外卖|出租|家")
_HAN: Final = re.compile(r"[\u4e00-\u9fff]")
_SURE_CITIES: Final = "|".join(c for c in CITIES_ZH if c not in DOUBTFUL_CITIES_ZH)
_DOUBTFUL: Final = "|".join(sorted(DOUBTFUL_CITIES_ZH))
_HOSPITAL: Final = re.compile(rf"(?:{'|'.join(HOSPITALS_ZH)})(?:[一二三]?医院)?")
_PROVINCE: Final = "|".join(PROVINCES_ZH.split())
_FUNCTION: Final = "[的在去到和及与是有了看做我你他她您说这那个就都没来回从往住所以后给被把对于还也又再能要]"
_WIDE_AREA: Final = "[病疫灾辖郊城山库矿流行风险危重中高低]"
_CITY: Final = re.compile(
    rf"(?:{_SURE_CITIES}|(?<=[在住到去回从省自])(?:{_DOUBTFUL})|(?:{_DOUBTFUL})(?=市))市?(?!肺炎|病毒|型"
    r"|话|菜|瓜|西丁|新碱|瑞滨|碱|花碱|地辛|西汀)"
    rf"(?:(?:(?!{_FUNCTION}|{_WIDE_AREA})[\u4e00-\u9fff]){{2,3}}?[区县](?!域))?"
)
_CITY_AT: Final = anchor("city zh", CITIES_ZH)
_PROVINCE_AT: Final = anchor("province zh", [*PROVINCES_ZH.split(), "中国"])
_HOSPITAL_AT: Final = anchor("hospital zh", HOSPITALS_ZH)
_HOSPITAL_END_AT: Final = anchor("hospital end zh", (
    "医院", "卫生院", "医学院", "保健院", "疾控中心", "附院", "一附", "二附", "三附", "附属",
    "附一", "附二", "医大一院", "医大二院",
    "诊所", "医学中心",
))  # fmt: skip
_COUNTY_AT: Final = anchor("county zh", ("县", "自治州", "街道", "区", "镇", "乡", "村"))
_BRIEF_HOSPITAL: Final = re.compile(
    rf"(?!{_FUNCTION}|[送知找于])(?:[\u4e00-\u9fff]{{1,2}}大|[\u4e00-\u9fff]{{1,2}}医(?:科?大)?)第?[一二三四五]?附属?(?:医院|[一二三四五]?院|[一二三四五])"
)
"""郑大一附院, 中山大附一."""
_COMPANY_AT: Final = anchor("company zh", ("有限公司", "有限责任公司", "股份公司", "集团公司"))
_COMPANY: Final = re.compile(
    r"(?:(?!在|于|是|的|去|到|为|从|给)[\u4e00-\u9fff（）()]){2,16}?(?:有限责任公司|有限公司|股份公司|集团公司)"
)
_LISTED_HOSPITAL: Final = re.compile(
    r"(?:医院及科室|就诊医院|医院名称|所在医院|(?:^|(?<=\n)))[ \t]?[:：]?[ \t]{0,3}"
    r"(?P<place>[\u4e00-\u9fff0-9()（）]{2,18}?(?:医院|卫生院|诊所|医学中心))(?=[\s,，。北南东西分本]|$)"
)
_TALK: Final = re.compile(f"{_FUNCTION}|不|没|先|又|最好|建议|治疗|过")
_GENERIC_HOSPITAL: Final = re.compile(
    "(?:本地|当地|[\u4e00-\u9fff]?地|我们|我|的|在|去|这|那|大|小|好|家|个|第一|第二|第三"
    "|第[一二三四五六七八九十]+|人民|中心|中医|市|县|区|镇|省|立"
    "|级|三甲|二甲|妇幼|儿童|妇产|口腔|传染病|专科|综合|公立|私立|社区|附属|医学院|大学|肿瘤|胸科|眼科"
    "|正规|定点|保健)*"
    "(?:医院|卫生院|诊所|医学中心)"
)
_NAMED_HOSPITAL: Final = re.compile(
    rf"(?:(?:{_PROVINCE}|{'|'.join(CITIES_ZH)}|中国)(?:省|市|自治区)?|(?:(?!{_FUNCTION})[\u4e00-\u9fff]){{2"
    r",3}[市县州])"
    rf"(?:(?!{_FUNCTION}|医院|检查|治疗)[\u4e00-\u9fff]){{0,10}}?"
    r"(?:医院|卫生院|医学院|保健院|疾控中心|附院|附一|附二|医大一院|医大二院)"
)
_COUNTY: Final = re.compile(
    r"(?:(?<=[在住于去到是省市州从回])|(?<![\u4e00-\u9fff])|(?<=来自))(?P<county>[\u4e00-\u9fff]{2,3}(?:县("
    r"?!城|里|级)|自治州|街道(?!办)))"
    r"|(?:(?<=[在住于省市州])|(?<![\u4e00-\u9fff]))(?P<area>[\u4e00-\u9fff]{2}(?:区|镇(?![静痛定咳])|乡"
    r"|村(?!医|卫))(?![域别间分]))"
    r"|(?P<estate>[\u4e00-\u9fff]{2,5}(?:路|街|大道)\d{1,4}(?:号|弄))"
)
_NOT_COUNTY: Final = re.compile(f"{_FUNCTION}|当地|本地|[小大邻该各]县")
_NOT_AREA: Final = re.compile(
    "[缘建议病疫肝肾胃心胸背枕腰颈腹颞额顶叶肺脐地郊城山灾社小辖园牧景库矿院中盲特全各风险污染清洁留观重城农乡"
    "高老东西南北前后左右上下本外市整同每这那哪我你他的个冰牙骨腺淋耳眼鼻口手脚膝踝髋肩肘臀臂腿"
    "隔离功能皮部诊术禁战灰黑白红黄暗亮阴影流行肿块疼痛敏感三角会阴周]"
)
_BOUNDARY: Final = re.compile(r"[\s,，。.!！?？;；:：、~～()（）\[\]【】\"“”\n]")
_GREETING_BEFORE: Final = re.compile("(?:你好|您好|感谢|谢谢|尊敬的|请问|请教|麻烦|多谢|敬爱的)$")


def _name_before(text: str, title_at: int) -> int | None:
    """Where the name before a title starts, or None."""
    for length in (3, 2):  # a whole name; the compound surname alone counts as length 2
        start = title_at - length
        if start < 0:
            continue
        name = text[start:title_at]
        if not all(_HAN.match(c) for c in name):
            continue
        if length == 2 and name in COMPOUND_SURNAMES:
            return start
        given = name[1:]
        if (
            name[0] in SURNAMES
            and not set(given) & NOT_GIVEN
            and name[1] != name[0]
            and not (set(given) & SURNAMES and length == 2 and start and not _open(text, start))
            and (length == 3 or _open(text, start))
        ):
            return start
    start = title_at - 1
    if start < 0 or not _HAN.match(text[start]):
        return None
    char = text[start]
    if char in SURNAMES:
        return start
    if char in RARE_SURNAMES and _open(text, start):
        return start
    if (
        char not in NOT_BEFORE_TITLE
        and char not in NOT_GIVEN
        and _open(text, start)
        and text.startswith("主任", title_at)
    ):
        return start
    return None


def _open(text: str, start: int) -> bool:
    """Whether nothing that could belong to the same word stands before `start`."""
    return (
        start == 0
        or bool(_BOUNDARY.match(text[start - 1]))
        or bool(_GREETING_BEFORE.search(text[max(0, start - 4) : start]))
    )


_NOT_NAMES_TEXT: Final = (
    "先生 女士 小姐 医生 大夫 患者 病人 家属 本人 宝宝 孩子 老师 同学 朋友 男性 女性 男孩 女孩 男生 女生 "
    "新手 农民 工人 学生 孕妇 产妇 白领 司机 护士 教师 初中 高中 大学生 "
    "高三 高血压 高血糖 高血脂 何时 何故 何种 何处 关节炎 关节痛 阳性 阴性 石膏 温州人 江苏人 安徽人 "
    "武汉人 常州人 苏州人 徐州人 金华人 包茎 毛囊炎 单身 单亲 单位 平时 平常 "
    "谢谢 常年 成年人 成人 万分 向来 应该 易怒 易胖 余下 于是 时常 时间 时候 从小 从事 全身 全部 全家 全职 "
    "明天 明年 安全 安排 计划 管理 查出 查体 高度 高烧 高危 马上 "
    "白癜风 白血病 黄疸 黄体 金葡菌 毛病 水肿 水痘 左侧 左边 左手 左脚 花粉 花了 车祸 师傅 师范 辛苦 温度 "
    "温和 鲁莽 洪水 米饭 甲亢 甲状腺 甲减 甲流 房颤 伍仟 苗条 柏油 荣幸 纪念 司机 "
    "康复 解释 艾滋 欧洲 成都人 方便 方法 段时间 段位 严重 文化 文员 武汉 江西人 湖南人 山东人 程序员 程度 "
    "曾经 胡说 胡思 卢氏 焦虑 焦虑症 蓝领 贾第 路人 路过 "
    "阳了 阳康 阳虚 阴虚 龙年 乐观 余热 汤药 童年 盛夏 雷诺 莫名 莫非 骆驼 柳叶 梅毒 梅雨 单纯 顾客 顾虑 "
    "连续 连着 应届 陶瓷 舒服 乔迁 金融 金属 葛根 毕业 祝您 向您 "
    "明显 全麻 别的 别人 那种 同意 方案 平安 时日 安康 万事 高兴 和平 江湖 向上 幸福 顺利"
)
_NOT_NAMES: Final = frozenset(_NOT_NAMES_TEXT.split())


_PARTICLES: Final = frozenset(
    "的了我你他她您是在有不很到去看找请问和与给让说叫把被就都也还又再没想要能会可以对从向等及或但这那个些吗"
    "呢吧啊么什何谁哪怎们"
)
_BODY: Final = frozenset(
    "血压肝胃肾肺病症炎疼痛癌瘤障肿烧咳喘晕吐泻痒疮疹骨腰腿脚手臂胸腹背眼耳鼻牙舌喉颈胳膊侧边脉管胞药疗诊医"
    "院岁月日"
)

_NOT_IN_NAMES: Final = _PARTICLES | _BODY
_NOT_AFTER_RARE: Final = NOT_GIVEN - frozenset("小明晨")


def _named(name: str) -> bool:
    """Whether these two to four characters can be a person's whole name: a surname before, no function "
    "word after."""
    if name in _NOT_NAMES or name[:2] in _NOT_NAMES or "人" in name[2:]:
        return False
    given = name.replace("·", "")
    if given[:2] in COMPOUND_SURNAMES:
        return 3 <= len(given) <= 4 and not set(given[2:]) & _NOT_IN_NAMES
    if given[0] in SURNAMES:
        return len(given) <= 3 and not set(given[1:]) & _NOT_IN_NAMES
    return given[0] in RARE_SURNAMES and len(given) <= 3 and not set(given[1:]) & (_NOT_AFTER_RARE | _NOT_IN_NAMES)


_PET_NAME: Final = re.compile(r"([\u4e00-\u9fff])\1|[小大豆糖果乐豆萌][\u4e00-\u9fff]|[\u4e00-\u9fff](?:宝|仔|妞)")
_NOT_PET_NAMES_TEXT: Final = (
    "宝宝 妈妈 爸爸 爷爷 奶奶 哥哥 姐姐 弟弟 妹妹 大家 大夫 大人 小孩 小宝 大宝 二宝 孩子 姥姥 姑姑 叔叔 "
    "舅舅 婆婆 公公 伯伯 小姐 小时 大便 小便 天天 常常 刚刚 慢慢 渐渐 "
    "偏偏 仅仅 往往 多多 好好 小儿 小心 大概 大约 大小 乐观 大概 大量 小腿 大腿 大脑 小脑 大学 小学 小产 "
    "大出 个宝 宝妈 小朋 小朋友 谢谢 看看 问问 试试 天宝 大叔 大姐 大哥 大妈"
)
_NOT_PET_NAMES: Final = frozenset(_NOT_PET_NAMES_TEXT.split())


_NEAR_NAMES: Final = frozenset((
    _TITLE_AT, _INTRODUCED_AT, _RELATED_AT, _I_AM_AT, _SIGNED_AT, _NICKNAME_AT, _AFTER_ROLE_AT, _ASSOCIATES_AT,
))  # fmt: skip


def chinese_names(view: View) -> Iterator[tuple[int, int]]:
    """Spans of names before a title (张大夫 → 张), after an introduction, a relative or a role, and of "
    "signatures."""
    if not view.any(_NEAR_NAMES):
        return
    text = view.text
    for title in view.at(_TITLE_AT):
        if text.startswith(("主任医", "主任技"), title) and title and text[title - 1] == "副":
            continue
        start = _name_before(text, title)
        if start is not None:
            yield start, title
    for match in view.around(_INTRODUCED_AT, _INTRODUCED, 5, 24):
        name = match.group("name")
        if (
            _named(name)
            or (match.group().startswith(("小名", "乳名", "大名")) and name not in _NOT_PET_NAMES)
            or ("叫" in match.group()[: -len(name)] and _PET_NAME.fullmatch(name) and name not in _NOT_PET_NAMES)
        ):
            yield match.span("name")
    for match in view.around(_RELATED_AT, _RELATED, 5, 20):
        name = match.group("name")
        if (_named(name) and (name[0] in SURNAMES or "叫" in match.group() or len(name) == 3)) or (
            "叫" in match.group() and _PET_NAME.fullmatch(name) and name not in _NOT_PET_NAMES
        ):
            yield match.span("name")
    for match in view.matches(_I_AM_AT, _I_AM):
        name = match.group("name")
        if _named(name) and (len(name) == 3 or name[0] in SURNAMES):
            yield match.span("name")
    for match in view.around(_SIGNED_AT, _SIGNED, 8, 32):
        group = match.lastgroup or "thanked"
        if _named(match.group(group)):
            yield match.span(group)
    for match in view.around(_NICKNAME_AT, _NICKNAME, 4, 12):
        if match.group("old"):
            yield match.span("old")
        elif match.group("child") not in _NOT_PET_NAMES and (
            _PET_NAME.fullmatch(match.group("child")) or _named(match.group("child"))
        ):
            yield match.span("child")
    for match in view.around(_INTRODUCED_AT, _GIVEN_ALONE, 4, 8):
        if not _NOT_CALLED.search(match.group("name")) and match.group("name") not in _NOT_NAMES:
            yield match.span("name")
    for match in view.matches(_ASSOCIATES_AT, _ASSOCIATE_LIST):
        listed = list(_LISTED.finditer(view.lower, *match.span("names")))
        # One name that is none, and it is a list of something else.
        if all(_named(m.group()) or _is_nickname(m.group()) for m in listed):
            yield from (m.span() for m in listed)
    for match in view.around(_AFTER_ROLE_AT, _AFTER_ROLE, 6, 20):
        group = match.lastgroup or "name"
        if _named(match.group(group)):
            yield match.span(group)


def _is_nickname(word: str) -> bool:
    """Whether it is 小李 or 老王."""
    return len(word) == 2 and word[0] in "小老阿" and word[1] in SURNAMES


_CHAIN: Final = re.compile(
    rf"(?:(?!{_FUNCTION})[\u4e00-\u9fff]){{1,6}}?(?P<unit>市|(?<!地)区(?!域)|县|旗|镇|乡|街道|村(?!医)|屯|社区"
    r"|小区|开发区|路(?!上|口)|大街|街|巷|家园|花园|公寓|新村|苑)"
)
_FINE_TEXT: Final = "镇 乡 街道 村 屯 社区 小区 路 大街 街 巷 家园 花园 公寓 新村 苑"
_FINE: Final = frozenset(_FINE_TEXT.split())
_DOOR: Final = (
    r"(?:[A-Za-z]?\d{1,5}(?:[-—]\d{1,4}){0,2}|[一二三四五六七八九十]{1,3}|[A-Za-z])(?:号楼|号院|号|弄|栋"
    r"|幢|座|期|单元|室|组|队|楼|层|户|社|门)"
)
_ESTATE: Final = (
    r"(?:路|街|巷|弄|里弄|大道|胡同|小区|花园|家园|公寓|大厦|广场|新村|新城|苑|村|庄|屯|园|湾|府|社区|宿舍"
    r"|家属院|坊|郡|庭|镇|乡)"
)
_ADDRESS: Final = re.compile(
    rf"{_ESTATE}(?:[\u4e00-\u9fff]{{0,3}}(?:段|支路|[东西南北]路))?(?:{_DOOR}[ "
    r"，,]?)+(?:[A-Za-z]?\d{2,4}(?:室|房|户)?(?![\d年月日.%]))?"
)
_LIVES: Final = re.compile(
    r"(?:住在?|老家(?:是|在)|家在|家住|居住(?:在|于)|地址(?:是|为|在)?[:：]?|户籍(?:地|所在地)?(?:是"
    r"|为)?[:：]?|住址(?:是|为)?[:：]?|搬到了?|寄到|邮寄到|送到|籍贯[:：]?"
    rf"|家庭住址[:：]?)\s?(?P<place>(?:(?!{_FUNCTION}|院)[\u4e00-\u9fffA-Za-z0-9]){{2,14}}?(?:小区|花园"
    r"|家园|公寓|新村|苑|大厦|路|街道|镇|乡|村|屯|庄|胡同|府|湾|宿舍))(?![\u4e00-\u9fff]{0,1}医院)"
)
_LIVES_AT: Final = anchor(
    "lives zh",
    ("住", "家在", "居住", "地址", "户籍", "搬到", "寄到", "邮寄到", "送到", "籍贯", "家庭住址", "老家"),
)
_POSTCODE_AT: Final = anchor("postcode zh", ("邮编", "邮政编码"))
_ESTATE_AT: Final = anchor("estate zh", _ESTATE.removeprefix("(?:").removesuffix(")").split("|"))
_POSTCODE: Final = re.compile(r"(?:邮编|邮政编码)(?:是|为)?[\s:：]{0,2}(?P<code>\d{6})(?!\d)")
_PROVINCE_BEFORE: Final = re.compile(
    rf"(?:{_PROVINCE})(?:省|市|自治区|壮族自治区|回族自治区|维吾尔自治区)?[ ，,]?$"
)
_ADDRESS_STOP: Final = re.compile(rf"(?:{_FUNCTION}|[住家址：:，,。\s\n是为于叫至])")
_NOT_ESTATE_TEXT: Final = (
    "一路 走路 上路 迷路 公路 马路 铁路 线路 电路 通路 尿路 胆路 一路上 逛街 上街 农村 全村 本村 我村 同村 "
    "自己村 乡村"
)
_NOT_ESTATE: Final = frozenset(_NOT_ESTATE_TEXT.split())


_NEAR_PLACES: Final = frozenset((
    _CITY_AT, _HOSPITAL_AT, _HOSPITAL_END_AT, _COMPANY_AT, _COUNTY_AT, _ESTATE_AT, _LIVES_AT, _POSTCODE_AT,
))  # fmt: skip


def chinese_places(view: View) -> Iterator[tuple[bool, int, int]]:
    """Hospitals with a name and places finer than a province, each with whether it is an exact address."""
    if not view.any(_NEAR_PLACES):
        return
    text = view.text
    for start, end in _named_places(view):
        fine, at = False, end
        while text[end - 1] not in "院心" and (chain := _CHAIN.match(text, at)):
            fine = fine or chain.group("unit") in _FINE
            at = chain.end()
        if fine and (province := _PROVINCE_BEFORE.search(text, max(0, start - 10), start)):
            start = province.start()
        yield fine, start, at
    for match in view.matches(_ESTATE_AT, _ADDRESS):
        start = _estate_start(text, match.start())
        name = text[start : match.start() + 2]
        if start < match.start() and name[:2] not in _NOT_ESTATE and name not in _NOT_ESTATE:
            if province := _PROVINCE_BEFORE.search(text, max(0, start - 10), start):
                start = province.start()
            yield True, start, match.start() + len(match.group().rstrip(" ，,"))
    for match in view.matches(_LIVES_AT, _LIVES):
        if match.group("place")[-2:] not in _NOT_ESTATE and not _GENERIC_PLACE.fullmatch(match.group("place")):
            yield True, *match.span("place")
    for match in view.around(_COMPANY_AT, _COMPANY, 18, 6):
        yield False, *match.span()
    for match in view.matches(_POSTCODE_AT, _POSTCODE):
        yield True, *match.span("code")


_GENERIC_PLACE: Final = re.compile(
    r"(?:[一二两三四五六七八九十几]楼|老|新|同一?个?|我们?|本|一个|这个|那个|自己|隔壁|别的|农|乡|山|城中"
    r"|偏远|附近|某|老家|学校|单位|公司|员工|集体)*(?:小区|花园|家园|公寓|新村|苑|大厦|路|街道|镇|乡|村|屯"
    r"|庄|胡同|府|湾|宿舍)"
)


def _estate_start(text: str, end: int) -> int:
    """Where the name before a road or an estate begins: after the last word that belongs to no name."""
    start = end
    while (
        start > 0
        and end - start < 16
        and (_HAN.match(text[start - 1]) or (text[start - 1].isascii() and text[start - 1].isalnum()))
        and not _ADDRESS_STOP.match(text[start - 1])
    ):
        start -= 1
    return start


def _named_places(view: View) -> Iterator[tuple[int, int]]:
    """Spans of hospitals with a name, and of places finer than a province."""
    lower = view.lower
    begins = sorted({*view.at(_CITY_AT), *view.at(_PROVINCE_AT)})
    for at in view.at(_HOSPITAL_END_AT):
        yield from _hospital(lower, at, begins[bisect_left(begins, at - 18) : bisect_left(begins, at)])
    for match in view.around(_HOSPITAL_END_AT, _BRIEF_HOSPITAL, 6, 5):
        yield match.span()
    for rule, pattern in ((_HOSPITAL_AT, _HOSPITAL), (_CITY_AT, _CITY)):
        for match in view.matches(rule, pattern):
            yield match.span()
    for match in view.around(_COUNTY_AT, _COUNTY, 4, 8):
        group = match.lastgroup or "county"
        if group == "area" and _NOT_AREA.search(match.group(group)[:-1]):
            continue
        if group == "county" and _NOT_COUNTY.search(match.group(group)):
            continue
        yield match.span(group)


def _hospital(lower: str, at: int, begins: list[int]) -> Iterator[tuple[int, int]]:
    """The span of the hospital whose last word stands at `at`, where it begins with a place or fills a field."""
    towns = [k - n for k in range(max(3, at - 14), at) if lower[k] in "市县州" for n in (3, 2)]
    for begin in sorted({*begins, *towns}):
        match = _NAMED_HOSPITAL.match(lower, begin)
        if match and match.end() > at and not _GENERIC_HOSPITAL.fullmatch(match.group()):
            yield match.span()
            return
    line = max(0, at - 28) if (broken := lower.rfind("\n", max(0, at - 28), at)) < 0 else broken + 1
    if at < 28 or broken >= 0:
        for match in _LISTED_HOSPITAL.finditer(lower, line, at + 9):
            place = match.group("place")
            whole = match.end() < at + 9 or match.end() == len(lower)
            if whole and not _GENERIC_HOSPITAL.fullmatch(place) and not _TALK.search(place):
                yield match.span("place")
