"""Short lists that redaction needs: Chinese surnames, cities, and words that only look like names.

Written for this project from general knowledge. Provinces, municipalities and countries are left out on
purpose, since only places finer than those identify a person.
"""

from typing import Final

_COMMON_SURNAMES = (
    "王李张刘陈杨黄赵吴周徐孙朱胡郭何罗梁宋郑韩唐冯董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡贾丁魏薛叶阎闫余潘"
    "杜戴夏钟汪姜范姚谭廖邹熊陆郝孔崔邱秦侯邵孟雷钱汤尹黎乔贺赖龚庞樊殷俞翁芦邢岳耿柳莫裴翟詹葛柴鲍覃"
    "霍尚柯阮涂聂焦祁牛蒲甘窦阳蓝宁褚佘卓梅滕鄂靳缪匡娄戚冉楚盛骆璩仇栾宣臧鞠倪凌喻牟桑茅肖揭"
)
SURNAMES: Final = frozenset(_COMMON_SURNAMES)
"""Surnames that are rarely the end of another word before a title."""

_AMBIGUOUS_SURNAMES = (
    "马林田石谢金白毛江史顾龙万段易常武文方高任于向关时安全成华明平严单应连管查过计包花水左边古祝项余"
    "戈申车侍路师辛温季鲁韦符洪米曲甄房伍伏游巫苗覃屈黎章柏岑束荣邬阙隆纪席司斯诸丛亓占冼康解艾欧"
)
RARE_SURNAMES: Final = frozenset(_AMBIGUOUS_SURNAMES) - SURNAMES
"""Surnames that are common words too: taken only where nothing but a mark or a greeting stands before."""

COMPOUND_SURNAMES: Final = (
    "欧阳", "上官", "司马", "诸葛", "司徒", "夏侯", "皇甫", "尉迟", "公孙", "慕容", "令狐", "东方",
    "端木", "长孙",
)  # fmt: skip

NOT_GIVEN: Final = frozenset(
    "的了我你他她您是在有不很到去看找请问和与给让说叫把被就都也还又再没想要能会可以对从向等及或但这那"
    "个些位谢医院科室级末围上下前后里中内外年月日时分点号多少大小老好吗呢吧啊么什何谁哪怎为因所而且如"
    "果天今昨明早晚午夜开刀药吃打针来回诊治疗病症检查出住做用见管床主任副专家教授值班责当"
)
"""Characters that given names do not hold, or that make another word of what stands before a title."""

NOT_BEFORE_TITLE: Final = frozenset(
    "副原正老科院内外找问请该各本个位的这那女男好名看见军中西村总些何哪谁每同经由据按听跟让叫是有无没"
    "多当我你他她您们前后两一二三四五六七八九十几数上下新旧小大邻家全区病治疗急门住诊校厂县乡镇市省代"
    "值班主管求喊盼故但而且等与及或可能会都也还又再就才只最更很太真谢和向对为给从到去来在把被"
)

_CITIES = """
石家庄 唐山 秦皇岛 邯郸 邢台 保定 张家口 承德 沧州 廊坊 衡水 太原 大同 阳泉 长治 晋城 朔州 晋中 运城
忻州 临汾 吕梁 呼和浩特 包头 乌海 赤峰 通辽 鄂尔多斯 呼伦贝尔 巴彦淖尔 乌兰察布 沈阳 大连 鞍山 抚顺
本溪 丹东 锦州 营口 阜新 辽阳 盘锦 铁岭 葫芦岛 长春 吉林市 四平 辽源 白山市 松原 白城 延边 哈尔滨
齐齐哈尔 鸡西 鹤岗 双鸭山 大庆 伊春 佳木斯 七台河 牡丹江 黑河市 绥化 南京 无锡 徐州 常州 苏州 南通
连云港 淮安 盐城 扬州 镇江 泰州 宿迁 杭州 宁波 温州 嘉兴 湖州 绍兴 金华 衢州 舟山 台州 丽水市 合肥 芜湖
蚌埠 淮南 马鞍山 淮北 铜陵 安庆 黄山市 滁州 阜阳 宿州 六安 亳州 池州 宣城 福州 厦门 莆田 三明市 泉州
漳州 南平市 龙岩 宁德 南昌 景德镇 萍乡 九江 新余 鹰潭 赣州 吉安 宜春 抚州 上饶 济南 青岛 淄博 枣庄 东营
烟台 潍坊 济宁 泰安 威海 日照市 临沂 德州市 聊城 滨州 菏泽 郑州 开封 洛阳 平顶山 安阳 鹤壁 新乡 焦作
濮阳 许昌 漯河 三门峡 南阳 商丘 信阳 周口 驻马店 武汉 黄石 十堰 宜昌 襄阳 鄂州 荆门 孝感 荆州 黄冈 咸宁
随州 恩施 长沙 株洲 湘潭 衡阳 邵阳 岳阳 常德 张家界 益阳 郴州 永州 怀化 娄底 湘西 广州 韶关 深圳 珠海
汕头 佛山 江门 湛江 茂名 肇庆 惠州 梅州 汕尾 河源 阳江 清远 东莞 中山市 潮州 揭阳 云浮 南宁 柳州 桂林
梧州 北海市 防城港 钦州 贵港 玉林 百色 贺州 河池 来宾市 崇左 海口 三亚 成都 自贡 攀枝花 泸州 德阳 绵阳
广元 遂宁 内江 乐山 南充 眉山 宜宾 广安 达州 雅安 巴中 资阳 贵阳 六盘水 遵义 安顺 毕节 铜仁 昆明 曲靖
玉溪 保山市 昭通 丽江 普洱 临沧 大理市 西双版纳 拉萨 日喀则 西安 铜川 宝鸡 咸阳 渭南 延安 汉中 榆林
安康市 商洛 兰州 嘉峪关 金昌 白银市 天水 武威 张掖 平凉 酒泉 庆阳 定西 陇南 西宁 海东 银川 石嘴山 吴忠
固原 中卫 乌鲁木齐 克拉玛依 吐鲁番 哈密 喀什 和田市 阿克苏 石河子 昆山 义乌 常熟 张家港 江阴 晋江 慈溪
浦东 海淀 朝阳区 丰台 通州 昌平 徐汇 闵行 台北 高雄 台中 台南
"""
_DOUBTFUL_CITIES_ZH_TEXT = (
    "大同 天水 保定 通州 昌平 宜春 普洱 平凉 固原 定西 海东 广安 长治 运城 娄底 高雄 东营 中卫 四平 信阳 安庆"
)
DOUBTFUL_CITIES_ZH: Final = frozenset(_DOUBTFUL_CITIES_ZH_TEXT.split())
"""Cities that also arise inside other words (医保定点, 不大同时): taken with 市 or after a word of place."""
CITIES_ZH: Final = tuple(sorted(_CITIES.split(), key=len, reverse=True))

_HOSPITALS = """
协和医院 华西医院 湘雅 同济医院 瑞金医院 华山医院 齐鲁医院 301医院 302医院 309医院 307医院 仁济医院
西京医院 唐都医院 安贞医院 阜外医院 天坛医院 宣武医院 积水潭医院 友谊医院 朝阳医院 世纪坛医院 地坛医院
佑安医院 同仁医院 盛京医院 邵逸夫医院 鼓楼医院 南方医院 珠江医院 西南医院 新桥医院 大坪医院 长海医院
长征医院 解放军总医院 浙一医院 浙二医院 孙逸仙纪念医院 金银潭医院 雷神山 火神山 方舱医院
"""
HOSPITALS_ZH: Final = tuple(sorted(_HOSPITALS.split(), key=len, reverse=True))

PROVINCES_ZH: Final = (
    "北京 上海 天津 重庆 河北 山西 辽宁 吉林 黑龙江 江苏 浙江 安徽 福建 江西 山东 河南 湖北 "
    "湖南 广东 海南 四川 贵州 云南 陕西 甘肃 青海 台湾 内蒙古 广西 西藏 宁夏 新疆 香港 澳门"
)

_CITIES_EN = """
Mumbai|Delhi|New Delhi|Bangalore|Bengaluru|Hyderabad|Chennai|Kolkata|Pune|Ahmedabad|Jaipur|Lucknow|
Kanpur|Nagpur|Indore|Bhopal|Patna|Vadodara|Surat|Ludhiana|Agra|Nashik|Coimbatore|Kochi|Cochin|
Trivandrum|Mysore|Visakhapatnam|Vijayawada|Guwahati|Chandigarh|Amritsar|Noida|Gurgaon|Madurai|Mangalore|
Karachi|Lahore|Islamabad|Rawalpindi|Peshawar|Dhaka|Chittagong|Colombo|Kathmandu|London|Manchester|
Birmingham|Liverpool|Leeds|Glasgow|Edinburgh|Bristol|Sheffield|Cardiff|Belfast|Dublin|New York City|
Los Angeles|Chicago|Houston|Philadelphia|San Antonio|San Diego|Dallas|San Jose|Austin|Fort Worth|
Columbus|Charlotte|San Francisco|Indianapolis|Seattle|Denver|Boston|Detroit|Nashville|Memphis|Portland|
Oklahoma City|Las Vegas|Baltimore|Milwaukee|Albuquerque|Sacramento|Kansas City|Atlanta|Miami|Oakland|
Minneapolis|Tulsa|Tampa|New Orleans|Cleveland|Pittsburgh|Cincinnati|St\\. Louis|Orlando|Phoenix|
Brooklyn|Manhattan|Toronto|Montreal|Vancouver|Calgary|Edmonton|Ottawa|Winnipeg|Sydney|Melbourne|
Brisbane|Perth|Adelaide|Auckland|Wellington|Johannesburg|Cape Town|Durban|Pretoria|Nairobi|Lagos|Abuja|
Accra|Cairo|Alexandria|Dubai|Abu Dhabi|Sharjah|Riyadh|Jeddah|Doha|Muscat|Tehran|Baghdad|Istanbul|Ankara|
Manila|Cebu|Quezon City|Jakarta|Surabaya|Kuala Lumpur|Penang|Bangkok|Hanoi|Ho Chi Minh City|Wuhan|
Guangzhou|Shenzhen|Tokyo|Osaka|Seoul|Paris|Berlin|Munich|Madrid|Barcelona|Rome|Milan|Athens|Moscow|
Amsterdam|Brussels|Vienna|Zurich|Stockholm|Oslo|Copenhagen|Helsinki|Warsaw
"""
CITIES_EN: Final = _CITIES_EN.replace("\n", "").strip()

_NOT_NAMES = """
throat pain people rather ran wil fever cough healthcare throughout head back chest stomach if with
a an and are as at be but by can could did do does for from get go good great had has have he hello
help here hi his how i if in is it its just let like may me more my need no not now of ok on one or our
please regards said say says see she should so some still sure take tell than thank thanks that the
their them then there these they this to told too up very want was we welcome well were what when where
which who why will with would yes yet you your again advance also always any doctor doctors doc dr sir
madam maam mam miss friend friends dear team all everyone everybody patient patients user member sister
brother bro folks guys group both specialist physician surgeon expert nurse mom mum dad mother father
male female man woman boy girl student teacher diabetic pregnant asthmatic married single hypertensive
allergic worried scared sorry fine sick ill healthy concerned suffering having taking feeling using
getting looking planning trying indian american british chinese african asian australian canadian
muslim hindu christian caucasian pakistani english based first last since during before after about
recently currently basically really only already never ever because monday tuesday wednesday thursday
friday saturday sunday january february march april may june july august september october november
december covid hiv aids std bp mri ct ecg ekg iv er icu gp ob gyn md mbbs phd prescribed gave advised
suggested asked recommended thinks thought checked ordered visit visited appointment office google
reddy's reddys pepper scholl strange house online whether while for consultation consult wants found
put saw examined started kept says believes diagnosed felt mentioned explained referred sent did does
doesn't didn't seems cannot can't won't wouldn't will regarding today yesterday tomorrow tonight hope
unfortunately however until til till unless name age years year old yrs yr months kg cm height weight
hospital clinic medicine medical health india usa uk couldn wouldn didn doesn isn wasn shouldn hasn haven
asap most likely type stage grade rh level phase group class gravida para
"""
NOT_NAMES_EN: Final = frozenset(_NOT_NAMES.split())

_GIVEN = """
aaron abby abdul abdullah abhishek abigail adam aditi aditya adnan adrian agnes ahmad ahmed aisha ajay akash
akshay alan albert alejandra alejandro alex alexander alexandra alexis alfred ali alice alicia alisha alison
allen allison alyssa amanda amelia amina amir amit amy anand ananya andrea andreas andrew andy angela angelica
anil anita anjali ankit ankita ann anna anne annette annie anthony antonio anuj anushka ariana arjun arthur arun
arvind asha ashish ashley ashok asif audrey ava ayesha barbara barry beatrice becky belinda ben benjamin bernard
beth bethany betty beverly bianca bilal bob bonnie brad bradley brandon brenda brendan brent brett brian brianna
bridget bruce bryan caitlin caleb calvin cameron camila carl carla carlos carmen carolina caroline carolyn
carrie casey cassandra catherine cathy cecilia chad charles charlie charlotte cheryl chloe chris christina
christine christopher cindy claire clara claudia clayton cody colin connie connor constance corey courtney craig
cristina curtis cynthia damien dan dana daniel daniela danielle danny darren dave david deb debbie deborah debra
deepa deepak deepika denise dennis derek devin diana diane diego dina divya dmitri dominic donald donna doris
dorothy doug douglas duncan dustin dylan eddie edgar edith eduardo edward edwin eileen elaine eleanor elena
elias elijah elisa elizabeth ella ellen ellie elsa emily emma enrique eric erica erik erika erin ernest esther
ethan eugene eva evan evelyn farah farhan fatima faye felicia felix fernando fiona fran frances francesca
francis francisco fred freddie frederick gabriel gabriela gareth gary gavin gaurav geeta gemma geoff george
gerald geraldine gina giovanni gita gladys glen glenn gloria gordon graham greg gregory gretchen gustavo hailey
hamza hana hannah hannibal hans harish harold harriet harry harsh hasan hassan heather hector heidi helen helena
henry herbert hilary howard hugo hussain ian ibrahim imran ines ingrid irene isaac isabel isabella isha ishaan
ivan jack jackie jackson jacob jacqueline jade jaime jake james jamie jane janet janice jared jasmine jason
javier jay jayden jean jeanette jeff jeffrey jen jenna jennifer jenny jeremy jerome jerry jesse jessica jessie
jill jim jimmy joan joann joanna joanne joe joel johan johanna john johnny jon jonah jonathan jordan jorge jose
joseph josephine josh joshua josie joyce juan juanita judith judy julia julian julie juliet justin jyoti kabir
karan karen karin karthik kate katelyn katherine kathleen kathryn kathy katie katrina kavita kavya kayla keith
kelly kelsey ken kendra kenneth kenny kerry kevin khalid kim kimberly kiran kirsten kishore komal krishna
kristen kristin kristina kumar kunal kyle lakshmi lance larry latoya laura lauren laurie lavanya leah lena leo
leon leonard leroy leslie liam lily linda lindsay lindsey lisa lois lola lorenzo loretta lori lorraine louis
louise luca lucas lucia lucy luis lukas luke lydia lynn mabel mackenzie madeline maggie mahesh malik mandy
manish manisha manoj manuel marc marcia marco marcus margaret maria mariah marian marie marilyn marina mario
marion marissa marjorie marlene marsha martha martin martina marvin mary maryam mateo mathew matt matteo matthew
maureen maurice maya meena meera megan meghan melanie melinda melissa meredith mia michael michaela michele
michelle miguel mike mila mildred mindy miranda miriam mitchell mohamed mohammad mohammed mohan mohit molly mona
monica monique morgan muhammad myra nadia nancy naomi natalia natalie natasha nathan nathaniel naveen neeraj
neha neil nicholas nick nicola nicolas nicole nikhil nikita nina nisha nitin noah noel nora norma norman olga
oliver olivia omar oscar pablo pallavi pam pamela patricia patrick paul paula pauline pedro peggy pete peter
phil philip phillip phyllis pooja poonam pradeep prakash pranav prashant preeti priya priyanka puja rachel radha
rafael rahul raj rajesh rajiv rakesh ralph ramesh ramon randy rashid raul ravi raymond rebecca reena regina
rekha renee reshma ricardo richard rick ricky riley rina rita ritu riya rob robert roberta roberto rochelle
rodney rodrigo roger rohan rohit roland ron ronald ronnie rosa rosalind rosemary rosie ross roxanne roy ruben
russell ruth ryan sabrina sadia sally sam samantha samir samuel sana sandeep sandra sangeeta sanjay santiago
santosh sara sarah sasha saul scott sean sebastian seema serena sergio seth shannon sharon shaun shawn sheila
shelby shelley sherry shirley shivani shreya shweta sidney simon simone simran sneha sofia sonia sonya sophia
sophie stacey stacy stan stanley steph stephanie stephen steve steven stuart sudha suman sumit sunil sunita
suresh susan susanna susie suzanne swati sylvia tamara tammy tania tanvi tanya tara tariq tasha ted teresa terri
thelma theo theodore theresa thomas tiffany tim timothy tina toby todd tom tommy toni tony tracey tracy travis
trevor tricia troy tyler uma umar usha usman valerie vanessa varun veronica vicky victor victoria vijay vikas
vikram vincent vinod vishal vivek vivian wanda warren wayne wendy wesley whitney wilhelm william willie winston
xavier yasmin yolanda yusuf yvonne zach zachary zainab zara zoe
"""
GIVEN_EN: Final = frozenset(_GIVEN.split())
"""Given names that are no everyday word in small letters."""

_GIVEN_WORDS = """
ana max don jan dale dawn amber crystal daisy hazel holly penny sandy iris melody april destiny ram carol
dean jesus may
sage summer aria frankie robin terry mercedes virginia georgia dallas austin sydney paris florence chelsea
madison savannah logan miles chance stella norm gail
faith grace hope joy rose ruby violet ivy olive summer autumn june may mark bill will rich art drew frank
gene grant guy jewel
lee miles pat pearl ray sky sue ginger heath jade christian chase cliff clay angel bob chip destiny dean
dolly eve faye gay
glen jack jay mason melody norm penny pierce reed sage skip skye star sterling sunny trinity wade ward
willow wren zen kit nat
"""
GIVEN_WORDS_EN: Final = frozenset(_GIVEN_WORDS.split())
"""Given names that are words too: taken only with a capital letter, after an introduction."""

_SURNAMES_EN_TEXT = """
adams agarwal ahmed alexander ali allen alvarez andersen anderson andrews armstrong arora bailey baker
banerjee barnes bell bennett
bhatt bhattacharya brooks brown bryant butler campbell carter castillo castro chan chandra chang chatterjee
chaudhary chavez
chen cheng choi chopra chowdhury clark clarke coleman collins cooper cox cruz das davies davis desai diaz
dixon doe dubey
edwards ellis evans fernandes fernandez fischer fisher flores foster fox garcia gibson goldberg gomez
gonzales gonzalez
gordon graham gray green griffin gupta gutierrez hall hamilton harris harrison hayes henderson henry
hernandez hill hoffman
hossain howard huang hughes hussain hussein hwang iyer jackson jain james jenkins jensen jimenez johnson
jones jordan joshi
kapoor kaur kelly kennedy khan kim king klein knight kowalski kumar lam lambert larsen lee lewis li lin liu
long lopez
malhotra malik marshall martin martinez mason matthews mcdonald mehta mendoza menon meyer miller mishra
mitchell mohammed moore
morales moreno morgan morris mukherjee muller murphy murray myers nair nelson nguyen nielsen novak obrien
ortiz owens pandey
park parker patel patil patterson perera perez perry peterson pham phillips pillai powell prasad price
qureshi ramirez
ramos rao reddy reed reyes reynolds rice richardson rivera roberts robinson rodriguez rogers romero ross
rossi roy ruiz
russell ryan sanchez sanders santos saxena schmidt schneider schultz scott shah shaikh sharma shaw shen
siddiqui silva
simmons singh sinha smith srinivasan stevens stewart subramanian sullivan sun sweeney tan tanaka taylor
thakur thomas thompson
torres tran tucker turner varma vasquez verma wagner walker wallace wang ward washington watson weber webb
wells west white
williams wilson wong wood woods wright wu xu yadav yamamoto yang young yu zhang zhao zhou zhu zimmerman
o'brien o'connor o'neill
"""
SURNAMES_EN: Final = frozenset(_SURNAMES_EN_TEXT.split())

_SURNAME_WORDS = """
long young brown white black green hall king price rice wood woods hill bell fox gray cox day love baker
west reed park walker turner
mason knight foster cooper tucker ward wells sun ross bryant low tan lam das silva rao chan grant may choi
ram ray kay mai lee li shah
moore short sharp small little best stone banks rivers fields marsh pope church major noble
"""
SURNAME_WORDS_EN: Final = frozenset(_SURNAME_WORDS.split())
"""Surnames that are words too, or too short: never taken in small letters without a title."""

_EVERYDAY = """
gave told said says asked came ordered wanted thinks thought never just also put has had was is will would
can could may
prescribed suggested advised recommended diagnosed checked examined looked saw called sent did does do
didn't doesn't
isn't won't wasn't visit visits appointment office about at in on to for from and or but so if then again
back today
yesterday next first second regular own new old other another good bad best same who what when where which
that this these
those my your his her our their i you he she we they it its one two three some any every each all no not
yet still only
google shopping hopping house strange pepper a an the as by with without before after because since until
than practitioner
nurse nurses assistant of please pls plz thanks thank sir madam i'm i've hello hi reading scan result
results report reports
mri scans test tests line lines room time times day days week weeks month months year years out up down
over under off
keeps kept keep tried try tries seems seemed seem mentioned explained referred confirmed insists insisted
agreed refused
refuses wants needs need believes feel feels felt knows knew know let lets started start stopped stop took
take takes took
increased reduced changed switched added removed made make makes did done gives giving give telling tell
tells saying say
think see seen sees should shall must might here there how why now later soon ever always often sometimes
really very too
"""
NOT_AFTER_TITLE_EN: Final = frozenset(_EVERYDAY.split())
"""Words that follow "dr" written small without being a name."""
