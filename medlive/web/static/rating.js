// Rates by the keyboard: a number, x for "cannot decide", arrows to leaf; not while somebody types.
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const link = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
  const found = link
    ? document.querySelector(`a[rel=${link}]`)
    : [...document.querySelectorAll("#rating button")].find((button) => button.value === (event.key === "x" ? "" : event.key));
  found?.click();
});
