"""English word lists: what is clinical, what a drug looks like, what carries no content."""

import re
from typing import Final

from medlive.llm.rules.text import stem, words

_SYMPTOMS: Final = """
ache aching achy pain painful hurt hurts sore soreness tender tenderness burn burning sting cramp cramping
spasm twitch twitching stiff stiffness numb numbness tingle tingling weak weakness fatigue tired tiredness
exhausted lethargic dizzy dizziness vertigo lightheaded faint fainting blackout seizure fit convulsion
tremor shaking shiver chills fever feverish temperature sweat sweating headache migraine nausea nauseous
nauseated vomit vomiting diarrhea diarrhoea constipation constipated bloating bloated gas gassy heartburn
reflux indigestion belching acidity appetite weight itch itching itchy rash hives redness bruise bruising
swelling swollen swell lump bump nodule blister pimple acne spots lesion wound cut ulcer discharge pus
bleeding bleed blood bloody clots cough coughing sputum phlegm mucus wheeze wheezing breathless
breathlessness breathing breath breathe congestion congested runny sneeze sneezing snoring hoarse swallowing
palpitation palpitations heartbeat flutter insomnia sleepless sleep anxiety anxious panic depressed
depression suicidal mood hallucination memory confusion concentrate vision blurred blurry eyesight hearing
tinnitus ringing urine urination urinate urinating pee peeing stool stools faeces feces poop bowel movement
period periods menses menstrual menstruation spotting ovulation pregnant pregnancy miscarriage conceive
contraception erection erectile ejaculation libido semen sperm sexual intercourse masturbation impotence
infertility dandruff hairfall hair baldness limp jaundice pallor dehydration dehydrated obese obesity
overweight underweight craving withdrawal relapse symptom symptoms irritation inflamed inflammation infected
infection contagious allergic allergy allergies drowsy drowsiness restless restlessness irritable
irritability stress incontinence hiccups gag choke choking taste smell thirst thirsty flush flare flareup
scar pigmentation peeling dry dryness crack discoloration height growth puberty tall sex sexually i-pill
rogaine proscar sleepy injury injured fall fell fracture fractured broken sprain sprained bitten bite burnt
strain tear tore torn
"""
_BODY: Final = """
head scalp face forehead eye eyes ear ears nose nostril sinus mouth lip lips tongue tooth teeth gum gums jaw
throat tonsil tonsils neck shoulder arm arms elbow wrist hand hands finger fingers thumb nail nails chest
breast breasts nipple rib ribs lung lungs heart back spine spinal abdomen abdominal stomach belly tummy
navel gut intestine intestinal colon rectum rectal anus anal liver gallbladder bile pancreas spleen kidney
kidneys bladder ureter urethra prostate penis penile foreskin frenulum testicle testicles scrotum groin
vagina vaginal vulva labia uterus uterine cervix cervical ovary ovaries ovarian endometrium pelvis pelvic
hip hips thigh leg legs knee knees calf ankle foot feet heel toe toes skin muscle muscles joint joints bone
bones tendon ligament nerve nerves brain artery vein veins vessel lymph node nodes thyroid gland glands
pituitary adrenal bowel disc vertebra cartilage meniscus esophagus airway placenta toenail fingernail eyelid
eyebrow forearm earlobe armpit buttock shin fetus foetus baby embryo womb
"""
_CONDITIONS: Final = """
disease disorder syndrome condition diagnosis diagnosed cancer tumor tumour carcinoma lymphoma leukemia
melanoma metastasis malignant benign cyst polyp fibroid adenoma hernia stone stones gallstone calculus
diabetes diabetic hypertension hypertensive hypotension cholesterol triglycerides thyroiditis hypothyroidism
hypothyroid hyperthyroidism hyperthyroid goiter asthma asthmatic copd bronchitis pneumonia tuberculosis tb
covid coronavirus flu influenza cold virus viral bacteria bacterial fungal fungus yeast candida parasite
worms scabies lice malaria dengue typhoid hepatitis cirrhosis hiv aids herpes chlamydia gonorrhea syphilis
hpv warts std sti uti cystitis pyelonephritis prostatitis gastritis gerd ibs crohn colitis celiac
appendicitis diverticulitis pancreatitis hemorrhoids piles fissure fistula abscess cellulitis eczema
psoriasis dermatitis vitiligo rosacea shingles chickenpox measles mumps anemia anaemia thalassemia
hemophilia thrombosis dvt embolism stroke tia aneurysm angina infarction arrhythmia fibrillation tachycardia
bradycardia murmur cardiomyopathy myopathy arthritis osteoarthritis rheumatoid gout lupus fibromyalgia
osteoporosis scoliosis sciatica stenosis spondylosis spondylitis neuropathy epilepsy parkinson alzheimer
dementia sclerosis als meningitis concussion bipolar schizophrenia ocd adhd autism ptsd addiction alcoholism
glaucoma cataract conjunctivitis myopia pcos pcod endometriosis menopause eclampsia preeclampsia gestational
ectopic varicocele hydrocele phimosis deficiency insipidus septic sepsis pus otitis tonsillitis sinusitis
rhinitis pharyngitis laryngitis cavity caries gingivitis tmj bunion lipoma keloid ketoacidosis edema oedema
effusion pleurisy fibrosis emphysema apnea clot clotting hemorrhage haemorrhage lymphadenopathy enlarged
fatty coma paralysis paralyzed palsy overdose poisoning intoxication toxicity carrier immune autoimmune
congenital chronic acute surgery surgical operation operated procedure transplant amputation hysterectomy
appendectomy cholecystectomy vasectomy circumcision cesarean delivery postpartum lactation lactating
breastfeeding quarantine exposure exposed infected incubation
"""
_TESTS: Final = """
test tests tested blood-test scan scans mri ct xray x-ray ultrasound usg sonography echo echocardiogram ecg
ekg eeg emg ncv endoscopy colonoscopy bronchoscopy biopsy angiogram angiography cystoscopy mammogram pap
smear culture spirometry hemoglobin haemoglobin hb hgb platelet platelets wbc rbc esr crp glucose sugar
hba1c insulin creatinine urea egfr gfr bilirubin sgot sgpt ast alt alp ggt albumin tsh t3 t4 ft4 cortisol
prolactin testosterone estrogen progesterone fsh lh amh hcg psa cea afp ana anca dna rna pcr elisa antibody
antibodies antigen titer igg igm potassium sodium calcium magnesium ferritin iron vitamin folate b12 d3 ldl
hdl vldl troponin bnp dimer inr aptt bp pulse oximeter oxygen saturation spo2 bmi electrolytes urinalysis
leukocytes neutrophils eosinophils lymphocytes motility viral-load cd4 mantoux igra audiometry dexa pet lft
kft rft cbc ck ef fev1 hematocrit ketones
"""
_CARE: Final = """
medicine medicines medication medications medicated meds drug drugs tablet tablets pill pills capsule
capsules dose dosage doses injection injections injected shot syrup drops ointment cream lotion gel spray
inhaler nebulizer patch infusion vaccine vaccines vaccinated vaccination booster antibiotic antibiotics
painkiller painkillers analgesic steroid steroids antihistamine antihistamines antacid antacids
antidepressant antidepressants laxative diuretic probiotics probiotic supplement supplements contraceptive
ocp chemo chemotherapy radiotherapy radiation dialysis therapy therapies treatment treatments treat treated
physiotherapy counseling cbt psychotherapy braces crown filling extraction implant implants denture stent
pacemaker bypass catheter suture sutures stitches bandage dressing cast brace splint ivf iui icsi smoke
smoking smoker cigarettes tobacco alcohol drinker drinking vape cannabis marijuana cocaine diet dietary
exercise exercises hydration fluids fiber sodium caffeine nsaid nsaids ssri ppi statin statins antiviral
antifungal hormone hormonal hrt retinoid peroxide sunscreen moisturizer anesthesia anticoagulant thinner
thinners side-effect adverse interaction contraindicated hygiene gargle inhalation steam compress massage
rest physiotherapist vitamins mineral omega protein gluten salt mask distancing isolate isolation
"""
_DRUG_NAMES: Final = """
aspirin paracetamol acetaminophen tylenol panadol crocin ibuprofen advil motrin naproxen aleve diclofenac
ketorolac tramadol codeine morphine oxycodone hydrocodone fentanyl methadone buprenorphine suboxone
naltrexone gabapentin pregabalin lyrica amitriptyline nortriptyline sertraline zoloft lexapro prozac paxil
cymbalta effexor wellbutrin bupropion xanax valium ativan klonopin ambien lithium seroquel abilify risperdal
zyprexa adderall ritalin metformin insulin glimepiride gliclazide januvia ozempic semaglutide levothyroxine
thyroxine synthroid eltroxin thyronorm warfarin coumadin heparin clopidogrel plavix digoxin amiodarone
furosemide lasix spironolactone hydrochlorothiazide lipitor crestor amoxicillin augmentin doxycycline
metronidazole flagyl ciprofloxacin cipro bactrim nitrofurantoin rifampicin rifaximin isoniazid ethambutol
pyrazinamide ivermectin albendazole acyclovir valacyclovir oseltamivir tamiflu remdesivir hydroxychloroquine
chloroquine nystatin terbinafine omeprazole prilosec nexium pantocid ranitidine zantac famotidine
domperidone metoclopramide loperamide imodium ors montelukast salbutamol albuterol ventolin seroflo
budesonide fluticasone flonase prednisone prednisolone dexamethasone hydrocortisone betamethasone medrol
cetirizine zyrtec loratadine claritin benadryl mucinex robitussin nyquil guaifenesin dextromethorphan
pseudoephedrine sudafed methotrexate azathioprine rituximab humira enbrel allopurinol febuxostat colchicine
tamsulosin finasteride propecia minoxidil viagra sildenafil cialis tadalafil clomid letrozole duphaston
provera depo mirena yasmin plan-b misoprostol mifepristone tretinoin accutane isotretinoin clobetasol
mupirocin botox biotin melatonin caffeine nicotine penicillin azithromycin zithromax zpack keflex cephalexin
cefixime ceftriaxone levofloxacin levaquin clindamycin vancomycin tranexamic iron folic sumatriptan
topiramate levetiracetam keppra valproate depakote carbamazepine tegretol phenytoin dilantin lamotrigine
benzoyl salicylic hydroquinone lisinopril losartan amlodipine metoprolol atenolol propranolol telmisartan
ramipril nitroglycerin calcium zinc magnesium probiotic bismol tums psyllium lactulose pepto glycolic
permethrin
"""
DRUG: Final = re.compile(
    r"[a-z]{2,}(?:cillin|mycin|micin|floxacin|conazole|prazole|nidazole|dazole|bendazole|pril|"
    r"sartan|olol|statin|"
    r"dipine|tidine|profen|oxicam|coxib|azepam|zolam|triptan|gliptin|gliflozin|glitazone|formin|"
    r"parin|xaban|gatran|"
    r"umab|ximab|zumab|tinib|ciclib|navir|tegravir|ciclovir|vudine|sone|solone|nolone|terol|tropium|setron|"
    r"oxetine|pramine|triptyline|thiazide|semide|lukast|cycline|caine|barbital|apine|idone|"
    r"piprazole|perazine|"
    r"dronate|dronic|estradiol|gestrel|gesterone|lamide|thyronine|oxacin|amycin|kinra|glutide|pentin|racetam|"
    r"kacin|penem|quine|ridone|sulfate|cef[a-z]+)"
)
_NOT_DRUG: Final = frozenset(
    ("personalone", "someone", "bygone", "milestone", "caine", "ozone", "quine", "estone")
)
_STOP: Final = """
a an the and or but if so as at by for from in into of on to with without within about above after again
against all also although always am any anyone anything are around be became because become been before
being below best better between both can cannot can't could did do does doing don't done down due during
each either else even ever every few first get gets getting give given go goes going gone good got had has
have having he her here hers him his how however i i'm i've ie is isn't it its itself just kind know last
least less let like likely long look made make makes many may me might mine more most much must my myself
near need needs never new next no nor not now off often ok once one only other others our out over own per
perhaps please possible possibly put quite rather really regarding right same say see seem seems she should
since some someone something soon still such sure take taken takes taking than that that's their them then
there these they thing things this those though three through till time times too two under until up upon us
use used using usually various very want was way we well went were what when where whether which while who
whom whose why will wish would yes yet you your yours yourself able actually already another away back based
call case cases cause caused causes certain check clear come common consider consult consultation day days
different doctor doctors dr e.g end etc feel feeling fine follow following form found four friend full
further general generally group happen hello help helps hi high hope important include including increase
increased information keep large later lead leads level levels little low lower main man mean means medical
mild moderate month months morning night normal normally number occur occurs old online opinion order part
people person patient patients place present problem problems provide question query range reason recommend
recommended reduce reduced related report require required result results s severe several side significant
similar simple situation small specialist start started state stop strong suggest suggested support tell
thank thanks think today total try turn type types week weeks whole wife woman women work worry worse year
years children child adult adults men husband mother father son daughter age aged daily advise advised
suggestion avoid avoided treatment treat treated treating symptom symptoms disease diseases condition
conditions medicine medicines medication medications therapy drug drugs dose doses test tests physician body
health healthy life risk sign signs study studies effective effect effects safe
"""
CONTENT_STOP: Final = frozenset(stem(w) for w in _STOP.split())
"""Stems that say nothing about what a sentence is about."""
DRUGS: Final = frozenset(stem(w) for w in _DRUG_NAMES.split())
"""Stems of drug and active-ingredient names that carry no telling suffix, and common brands."""
CLINICAL: Final = frozenset(
    stem(w) for w in f"{_SYMPTOMS} {_BODY} {_CONDITIONS} {_TESTS} {_CARE} {_DRUG_NAMES}".split()
)
"""Stems of words that make a sentence clinical."""
_VAGUE: Final = """
cut fall fell fit sex height growth tall sleepy hair weight sleep rest back face hand hands head heart cold
period test tests dry taste smell movement stress temperature gas shot drug drugs medicine medicines
medication condition treatment treat treatments treated symptom symptoms problem disease therapy diagnosis
diagnosed procedure surgery operation tear broken exposure drops cast patch crown filling delivery exercise
diet salt mask massage steam drinking baby dose tablet tablets pill pills doses sugar blood sore stone
"""
VAGUE: Final = frozenset(stem(w) for w in _VAGUE.split())
"""Stems of clinical words that name nothing in particular."""
_SUFFIX: Final = re.compile(
    r"[a-z]{3,}(?:itis|osis|emia|aemia|uria|algia|pathy|ectomy|otomy|ostomy|oscopy|plasty|oma|"
    r"plasia|lasia|plegia|paresis|"
    r"trophy|penia|rrhea|rrhoea|megaly|sclerosis|graphy|opathy|cele|phobia|dynia|thorax|lysis)"
)
_NOT_SUFFIX: Final = frozenset(
    ["sympathy", "diploma", "aroma", "coma", "photography", "geography", "biography", "analysis", "diagnosis"]
)


def is_drug(word: str) -> bool:
    """Whether an English word names a drug."""
    return stem(word) in DRUGS or (word not in _NOT_DRUG and DRUG.fullmatch(word) is not None)


def clinical_words(text: str) -> list[str]:
    """The clinical words of an English text, as stems, in order."""
    return [
        stem(w)
        for w in words(text)
        if stem(w) in CLINICAL or is_drug(w) or (w not in _NOT_SUFFIX and _SUFFIX.fullmatch(w) is not None)
    ]


def specific_words(text: str) -> list[str]:
    """The clinical words that also name something in particular (not "treatment", "test", "head")."""
    return [w for w in clinical_words(text) if w not in VAGUE]


def content_words(text: str) -> list[str]:
    """The words that carry content, as stems, numbers among them."""
    return [stem(w) for w in words(text) if stem(w) not in CONTENT_STOP and (len(w) > 1 or w.isdigit())]
