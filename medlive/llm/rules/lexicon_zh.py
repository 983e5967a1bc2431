"""Chinese word lists: what is clinical, what carries no content, and a small bilingual glossary."""

import re
from typing import Final

CLINICAL: Final = re.compile(
    r"[疼痛痒咳烧吐泻晕肿瘤癌炎瘀疹疱疮脓痰喘憋麻胀酸瘫昏悸]|发热|低热|高热|流[清鼻黄]?[涕血]|"
    r"鼻[涕塞血]|打喷嚏|拉肚子|腹泻|"
    r"便[秘血]|大便|小便|排便|尿|血[压糖脂常型氧]|出血|流血|血[便尿块栓]|白带|月经|例假|怀孕|妊娠|"
    r"孕[妇期周]|备孕|流产|早产|胎|"
    r"心[慌率跳电脏梗衰]|胸闷|气短|呼吸|头[疼痛晕昏]|乏力|无力|疲[惫倦劳]|失眠|睡眠|食欲|胃口|体重|"
    r"消瘦|恶心|反酸|"
    r"嗳气|打嗝|腰|腿|膝|关节|骨|脊|颈椎|肩|手[指麻抖]|脚[踝麻肿]|皮肤|眼|耳|鼻|咽|喉|嗓子|扁桃|牙|"
    r"口腔|舌|胃|肠|肝|胆|胰|脾|肾|"
    r"膀胱|前列腺|睾丸|阴[道茎囊部]|子宫|卵巢|乳[腺房头]|甲状腺|淋巴|肺|支气管|脑(?!洞|子)|神经|血管|抽搐|"
    r"癫痫|中风|偏瘫|"
    r"高血压|糖尿病|冠心病|哮喘|结核|肝硬化|乙肝|甲肝|丙肝|大三阳|小三阳|贫血|过敏|湿疹|荨麻疹|"
    r"痛风|抑郁|焦虑|结节|囊肿|"
    r"息肉|结石|梗死|梗塞|溃疡|感染|病毒|细菌|新冠|肺炎|流感|感冒|艾滋|梅毒|症状|病史|病[情变理]|"
    r"确诊|诊断|手术|术后|化疗|放疗|透析|"
    r"住院|疫苗|接种|核酸|抗体|抗原|CT|MRI|B超|彩超|超声|核磁|X光|胸片|拍片|胃镜|肠镜|活检|穿刺|"
    r"心电图|化验|检[查验]|体检|"
    r"复查|指标|阳性|阴性|白细胞|红细胞|中性粒|血小板|血红蛋白|转氨酶|胆红素|肌酐|尿酸|尿蛋白|"
    r"胆固醇|甘油三酯|激素|"
    r"吃药|服药|用药|口服|药物|停药|减药|中药|西药|抗生素|消炎药|止[疼痛]药|退烧药|降压药|片|胶囊|"
    r"颗粒|冲剂|口服液|注射|输液|打针|"
    r"点滴|雾化|体温|吸烟|抽烟|饮酒|喝酒|酗酒|接触史|密切接触|隔离|潜伏期|遗传|家族史|糖化|EGFR|"
    r"eGFR|毫克|创伤|外伤|骨折|摔"
)
DRUG: Final = re.compile(
    r"[一-鿿]{1,6}(?:霉素|西林|沙星|洛尔|普利|沙坦|地平|他汀|拉唑|替丁|双胍|列汀|列净|格列|米松|"
    r"奈德|松龙|特罗|司特|他定|"
    r"利嗪|昔布|洛芬|芬酸|肝素|班|韦|替尼|单抗|酰胺|唑仑|西泮|西汀|舍曲林|普仑|噻嗪|呋塞米|内酯|"
    r"胰岛素|甲状腺素|嘌呤|布洛芬|"
    r"颗粒|胶囊|口服液|片|丸|冲剂|清瘟|糖浆|滴眼液|软膏|乳膏|喷雾剂|栓|散|汤)|头孢[一-鿿]{0,3}|"
    r"阿司匹林|对乙酰氨基酚|扑热息痛|"
    r"布洛芬|泰诺|二甲双胍|胰岛素|华法林|地高辛|氯吡格雷|阿莫西林|阿奇霉素|甲硝唑|奥司他韦|激素|"
    r"抗生素|消炎药|叶酸|钙片|维生素|"
    r"连花清瘟|莲花清瘟|感冒灵|阿比多尔|优甲乐|奥美拉唑|洛索洛芬|秋水仙碱|别嘌醇|非布司他|螺内酯|"
    r"他莫昔芬|利尿[药剂]|降压药|退烧药"
)
STOP: Final = re.compile(
    r"的|了|着|过|吗|呢|吧|啊|呀|嘛|哦|和|与|及|或者?|以及|还有|还是|也|都|就|又|再|才|很|非常|"
    r"比较|有点|一[般些下定直样个]|这[个种些样]?|那[个种些样]?|"
    r"你|您|我|他|她|它|们|自己|患者|病人|医生|大夫|朋友|家人|孩子|宝宝|因为|所以|但是|如果|要是|"
    r"假如|可能|应该|需要|必须|可以|能够|建议|考虑|"
    r"注意|进行|出现|引起|导致|造成|有关|相关|情况|问题|时候|时间|目前|现在|平时|日常|以后|以前|"
    r"之后|之前|同时|特别|"
    r"主要|根据|通过|由于|关于|对于|其他|另外|不要|没有|不是|不能|无|有|是|在|对|把|被|给|让|向|从|"
    r"到|以|为|等|上|下|中|内|外|前|后|多|少|"
    r"大|小|高|低|每天|一天|每次|次|天|周|月|年|岁|治疗|症状|疾病|检查|医院|药物|患病|病情|服用|"
    r"使用|口服|吃|用|服|做|去|来|看|说|会|要|想|该|"
    r"发生|发现|情形|方法|效果|作用|影响|身体|健康|正常|及时|一种|许多|比如|例如|包括|或"
)
GLOSSARY: Final[tuple[tuple[str, str], ...]] = tuple(
    (line.split("=")[0], line.split("=")[1])
    for line in """
新冠|新型冠状病毒|冠状病毒=covid coronavirus sars-cov-2
肺炎=pneumonia
流感|流行性感冒=influenza flu
普通感冒|感冒|上呼吸道感染=cold colds respiratory
发热|发烧|体温|退烧=fever temperature
咳嗽|干咳=cough coughing
咽炎|咽喉|嗓子=throat pharyngitis
鼻炎|鼻塞=rhinitis nasal
哮喘=asthma
慢阻肺=copd
支气管炎=bronchitis
结核=tuberculosis
高血压|血压|降压=hypertension pressure
糖尿病=diabetes
血糖=glucose sugar
糖化血红蛋白=hba1c a1c
胰岛素=insulin
二甲双胍=metformin
冠心病=coronary
心梗|心肌梗死=infarction
心衰|心力衰竭=failure
房颤=fibrillation
中风|脑梗|脑卒中=stroke
癫痫=epilepsy seizure seizures
头痛|头疼=headache
偏头痛=migraine
头晕|眩晕=dizziness vertigo
乙肝|乙型肝炎=hepatitis
肝炎=hepatitis
肝硬化=cirrhosis
脂肪肝=fatty
转氨酶=alt transaminase aminotransferase
胃炎=gastritis
反流|反酸=reflux gerd
幽门螺杆菌=pylori
溃疡=ulcer
腹泻|拉肚子=diarrhea
便秘=constipation
痔疮=hemorrhoids
胆结石|胆囊结石=gallstones gallstone
胆囊=gallbladder
胰腺炎=pancreatitis
肾结石=kidney stones
肾病|肾功能|肾脏=kidney renal
尿酸=uric
痛风=gout
尿路感染|膀胱炎=urinary
前列腺=prostate
贫血=anemia
血小板=platelets platelet
白血病=leukemia
淋巴瘤=lymphoma
甲状腺结节=thyroid nodule
甲亢=hyperthyroidism
甲减=hypothyroidism
甲状腺=thyroid
类风湿=rheumatoid
关节炎=arthritis
骨质疏松=osteoporosis
骨折=fracture
腰椎间盘=disc
湿疹=eczema
荨麻疹=hives urticaria
银屑病=psoriasis
白癜风=vitiligo
过敏=allergy allergic allergies
水痘=chickenpox varicella
手足口病=hand foot mouth
麻疹=measles
艾滋=hiv
梅毒=syphilis
抑郁=depression
焦虑=anxiety
失眠=insomnia
怀孕|妊娠|孕妇|孕期=pregnancy pregnant
哺乳|母乳|喂奶=breastfeeding breast
月经=menstrual period
疫苗|接种=vaccine vaccination
抗生素|消炎药=antibiotic antibiotics
抗病毒=antiviral
激素=steroid steroids corticosteroid
阿司匹林=aspirin
布洛芬=ibuprofen
对乙酰氨基酚|扑热息痛=acetaminophen paracetamol
阿莫西林=amoxicillin
头孢=cephalosporin
奥美拉唑=omeprazole
他汀=statin statins
华法林=warfarin
氨氯地平=amlodipine
阿奇霉素=azithromycin
干扰素=interferon
喝酒|饮酒|戒酒|啤酒|白酒=alcohol
吸烟|抽烟|戒烟=smoking
运动|锻炼=exercise activity
饮食|清淡=diet foods eat
蔬菜|水果=vegetables fruits
低盐|少盐|盐=salt sodium
多喝水|喝水|饮水=water fluids
休息=rest
洗手=wash hands
口罩=mask masks
隔离=isolation isolate quarantine
肥胖|减肥|体重=weight obesity
手术=surgery
化疗=chemotherapy
放疗=radiation
透析=dialysis
胃镜=endoscopy
肠镜=colonoscopy
胸片=x-ray
CT=ct
核磁=mri
B超|超声|彩超=ultrasound
心电图=electrocardiogram ecg ekg
血常规=blood count
核酸=pcr
病毒=virus viral viruses
细菌=bacteria bacterial
遗传=genetic inherited
传染=contagious spread
""".strip().splitlines()
    if "=" in line
)
"""(Chinese spellings joined by |, English words joined by a space): enough to look a claim up in English text."""


def glosses(text: str) -> list[tuple[str, list[str]]]:
    """(the spelling found, its English words) for each term of the glossary that the text holds."""
    found = []
    for spelling, english in GLOSSARY:
        held = max((s for s in spelling.split("|") if s in text), key=len, default="")
        if held:
            found.append((held, english.split()))
    return found


def clinical_words(text: str) -> list[str]:
    """The clinical words of a Chinese text, in order."""
    return CLINICAL.findall(text)
