// A box that takes an error message, a traceback or a whole log, and answers by explain.js. Nothing is sent.
"use strict";

/** Fill the page's place for the box; in the gallery, that is above its index. */
function addBox() {
  const index = document.querySelector("section#failure-gallery section#index");
  const place = document.querySelector(".ask") ?? index?.parentElement.insertBefore(element("div", { className: "ask" }), index);
  if (!place) return;
  const answers = explainer(RULES.explain);
  const box = element("textarea", { rows: 6, spellcheck: false, placeholder: "Traceback (most recent call last):\n  ...\nRuntimeError: ..." });
  const answer = element("output", { className: "answer" });
  const label = element("label", {}, "Paste an error message, a traceback or a whole log, or say what you see");
  label.append(box);
  place.replaceChildren(label, element("p", { className: "note" }, "It is read in this page alone, and sent nowhere."), answer);
  const show = () => answer.replaceChildren(...(box.value.trim() ? told(answers.explain(box.value), answers) : []));
  box.addEventListener("input", show);
  const asked = new URLSearchParams(location.search).get("message");
  if (asked) box.value = asked;
  show();
}

/** An answer's parts: the doubt, the telling line, the cause and its fix, and what else it may be. */
function told(answer, { listed, tell }) {
  const { text, hits, doubt, guesses, first } = answer, { known } = RULES.explain;
  const parts = doubt ? [element("p", { className: "doubt" }, doubt)] : [];
  const guessed = guesses.length ? [element("p", {}, known.guesses), ...guesses.map(cause)] : [element("p", {}, known.nothing)];
  const [head, causes, further] = listed(answer) ?? ["", []], list = element("ul");
  for (const entry of causes) {
    const row = element("li");
    row.append(linked(entry), ": ", ...marked(tell(entry)));
    list.append(row);
  }
  const others = [...(head ? [element("p", {}, head)] : []), ...(causes.length ? [list] : [])];
  if (further) others.push(element("p", {}, further));
  if (!hits.length) return [element("p", {}, known.unknown), ...guessed, ...others];
  if (text.trim().includes("\n")) parts.push(element("pre", {}, `line ${first.number + 1}: ${first.line.slice(0, 200)}`));
  return [...parts, cause(first.entry), ...(first.entry.kind === "after" ? guessed : []), ...others];
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
