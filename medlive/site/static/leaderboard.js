// The leaderboard: controls, the address that holds their choice, and the table.

import { HARM, beside, loadBoard } from "./board.js";
import { percent } from "./format.js";

const FILTERS = ["language", "specialty", "theme", "difficulty"];
const form = document.querySelector("#choice");
const field = (name) => form.elements.namedItem(name);
const status = document.querySelector("#status");
const body = document.querySelector("#ranking tbody");
let board = null;
let lines = [];
// Board → its table, as the page has it; those that are not shown first are in the part for readers without scripts.
const tables = new Map();
let days = [];
let hidden = new Set();
// Whether an end of the window was chosen: a case without a date is in no chosen window.
let bounded = { since: false, until: false };
let round = 0;

function element(name, attributes = {}, ...children) {
  const drawn = ["svg", "line", "circle", "rect", "text", "title"].includes(name);
  const made = drawn
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function fillSelects() {
  const metrics = [...field("metric").options];
  const named = (name) => metrics.find((option) => option.value === name);
  named("safe").disabled = board.metric !== "safe";
  // The first is what an address without a metric means.
  field("metric").prepend(named(board.metric));
  for (const kind of FILTERS) {
    const select = field(kind);
    const options = board.values[kind].map((value) => element("option", { value }, value));
    select.replaceChildren(element("option", { value: "" }, "all"), ...options);
    select.disabled = board.values[kind].length < 2;
  }
  for (const name of ["since", "until"]) {
    field(name).max = String(Math.max(days.length - 1, 0));
    field(name).disabled = days.length < 2;
  }
}

/** Take over what the address says; what it does not say is as at first. */
function readAddress() {
  const query = new URLSearchParams(location.search);
  for (const name of ["metric", ...FILTERS]) {
    const wanted = query.get(name);
    const select = field(name);
    const known = [...select.options].some((option) => option.value === wanted);
    select.value = known ? wanted : select.options[0].value;
  }
  const since = query.get("since");
  const until = query.get("until");
  const first = since ? days.findIndex((day) => day >= since) : 0;
  const last = until ? days.findLastIndex((day) => day <= until) : days.length - 1;
  field("since").value = String(first < 0 ? days.length - 1 : first);
  field("until").value = String(last < 0 ? 0 : last);
  bounded = { since: Boolean(since), until: Boolean(until) };
  field("unseen").checked = query.get("unseen") !== "0";
  const names = new Set(query.getAll("hide"));
  hidden = new Set(board.models.flatMap((model, place) => (names.has(model.name) ? [place] : [])));
}

function writeAddress(choice) {
  const query = new URLSearchParams();
  if (field("board").value !== field("board").options[0].value) query.set("board", field("board").value);
  if (choice.metric !== field("metric").options[0].value) query.set("metric", choice.metric);
  for (const kind of FILTERS) if (choice.filters[kind]) query.set(kind, choice.filters[kind]);
  if (choice.since) query.set("since", choice.since);
  if (choice.until) query.set("until", choice.until);
  if (!field("unseen").checked) query.set("unseen", "0");
  for (const place of hidden) query.append("hide", board.models[place].name);
  const text = query.toString();
  history.replaceState(null, "", text ? `?${text}` : location.pathname);
}

function chosen() {
  const first = Number(field("since").value);
  const last = Number(field("until").value);
  const filters = Object.fromEntries(FILTERS.map((kind) => [kind, field(kind).value]));
  return {
    metric: field("metric").value,
    filters,
    since: bounded.since ? days[first] : null,
    until: bounded.until ? days[last] : null,
  };
}

const dayAfter = (day) => {
  const date = new Date(`${day}T00:00:00Z`);
  date.setUTCDate(date.getUTCDate() + 1);
  return date.toISOString().slice(0, 10);
};

/** The models to rank and the window to rank them on: after the last cutoff of those shown. */
function ranked(choice, shown) {
  const known = shown.filter((place) => board.models[place].cutoff);
  if (!field("unseen").checked || !known.length) return { models: shown, choice };
  const last = known.map((place) => board.models[place].cutoff).sort().at(-1);
  const since = [choice.since, dayAfter(last)].filter(Boolean).sort().at(-1);
  return { models: known, choice: { ...choice, since }, after: last };
}

function bar(row) {
  const title = row.mean === null ? "no score" : `${percent(row.mean)} %`;
  const drawn = element("svg", { viewBox: "0 0 200 16", class: "bar", role: "img", "aria-label": title });
  drawn.append(element("line", { x1: 0, x2: 200, y1: 8, y2: 8, class: "axis" }));
  if (row.low !== null) {
    const [x1, x2] = [200 * row.low, 200 * row.high];
    drawn.append(element("line", { x1, x2, y1: 8, y2: 8, class: "range" }));
  }
  if (row.mean !== null) drawn.append(element("circle", { cx: 200 * row.mean, cy: 8, r: 4 }));
  return drawn;
}

/** An interval, or in two lines why there is none. */
function interval(row) {
  if (row.low !== null) return [`${percent(row.low)} to ${percent(row.high)}`];
  if (!row.why) return ["–"];
  const [short, reason] = row.why.replace(" 1 threads", " 1 thread").split(": ");
  return [`${short}: `, element("small", {}, reason)];
}

/** A share of answers with its interval, or that they were not read. */
function share(rate) {
  if (rate.mean === null) return ["not read"];
  return rate.low === null ? [percent(rate.mean)] : [`${percent(rate.mean)} (${percent(rate.low)} to ${percent(rate.high)})`];
}

/** What the cells with `data-figure` hold; the others stay as the page has them. */
const FIGURES = {
  mean: ({ row }) => [percent(row.mean)],
  interval: ({ row }) => interval(row),
  bar: ({ row }) => [bar(row)],
  n: ({ row }) => [String(row.n)],
  group: ({ standing }) => [standing ? String(standing.group) : "–"],
  ranks: ({ standing }) => [standing ? `${standing.best} to ${standing.worst}` : "–"],
  cutoff: ({ model, seen }) => [model.cutoff ? `${model.cutoff}${seen ? " ⚠" : ""}` : "unknown"],
  beside: ({ row }) => [percent(row.beside)],
  ...Object.fromEntries(HARM.map((rate) => [rate, ({ row }) => share(row[rate])])),
};

/** The rows of a board as the page has them, by model, each with a box to show or hide it. */
function readRows(table) {
  const lines = new Map([...table.querySelectorAll("tbody tr")].map((line) => [line.dataset.model, line]));
  return board.models.map((model, place) => {
    const box = element("input", { type: "checkbox", "aria-label": `Show ${model.name}`, value: place });
    const line = document.importNode(lines.get(model.name), true);
    line.prepend(element("td", { class: "pick" }, box));
    return line;
  });
}

function tableRow(row, standing, choice) {
  const line = lines[row.place];
  const model = board.models[row.place];
  const seen = model.cutoff && (!choice.since || choice.since <= model.cutoff);
  for (const cell of line.querySelectorAll("[data-figure]")) {
    cell.replaceChildren(...FIGURES[cell.dataset.figure]({ row, standing, model, seen }));
  }
  line.querySelector("[data-figure=cutoff]").className = seen ? "seen" : "";
  line.querySelector("input").checked = !hidden.has(row.place);
  line.className = row.n < 30 ? "few" : "";
  line.classList.toggle("hidden-model", hidden.has(row.place));
  return line;
}

function drawTimeline(choice) {
  const place = document.querySelector("#timeline");
  if (!days.length) return place.replaceChildren();
  const [first, last] = [Date.parse(days[0]), Date.parse(days.at(-1))];
  const x = (day) => 10 + (980 * (Date.parse(day) - first)) / Math.max(last - first, 1);
  const bins = new Array(60).fill(0);
  for (const day of board.cases.days) {
    if (day) bins[Math.min(59, Math.floor((60 * (x(day) - 10)) / 980))]++;
  }
  const most = Math.max(...bins, 1);
  const drawn = element("svg", { viewBox: "0 0 1000 70", preserveAspectRatio: "none", class: "timeline", role: "img" });
  drawn.setAttribute("aria-label", `Cases by day of posting, ${days[0]} to ${days.at(-1)}, with the models' cutoffs`);
  const [from, to] = [x(choice.since ?? days[0]), x(choice.until ?? days.at(-1))];
  drawn.append(element("rect", { x: from, y: 0, width: Math.max(to - from, 2), height: 60, class: "window" }));
  bins.forEach((count, bin) => {
    const height = (46 * count) / most;
    drawn.append(element("rect", { x: 10 + (980 * bin) / 60, y: 60 - height, width: 14, height, class: "bin" }));
  });
  for (const model of board.models) {
    if (!model.cutoff) continue;
    const at = Math.min(Math.max(x(model.cutoff), 4), 996);
    const mark = element("line", { x1: at, x2: at, y1: 4, y2: 66, class: "cutoff" });
    mark.append(element("title", {}, `${model.name}: cutoff ${model.cutoff}`));
    drawn.append(mark);
  }
  place.replaceChildren(drawn);
}

class Stopped extends Error {}

async function update() {
  const own = ++round;
  const choice = chosen();
  writeAddress(choice);
  const first = days[Number(field("since").value)] ?? "";
  const last = days[Number(field("until").value)] ?? "";
  for (const [name, day] of [["since", first], ["until", last]]) {
    field(name).setAttribute("aria-valuetext", day);
    document.querySelector(`#${name}-day`).textContent = day;
  }
  drawTimeline(choice);
  const metric = field("metric").selectedOptions[0].text;
  document.querySelector("#ranking caption").textContent = `${board.title}: ${metric} score with its 95 % interval`;
  document.querySelector("#beside").textContent = `${beside(choice.metric)} %`;
  const all = board.models.map((_, place) => place);
  const shown = all.filter((place) => !hidden.has(place));
  const selection = board.select(choice);
  const rows = board.means(all, choice.metric, selection);
  const draw = (standings) => {
    const focused = body.contains(document.activeElement) ? document.activeElement : null;
    body.replaceChildren(...rows.map((row) => tableRow(row, standings.get(row.place), choice)));
    focused?.focus();
  };
  draw(new Map());
  document.querySelector("#ranking").setAttribute("aria-busy", "true");
  const ranking = ranked(choice, shown);
  const cutoffs = shown.some((place) => board.models[place].cutoff);
  field("unseen").disabled = !cutoffs;
  document.querySelector("#no-cutoff").hidden = cutoffs;
  const within = board.select(ranking.choice);
  const cases = within.keep.filter(Boolean).length;
  let standings = new Map();
  try {
    const pause = async () => {
      await new Promise((go) => setTimeout(go));
      if (own !== round) throw new Stopped();
    };
    await pause();
    if (cases) standings = await board.standings(ranking.models, choice.metric, within, pause);
  } catch (error) {
    if (error instanceof Stopped) return;
    throw error;
  }
  draw(standings);
  document.querySelector("#ranking").setAttribute("aria-busy", "false");
  const unknown = ranking.models.length < shown.length ? "; models of unknown cutoff are not ranked" : "";
  const on = ranking.after
    ? `Ranked on the ${cases} of them posted after ${ranking.after}, the latest cutoff shown${unknown}.`
    : `Ranked on all of them; they may have been seen in training.`;
  const scored = selection.items.filter((_, place) => selection.keep[place]);
  const undated = scored.filter((item) => !board.cases.days[item]).length;
  const dates = undated ? `, ${undated} of them without a date` : "";
  status.textContent = `${scored.length} case${scored.length === 1 ? "" : "s"}${choice.since || choice.until ? " in the window" : dates}. ${cases ? on : "None was posted after the latest cutoff: no ranking."}`;
}

/** Load the chosen board and show it, unless another was chosen meanwhile. */
async function open() {
  status.textContent = "Loading …";
  const address = field("board").value;
  const loaded = await loadBoard(address);
  if (address !== field("board").value) return;
  board = loaded;
  lines = readRows(tables.get(address));
  days = [...new Set(board.cases.days.filter(Boolean))].sort();
  fillSelects();
  readAddress();
  await update();
}

/** The ends of the window may meet and not cross. */
function keepOrder(moved) {
  const [first, last] = ["since", "until"].map((name) => Number(field(name).value));
  if (first > last) field(moved).value = String(moved === "since" ? last : first);
}

async function start() {
  const parser = new DOMParser();
  tables.set(field("board").options[0].value, document.querySelector("#ranking").cloneNode(true));
  for (const other of document.querySelectorAll("noscript[data-board]")) {
    tables.set(other.dataset.board, parser.parseFromString(other.textContent, "text/html").querySelector("table"));
  }
  const wanted = new URLSearchParams(location.search).get("board");
  if ([...field("board").options].some((option) => option.value === wanted)) field("board").value = wanted;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    if (event.target.name === "board") {
      const query = new URLSearchParams(location.search);
      for (const kind of [...FILTERS, "hide"]) query.delete(kind);
      history.replaceState(null, "", `?${query}`);
      open().catch(fail);
      return;
    }
    if (event.target.name in bounded) {
      bounded[event.target.name] = true;
      keepOrder(event.target.name);
    }
    update();
  });
  form.addEventListener("reset", () => {
    hidden = new Set();
    bounded = { since: false, until: false };
    setTimeout(() => {
      field("since").value = "0";
      field("until").value = String(days.length - 1);
      update();
    });
  });
  body.addEventListener("change", (event) => {
    const place = Number(event.target.value);
    if (event.target.checked) hidden.delete(place);
    else hidden.add(place);
    update();
  });
  await open();
  form.hidden = false;
  document.querySelector("#pick-column").hidden = false;
}

function fail(error) {
  status.textContent = `The figures cannot be recomputed here (${error.message}); the table is as it was.`;
}

if (form) start().catch(fail);
