// Pages with long tables get a field that leaves the rows that contain what is typed.
const LONG = 60;

function addFilter() {
  const article = document.querySelector("article");
  const rows = article ? [...article.querySelectorAll("tbody tr")] : [];
  if (rows.length < LONG || article.querySelector(".filter")) return;
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const field = Object.assign(document.createElement("input"), {
    type: "search", className: "filter", placeholder: `Filter ${rows.length} rows`, ariaLabel: "Filter the rows",
  });
  const count = Object.assign(document.createElement("p"), { className: "count" });
  count.setAttribute("role", "status");
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, k) => {
      row.hidden = !words.every((word) => texts[k].includes(word));
      shown += !row.hidden;
    });
    // A section of which no row is left disappears with its heading.
    article.querySelectorAll("table").forEach((table) => {
      const none = words.length > 0 && !table.querySelector("tbody tr:not([hidden])");
      const outer = table.closest(".md-typeset__scrollwrap") || table;
      outer.hidden = none;
      const before = outer.previousElementSibling;
      if (before && /^H[2-4]$/.test(before.tagName)) before.hidden = none;
    });
    count.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
  });
  article.querySelector("h1").after(field, count);
}

if (typeof document$ !== "undefined") document$.subscribe(addFilter);
else document.addEventListener("DOMContentLoaded", addFilter);
