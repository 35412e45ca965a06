// A box that takes an error message, a traceback or a whole log, and answers by explain.js. Nothing is sent.
"use strict";

/** Fill the page's place for the box; in the gallery, that is above its index. */
function addBox() {
  const index = document.querySelector("section#failure-gallery section#index");
  const place = document.querySelector(".ask") ?? index?.parentElement.insertBefore(element("div", { className: "ask" }), index);
  if (!place) return;
  const { explain } = explainer(RULES.explain);
  const box = element("textarea", { rows: 6, spellcheck: false, placeholder: "Traceback (most recent call last):\n  ...\nRuntimeError: ..." });
  const answer = element("output", { className: "answer" });
  const label = element("label", {}, "Paste an error message, a traceback or a whole log, or say what you see");
  label.append(box);
  place.replaceChildren(label, element("p", { className: "note" }, "It is read in this page alone, and sent nowhere."), answer);
  const show = () => answer.replaceChildren(...(box.value.trim() ? told(explain(box.value)) : []));
  box.addEventListener("input", show);
  const asked = new URLSearchParams(location.search).get("message");
  if (asked) box.value = asked;
  show();
}

/** An answer's parts: the doubt, the telling line, the cause and its fix, and what else it may be. */
function told({ text, hits, doubt, guesses, first, others }) {
  const { known } = RULES.explain, parts = doubt ? [element("p", { className: "doubt" }, doubt)] : [];
  if (!hits.length) {
    parts.unshift(element("p", {}, known.unknown));
    if (!doubt) parts.push(element("p", {}, guesses.length ? known.guesses : known.nothing));
    return [...parts, ...guesses.map((entry) => cause(entry))];
  }
  if (text.trim().includes("\n")) parts.push(element("pre", {}, `line ${first.number + 1}: ${first.line.slice(0, 200)}`));
  parts.push(cause(first.entry));
  if (guesses.length) parts.push(element("p", {}, known.guesses), ...guesses.map((entry) => cause(entry)));
  else if (others.count && others.decided) parts.push(element("p", {}, known.decided.replace("{}", others.count)));
  else if (others.count) {
    const list = element("ul");
    list.append(...others.told.map(([entry, tell]) => {
      const row = element("li");
      row.append(linked(entry), ": ", ...marked(`${tell}.`));
      return row;
    }));
    parts.push(element("p", {}, others.several ? known.tell_apart : known.others_too), list);
  }
  return parts;
}

/** A cause with its fix, under its name, which leads to the exhibit or the lesson about it. */
function cause(entry) {
  const section = element("section"), name = element("h3"), why = element("p"), fix = element("p");
  name.append(linked(entry));
  why.append(...marked(entry.cause));
  fix.append(element("strong", {}, "Fix. "), ...marked(entry.fix));
  section.append(name, why, fix);
  return section;
}

function linked(entry) {
  if (!entry.page) return element("span", {}, entry.name);
  const anchor = entry.exhibit ? `#${entry.name.replaceAll(" ", "-")}` : "";
  const here = DOCUMENTATION_OPTIONS.pagename === entry.page;
  const root = document.documentElement.dataset.content_root;
  return element("a", { href: here ? anchor : `${root}${entry.page}.html${anchor}` }, entry.name);
}

/** Text in which `code` is code. */
const marked = (text) => text.split("`").map((part, at) => (at % 2 ? element("code", {}, part) : part));

function element(tag, set = {}, text = "") {
  return Object.assign(document.createElement(tag), set, text ? { textContent: text } : {});
}

document.addEventListener("DOMContentLoaded", addBox);
