// What the search finds beside Sphinx's index: the exhibits that a message is shown in, and pages by the question
// that they answer, whatever its words (docs/search.py).
"use strict";

/** Put these pages and sections before, or among, what Sphinx has found. */
function findMore() {
  if (typeof Search === "undefined") return;
  const search = Search._performSearch, { find, nearest } = explainer(RULES.explain);
  Search._performSearch = (query, ...terms) => {
    const found = [...search(query, ...terms), ...answering(query), ...exhibits(query, find, nearest)];
    const best = new Map(); // of hits with one title on a page; its sections are hits of their own
    for (const one of found.sort((a, b) => a[4] - b[4])) best.set(`${one[0]} ${one[1]}`, one);
    return [...best.values()].sort((a, b) => a[4] - b[4]); // the last is shown first
  };
}

/** A result as Sphinx writes it, or null where the index has no such page or heading. */
function result(page, heading, score) {
  const { docnames, filenames, titles, alltitles } = Search._index, file = docnames.indexOf(page);
  const section = heading && (alltitles[heading] ?? []).find(([one]) => one === file);
  if (file < 0) return null;
  return [page, section ? `${titles[file]} > ${heading}` : titles[file], section ? `#${section[1]}` : "", null, score, filenames[file], "title"];
}

/** Exhibits whose message the query quotes come first; those that are like it are possible answers. */
function exhibits(query, find, nearest) {
  const number = /^\d{3}$/.test(query.trim()), long = /\w+\W+\w+\W+\w/.test(query);
  const quoted = find(number ? `CUDA error ${query}` : query).map(({ entry }) => entry);
  const entries = quoted.length ? quoted : nearest(query, 3);
  const score = quoted.length ? (number || long ? 250 : 30) : long ? 20 : 4;
  return entries.filter((entry) => entry.exhibit).slice(0, 8)
    .map((entry, place) => result(RULES.gallery, entry.name, score - place)).filter(Boolean);
}

/** Pages by the question that they answer: all words of the query are known to it, or nearly all. */
function answering(query) {
  const asked = new Set(roots(query));
  return RULES.questions.map(([page, heading, phrases]) => {
    const fits = phrases.map((phrase) => {
      const known = new Set(roots(phrase)), shared = [...asked].filter((word) => known.has(word)).length;
      const covered = shared / asked.size, used = shared / known.size;
      return (covered === 1 && used >= 0.5) || (shared > 1 && covered > 0.59 && used >= 0.5) ? covered * covered * (1 + used) : 0;
    });
    const best = Math.max(0, ...fits); // 2 where both have the same words
    return best > 0.5 ? result(page, heading, Math.round(110 * best)) : null;
  }).filter(Boolean);
}

/** The words that matter, each by one spelling of it. */
function roots(text) {
  const stemmer = new Stemmer();
  const words = text.toLowerCase().replace(/\bwarm[- _]up/g, "warmup").match(/[a-z\d]+/g) ?? [];
  const one = (word) => stemmer.stemWord(RULES.synonyms[word] ?? RULES.synonyms[stemmer.stemWord(word)] ?? word);
  const some = words.filter((word) => !stopwords.has(word) && !ASKING.has(word)).map(one);
  return some.length ? some : words.map(one);
}
const ASKING = new Set("how many much why which does do i my work works working get gets got use using used make made cuda graph graphs pytorch torch please help problem issue way best example".split(" "));

document.addEventListener("DOMContentLoaded", findMore);
