"use strict";
/* Filters the table of cases that is on the page already, and saves what it shows. Nothing is fetched; what words
   are looked for in is loaded from the folder search/ beside the page, when there are words to look for. Text from
   models and forums is only ever compared or written as text. */
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const form = document.getElementById("filters");
  const field = (name) => form.elements.namedItem(name);
  const rows = Array.from(document.querySelectorAll("#cases tbody tr"));
  const scoreCells = rows.map((row) => row.cells[1]);
  const stateCells = rows.map((row) => row.cells[2]);
  const body = document.querySelector("#cases tbody");
  const count = document.getElementById("count");
  const kinds = ["month", "language", "specialty", "theme", "source"];
  const states = { s: "scored", p: "partly graded", u: "unanswered", x: "unscorable", "-": "not in the run" };

  /* A model's mark on a case: a score where it has one and is wholly graded, else [state, score or null]. */
  const stateOf = (mark) => (typeof mark === "number" ? "s" : mark[0]);
  const scoreOf = (mark) => (typeof mark === "number" ? mark : mark[1]);
  const mean = (marks) => {
    const known = marks.map(scoreOf).filter((x) => x !== null);
    return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
  };
  const chosen = () => (field("model").value === "" ? null : Number(field("model").value));
  const shownMarks = (entry, model) => (model === null ? entry.marks : [entry.marks[model]]);

  /* Texts to look into come in parts: the cases' own ("case") and each model's ("m0", "m1", ...). */
  const KEPT = 60e6;
  const kept = new Map();
  const waiting = new Map();
  window.medlive = (part, packed) => waiting.get(part)?.(packed);

  async function unpack(packed) {
    const text = atob(packed);
    const bytes = new Uint8Array(text.length);
    for (let k = 0; k < text.length; k += 1) bytes[k] = text.charCodeAt(k);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return (await new Response(stream).text()).toLowerCase().split("\u0000");
  }

  async function texts(part) {
    if (kept.has(part)) return kept.get(part);
    const script = document.createElement("script");
    const packed = await new Promise((resolve, reject) => {
      waiting.set(part, resolve);
      script.onerror = () => reject(new Error(part));
      script.src = "search/" + data.list + "-" + part + ".js";
      document.head.append(script);
    });
    script.remove();
    const found = await unpack(packed);
    kept.set(part, found);
    /* Answers of many models are more than a browser should hold: the earliest are let go of. */
    let size = 0;
    for (const one of kept.values()) size += one.reduce((sum, text) => sum + text.length, 0);
    for (const [name, one] of kept) {
      if (size <= KEPT || name === part) break;
      size -= one.reduce((sum, text) => sum + text.length, 0);
      kept.delete(name);
    }
    return found;
  }

  let asked = "";
  let answered = "";
  let holds = null;
  let lacking = "";

  /* Which cases hold every word, in any of the texts asked for; at most 30 words. */
  async function look(words, key) {
    asked = key;
    const where = field("where").value;
    const model = chosen();
    const answers = model === null ? data.models.map((_, place) => "m" + place) : ["m" + model];
    const hasAnswers = field("where").options.length > 1;
    const parts = [...(where === "answers" ? [] : ["case"]), ...(where === "case" || !hasAnswers ? [] : answers)];
    const sought = words.slice(0, 30);
    const seen = new Uint32Array(data.cases.length);
    let done = 0;
    lacking = "";
    form.setAttribute("aria-busy", "true");
    try {
      for (const part of parts) {
        if (parts.length > 4) count.textContent = "Looking for words: " + done + " of " + parts.length;
        const found = await texts(part);
        if (asked !== key) return;
        found.forEach((text, place) => {
          sought.forEach((word, bit) => { if (text.includes(word)) seen[place] |= 1 << bit; });
        });
        done += 1;
      }
      const all = 2 ** sought.length - 1;
      holds = Array.from(seen, (bits) => bits === all);
    } catch {
      holds = null;
      lacking = "; words could not be looked for: the folder search/ is not beside this page, or the browser is old";
    }
    answered = key;
    form.removeAttribute("aria-busy");
    apply();
  }

  let shown = [];
  let lastOrder = "";

  const write = (cell, text) => { if (cell.textContent !== text) cell.textContent = text; };

  function apply() {
    const model = chosen();
    /* Words, and phrases between double quotes, of which the last may still be open. */
    const said = field("text").value.toLowerCase();
    const words = Array.from(said.matchAll(/"([^"]*)"?|[^\s"]+/g), (m) => m[1] ?? m[0]).filter((w) => w.trim());
    const key = words.length ? [field("where").value, field("model").value, ...words].join("\u0000") : "";
    if (key === "") {
      asked = answered = lacking = "";
      holds = null;
      form.removeAttribute("aria-busy");
    } else if (key !== answered) {
      if (key !== asked) look(words, key);
      return;
    }
    const least = field("least").value === "" ? null : Number(field("least").value) / 100;
    const most = field("most").value === "" ? null : Number(field("most").value) / 100;
    const state = field("state").value;
    shown = [];
    data.cases.forEach((entry, place) => {
      const marks = shownMarks(entry, model);
      const score = mean(marks);
      const fits =
        kinds.every((kind) => field(kind).value === "" || entry[kind] === field(kind).value) &&
        (state === "" || marks.some((mark) => stateOf(mark) === state)) &&
        ((least === null && most === null) ||
          (score !== null && (least === null || score >= least) && (most === null || score <= most))) &&
        (holds === null || holds[place]);
      rows[place].hidden = !fits;
      const held = marks.map(stateOf).filter((s) => s !== "s");
      const note = held.length ? held.length === 1 && marks.length === 1 ? states[held[0]] : held.length + " not scored" : "";
      write(scoreCells[place], score === null ? "\u2013" : (100 * score).toFixed(1));
      write(stateCells[place], note);
      if (fits) shown.push({ place, entry, score });
    });
    const by = field("sort").value;
    const value = (x) => (x.score === null ? Infinity : by === "high" ? -x.score : x.score);
    const order = by === "" ? shown : shown.slice().sort((a, b) => value(a) - value(b) || a.place - b.place);
    shown = order;
    /* Rows are moved only where an order was asked for, or was before. */
    if (by !== "" || lastOrder !== "") body.append(...order.map((x) => rows[x.place]));
    lastOrder = by;
    count.textContent = shown.length + " of " + data.cases.length + " cases on this page" + lacking;
  }

  function records() {
    const model = chosen();
    return shown.map(({ entry }) => {
      const record = { case_id: entry.id };
      kinds.forEach((kind) => { record[kind] = entry[kind]; });
      data.models.forEach((label, place) => {
        if (model !== null && model !== place) return;
        record["score: " + label] = scoreOf(entry.marks[place]);
        record["state: " + label] = states[stateOf(entry.marks[place])];
      });
      return record;
    });
  }

  function csvCell(value) {
    if (value === null || value === undefined) return "";
    let text = String(value);
    /* No spreadsheet may take a text for a formula. */
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
    return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  }

  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  document.getElementById("csv").addEventListener("click", () => {
    const all = records();
    const model = chosen();
    const models = data.models.filter((_, place) => model === null || model === place);
    const heads = ["case_id", ...kinds, ...models.flatMap((label) => ["score: " + label, "state: " + label])];
    const lines = [heads, ...all.map((record) => heads.map((head) => record[head]))];
    save("cases.csv", "text/csv;charset=utf-8", lines.map((line) => line.map(csvCell).join(",")).join("\r\n") + "\r\n");
  });
  document.getElementById("json").addEventListener("click", () => {
    const whole = { about: data.about, shown: shown.length, of: data.cases.length, cases: records() };
    save("cases.json", "application/json", JSON.stringify(whole, null, 2) + "\n");
  });
  let later = 0;
  form.addEventListener("input", (event) => {
    clearTimeout(later);
    if (event.target === field("text")) later = setTimeout(apply, 200);
    else apply();
  });
  form.addEventListener("reset", () => setTimeout(apply, 0));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  apply();
})();
