// Shows moments in the reader's zone; without script they stand in UTC.
function localise(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    time.title = time.textContent;
    time.textContent = moment.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
    time.removeAttribute("datetime");
  }
}
document.addEventListener("htmx:after:swap", () => localise(document));
localise(document);
