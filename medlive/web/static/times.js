// Shows moments in the reader's zone, which they name; without script they are in UTC.
const format = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" };
function localise(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    time.title = time.textContent;
    time.textContent = moment.toLocaleString(undefined, format);
    time.removeAttribute("datetime");
  }
}
document.addEventListener("htmx:after:swap", () => localise(document));
localise(document);
