// What the site's pages add to Sphinx's: Perfetto's button, numbers in the search, the gallery's filter.
"use strict";

/** Beside each link to a trace, put a button; nothing is fetched or sent before a click on it. */
function addPerfettoButtons() {
  for (const link of document.querySelectorAll('a.download[href$=".json.gz"]')) {
    const button = document.createElement("button"), around = document.createElement("span");
    Object.assign(button, { type: "button", textContent: "Open in Perfetto", className: "perfetto" });
    Object.assign(button.dataset, { trace: link.href, ui: "https://ui.perfetto.dev", name: link.textContent });
    button.onclick = () => openInPerfetto(button);
    around.append(" ", button, " ", document.createElement("output"));
    link.after(around);
  }
}

/** Sphinx's search drops numbers from a query: put those of three digits back, which its index has. */
function searchNumbers() {
  if (typeof Search === "undefined") return;
  const parse = Search._parseQuery;
  Search._parseQuery = (query) => {
    const parsed = parse(query);
    for (const number of query.match(/\b\d{3}\b/g) ?? []) [parsed[1], parsed[3]].forEach((terms) => terms.add(number));
    return parsed;
  };
}

/** Above the gallery's index, put a box that leaves the rows and exhibits with all the words in it. */
function addFilter() {
  const index = document.querySelector("section#failure-gallery section#index");
  if (!index) return;
  const label = document.createElement("label"), box = document.createElement("input"), found = document.createElement("output");
  label.className = "filter";
  Object.assign(box, { type: "search", placeholder: "a word, or a part of a message" });
  label.append("Filter the exhibits ", box, " ", found);
  index.querySelector("h2").after(label);
  const rows = [...index.querySelectorAll("tbody tr")];
  const exhibits = [...document.querySelectorAll("section:has(> h3)")];
  const groups = [...document.querySelectorAll("section:has(> section > h3)")];
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/);
    const hide = (part, text) => (part.hidden = !words.every((word) => text.toLowerCase().includes(word)));
    const of = Object.fromEntries(exhibits.map((exhibit) => ["#" + exhibit.id, exhibit]));
    for (const row of rows) {
      const exhibit = of[row.querySelector('a[href^="#"]')?.hash];
      hide(row, row.textContent + (exhibit?.textContent ?? ""));
      if (exhibit) exhibit.hidden = row.hidden;
    }
    for (const group of groups) group.hidden = [...group.querySelectorAll(":scope > section")].every((part) => part.hidden);
    found.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  });
}

document.addEventListener("DOMContentLoaded", () => {
  addPerfettoButtons();
  searchNumbers();
  addFilter();
});
