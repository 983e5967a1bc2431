// Search over the public cases: their texts come once, and each word has to occur.

const form = document.querySelector("#search");
const list = document.querySelector("#cases tbody");
const status = document.querySelector("#status");

async function start() {
  const entries = await (await fetch(form.dataset.index)).json();
  const texts = entries.map((entry) => entry.text.toLowerCase());
  const rows = new Map([...list.rows].map((row) => [row.dataset.case, row]));
  const fields = ["language", "specialty", "theme", "difficulty"];
  const read = () => {
    const words = form.elements.namedItem("words").value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = fields.map((name) => [name, form.elements.namedItem(name).value]);
    let shown = 0;
    entries.forEach((entry, place) => {
      const fits =
        words.every((word) => texts[place].includes(word)) &&
        wanted.every(([name, value]) => !value || entry[name] === value);
      rows.get(entry.id).hidden = !fits;
      shown += fits;
    });
    status.textContent = `${shown} of ${entries.length} cases`;
    const query = new URLSearchParams();
    if (words.length) query.set("words", words.join(" "));
    for (const [name, value] of wanted) if (value) query.set(name, value);
    const text = query.toString();
    history.replaceState(null, "", text ? `?${text}` : location.pathname);
  };
  const query = new URLSearchParams(location.search);
  for (const name of ["words", ...fields]) {
    if (query.has(name)) form.elements.namedItem(name).value = query.get(name);
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", read);
  form.hidden = false;
  read();
}

if (form) {
  start().catch((error) => {
    status.textContent = `Search is not available (${error.message}); the list below is complete.`;
  });
}
