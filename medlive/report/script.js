"use strict";
/* Filters the table of cases that is on the page already, and saves what it shows. Nothing is fetched or loaded. Text
   from models and forums is only ever compared or written as text. */
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

  /* A model's mark on a case: a score where it has one and is wholly graded, else [state, score or null]. */
  const stateOf = (mark) => (typeof mark === "number" ? "scored" : mark[0]);
  const scoreOf = (mark) => (typeof mark === "number" ? mark : mark[1]);
  const mean = (marks) => {
    const known = marks.map(scoreOf).filter((x) => x !== null);
    return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
  };
  const chosen = () => (field("model").value === "" ? null : Number(field("model").value));
  const shownMarks = (entry, model) => (model === null ? entry.marks : [entry.marks[model]]);

  let shown = [];
  let lastOrder = "";

  const write = (cell, text) => { if (cell.textContent !== text) cell.textContent = text; };

  function apply() {
    const model = chosen();
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
          (score !== null && (least === null || score >= least) && (most === null || score <= most)));
      rows[place].hidden = !fits;
      const held = marks.map(stateOf).filter((state) => state !== "scored");
      const note = held.length ? held.length === 1 && marks.length === 1 ? held[0] : held.length + " not scored" : "";
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
    count.textContent = shown.length + " of " + data.cases.length + " cases on this page";
  }

  function records() {
    const model = chosen();
    return shown.map(({ entry }) => {
      const record = { case_id: entry.id };
      kinds.forEach((kind) => { record[kind] = entry[kind]; });
      data.models.forEach((label, place) => {
        if (model !== null && model !== place) return;
        record["score: " + label] = scoreOf(entry.marks[place]);
        record["state: " + label] = stateOf(entry.marks[place]);
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
  form.addEventListener("input", apply);
  form.addEventListener("reset", () => setTimeout(apply, 0));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  apply();
})();
