// Search over the public cases. What is shown of each comes at once; the texts, which are ten times as much, when the
// first word is typed. Each word has to occur. Without words and filters the page stays as it was sent.

const STEP = 100;
const FIELDS = ["language", "specialty", "theme", "difficulty"];
const form = document.querySelector("#search");
const list = document.querySelector("#cases tbody");
const status = document.querySelector("#status");
const more = document.querySelector("#more");
const pages = document.querySelector("#pages");
const sent = { rows: [...(list?.rows ?? [])], status: status?.textContent };
let cases = [];
let texts = null; // Not asked for yet
let matches = [];
let shown = 0;

const value = (name) => form.elements.namedItem(name).value;
const getJson = async (name) => {
  const answer = await fetch(`${form.dataset.root}data/${name}.json`);
  if (!answer.ok) throw new Error(`data/${name}.json: ${answer.status}`);
  return answer.json();
};

function cell(name, text, kind = "") {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = kind;
  return made;
}

function row(entry) {
  const made = document.createElement("tr");
  const head = document.createElement("th");
  head.scope = "row";
  const link = cell("a", entry.id);
  link.href = form.dataset.root + entry.page;
  head.append(link);
  const question = cell("td", entry.query, "text");
  question.lang = entry.language;
  made.append(head, question, cell("td", entry.specialty), cell("td", entry.theme), cell("td", entry.posted, "n"));
  return made;
}

function showMore() {
  list.append(...matches.slice(shown, shown + STEP).map(row));
  shown = Math.min(shown + STEP, matches.length);
  more.hidden = shown === matches.length;
  const first = shown < matches.length ? `, here the first ${shown}` : "";
  const loading = texts && !texts.length && value("words") ? "; so far searched in questions alone" : "";
  status.textContent = `${matches.length} of ${cases.length} cases${first}${loading}`;
}

function search() {
  const words = value("words").toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = FIELDS.map((name) => [name, value(name)]).filter(([, chosen]) => chosen);
  const query = new URLSearchParams(wanted);
  if (words.length) query.set("words", words.join(" "));
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
  if (words.length && texts === null) fetchTexts();
  const filtered = query.size > 0;
  if (pages) pages.hidden = filtered;
  if (!filtered) {
    list.replaceChildren(...sent.rows);
    more.hidden = true;
    status.textContent = sent.status;
    return;
  }
  matches = cases.filter((entry, place) => {
    const text = `${entry.id} ${entry.query} ${texts?.[place] ?? ""}`.toLowerCase();
    return wanted.every(([name, chosen]) => entry[name] === chosen) && words.every((word) => text.includes(word));
  });
  list.replaceChildren();
  shown = 0;
  showMore();
}

async function fetchTexts() {
  texts = [];
  try {
    texts = await getJson("texts");
    search();
  } catch (error) {
    status.textContent += ` (${error.message})`;
  }
}

async function start() {
  const query = new URLSearchParams(location.search);
  for (const name of ["words", ...FIELDS]) {
    if (query.has(name)) form.elements.namedItem(name).value = query.get(name);
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  cases = await getJson("cases");
  form.addEventListener("input", search);
  more.addEventListener("click", showMore);
  search();
}

if (form) {
  start().catch((error) => {
    status.textContent = `Search is not available (${error.message}); the list below is complete.`;
  });
}
