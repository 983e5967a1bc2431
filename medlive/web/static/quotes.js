// Lights an element's quote in the thread while the element is pointed at or has the focus; without script a
// click on its number leads there.
function light(event, on) {
  const place = event.target.closest?.("[data-quote]");
  if (!place) return;
  for (const mark of document.querySelectorAll(`mark[data-of~="${CSS.escape(place.dataset.quote)}"]`)) {
    mark.classList.toggle("lit", on);
  }
}
for (const name of ["mouseover", "focusin"]) document.addEventListener(name, (event) => light(event, true));
for (const name of ["mouseout", "focusout"]) document.addEventListener(name, (event) => light(event, false));
