// What `capturable explain` says of a text, in the page: capturable/causes.py, explain.py and similar_causes.py,
// line by line, on the rules that docs/rules.py writes into rules.js. A test compares the answers with theirs.
"use strict";

/** The rules' functions. Python's names in JavaScript's spelling; patterns are [source, flags]. */
function explainer({ entries, levels, undecided, near, known: said, ...rules }) {
  const pattern = ([source, flags], more = "") => new RegExp(source, flags + more);
  const fits = (one, text) => pattern(one).test(text);
  const splitWords = (text) => text.split(/\s+/).filter(Boolean);
  const squeezed = (text) => splitWords(text.toLowerCase()).join(" ");
  const compare = (a, b) => a.map((one, at) => one - b[at]).find((by) => by) ?? 0;
  const lower = entries.map((entry) => entry.messages.map(squeezed));
  const messagesOf = (kinds) => new Set(entries.flatMap((entry, at) => (!kinds || kinds.includes(entry.kind) ? lower[at] : [])));
  const guessable = entries.filter(({ kind }) => rules.guessed.includes(kind));
  const every = messagesOf(), ofMany = messagesOf(rules.many);

  /** The lines of a text, as Python's splitlines gives them. */
  function splitLines(text) {
    const lines = text.split(/\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/);
    if (lines.at(-1) === "") lines.pop();
    return lines;
  }

  /** Entries whose message occurs in the text, the best first: {entry, rank, message, number, line}. */
  function find(text) {
    const lines = splitLines(text.replace(pattern(rules.colour, "g"), ""));
    const short = lines.map(squeezed), starts = [];
    let at = 0;
    for (const line of short) {
      starts.push(at);
      at += line.length + 1;
    }
    const whole = short.join(" ");
    const positions = new Map([...every].map((message) => [message, whole.indexOf(message)]));
    for (const [message, where] of numbers(whole)) positions.set(message, where);
    const hits = entries.map((entry, one) => hit(entry, lower[one], positions, starts, lines)).filter(Boolean);
    return firstErrors(hits, short).sort((a, b) => compare(a.rank, b.rank));
  }

  function firstErrors(hits, lines) {
    const found = lines.findIndex((line) => line.includes(rules.consequence)), later = found < 0 ? lines.length : found;
    if (!hits.some((one) => one.number < later && rules.first.includes(one.entry.kind))) return hits;
    const behind = Math.max(...Object.values(levels));
    return hits.map((one) => (one.number > later ? { ...one, rank: [one.rank[0] + behind, ...one.rank.slice(1)] } : one));
  }

  function hit(entry, messages, positions, starts, lines) {
    const found = messages.map((message) => [positions.get(message) ?? -1, -message.length, message])
      .filter(([at]) => at >= 0).sort((a, b) => compare(a.slice(0, 2), b.slice(0, 2)) || (a[2] < b[2] ? -1 : 1));
    if (!found.length) return null;
    const [at, length, message] = found[0], number = starts.findLastIndex((start) => start <= at);
    const long = place(entry, message, lines.slice(Math.max(0, number - near[0]), number + near[1]));
    const open = !long && ofMany.has(message) && undecided[entry.kind];
    if (entry.needs_place && !long && !open) return null;
    return { entry, rank: [open || levels[entry.kind], number, length, -long], message, number, line: lines[number].trim() };
  }

  /** The length of the longest text near the message that the entry's place fits. */
  function place(entry, message, lines) {
    if (!entry.place) return 0;
    const quoted = new RegExp(message.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi");
    const text = lines.map((line) => line.slice(0, 500)).join("\n").replace(quoted, "");
    return Math.max(0, ...[...text.matchAll(pattern(entry.place, "g"))].map((match) => match[0].length));
  }

  function numbers(whole) {
    const found = new Map();
    for (const match of whole.matchAll(pattern(rules.number, "g"))) {
      const message = `cuda error ${match[0]}`;
      const before = whole.slice(Math.max(0, match.index - 24), match.index);
      if (fits(rules.before_number, before) && !found.has(message)) found.set(message, match.index);
    }
    return found;
  }

  /** What makes an answer doubtful: the rest of the text does not tell of a graph; else "". */
  function caveat(text, hits) {
    const certain = !hits.length || hits.some(({ entry }) => entry.kind === "silent");
    return certain || tellsOfAGraph(text) ? "" : said.doubt;
  }

  /** The other causes of the first hit's message, and whether the lines near it named one; of a message that names
      none, also those of what the text complains of. */
  function others(text, hits) {
    const [first] = hits, several = rules.many.includes(first.entry.kind);
    const causes = hits.slice(1).filter((one) => one.message === first.message).map(({ entry }) => entry)
      .filter(({ kind }) => kind === "error" || kind === "warning");
    const all = new Set([...causes, ...(several ? ofComplaint(text) : [])]);
    return { told: byLikeness(text, [...all], first.message), several, decided: first.rank[3] < 0 && !several };
  }

  /** For a text without a known message: the causes that are most like it, the best first; none if its words are more
      those of texts about something else. */
  function nearest(text, count = 5) {
    if (!tellsOfAGraph(text)) return [];
    const quiet = fits(rules.no_error, text);
    const rated = likeness(text).filter(([alike, { kind }]) => alike >= rules.least && !(quiet && kind === "error"));
    return rated.slice(0, count).filter(([alike]) => alike >= rated[0][0] * rules.less).map(([, entry]) => entry);
  }

  /** Whether a text tells of a failure of a CUDA graph, by its words. A typed complaint always does, a request never. */
  function tellsOfAGraph(text) {
    if (fits(rules.request, text)) return false;
    const typed = splitWords(text).length <= rules.typed && !text.includes(":") && !rules.unclear.includes(complaint(text));
    if (typed) return true;
    const said = splitLines(text).filter((line) => !fits(rules.reported, line)).join("\n");
    if (!fits(rules.field, said)) return false;
    return fits(rules.named, said) && (complaintsOf(said).length > 0 || fits(rules.fixed, said));
  }

  const complaintsOf = (text) => rules.complaints.filter((one) => fits(one.words, text));
  const complaint = (text) => complaintsOf(text).map(({ title }) => title).join(" and ") || "this";
  const productOf = ({ title }) => Object.entries(rules.products).find(([name]) => new RegExp(`^${name}\\b`).test(title));

  /** The causes of what a text complains of, and of the products that it names, those first that it is most like. */
  function ofComplaint(text, count = 18) {
    const told = complaintsOf(text), causes = (told.length ? told : rules.complaints).flatMap((one) => one.causes);
    const rated = likeness(text).map(([, entry]) => entry);
    return rated.filter((entry) => causes.includes(entry.title) || productOf(entry)).slice(0, count);
  }

  /** How much the text is like a cause: the sum of what its words weigh there. */
  function alike(asked, entry) {
    const weight = rules.weights[guessable.indexOf(entry)] ?? {};
    return asked.reduce((sum, word) => sum + (Object.hasOwn(weight, word) ? weight[word] : 0), 0);
  }

  const askedIn = (text) => [...new Set(words(text))];
  /** Some causes, those first that the text is most like. */
  function byLikeness(text, some, message) {
    const said = words(message), asked = askedIn(text).filter((word) => !said.includes(word));
    const by = new Map(some.map((entry) => [entry, alike(asked, entry)]));
    return [...some].sort((a, b) => by.get(b) - by.get(a));
  }

  /** All causes and how much the text is like each, the best first. */
  function likeness(text) {
    const asked = askedIn(text), rated = guessable.map((entry) => [alike(asked, entry), entry]);
    return rated.filter(([, entry]) => named(entry, text)).sort((a, b) => b[0] - a[0]);
  }

  function named(entry, text) {
    const product = productOf(entry);
    return !product || fits(product[1], text);
  }

  function words(text) {
    const split = text.replace(/(?<=[a-z])(?=[A-Z])|_/g, " ").toLowerCase();
    return split.match(/[a-z]{2,}/g) ?? [];
  }

  /** Where no message names a cause: the causes that the text is most like, and the others of what it complains of. */
  function guess(text, unanswered) {
    const likely = unanswered ? nearest(text) : [], guesses = likely.slice(0, rules.told);
    const others = new Set([...likely, ...(likely.length ? ofComplaint(text) : [])]);
    const rest = [...others].filter((entry) => !guesses.includes(entry));
    return { guesses, rest };
  }

  /** All that is known of a text: what the page shows, and what the command prints. */
  function explain(text) {
    const hits = find(text), doubt = caveat(text, hits), [first] = hits;
    const guessed = guess(text, !first || first.entry.kind === "after");
    return { text, hits, doubt, first, ...guessed, others: first ? others(text, hits) : null };
  }

  /** How to tell a cause from others. */
  const tell = (entry) => `${entry.tell || entry.cause.split(". ")[0].replace(/\.+$/, "")}.`;

  /** The sentence before a list of causes, and the list. */
  function listed({ text, hits, rest, others }) {
    if (!hits.length || hits[0].entry.kind === "after") {
      return rest.length ? [said.complaint.replace("{}", complaint(text)), rest] : null;
    }
    const { told, several, decided } = others;
    if (!told.length) return null;
    if (decided) return [said.decided.replace("{}", told.length), []];
    const further = told.length > rules.told ? said.further.replace("{}", told.length - rules.told) : "";
    return [several ? said.tell_apart : said.others_too, told.slice(0, rules.told), further];
  }

  /** The answer as the command prints it. */
  function print(known) {
    const { text, hits, doubt, guesses, first } = known, list = listed(known);
    const more = (entry) => (entry.more ? `\n  more:  ${entry.more}` : "");
    const describe = (entry) => `${entry.names}\n  cause: ${entry.cause}\n  fix:   ${entry.fix}${more(entry)}`;
    const lines = list ? [[list[0], ...new Set(list[1].map((entry) => `  ${entry.name}: ${tell(entry)}`))].join("\n")] : [];
    if (list?.[2]) lines.push(list[2]);
    const guessed = guesses.length ? [said.guesses, ...guesses.map(describe)] : [said.nothing];
    if (!hits.length) return [said.unknown, ...guessed, ...lines].join("\n\n");
    const parts = doubt ? [`${doubt}\n`] : [];
    if (text.trim().includes("\n")) parts.push(`line ${first.number + 1}: ${first.line.slice(0, 200)}\n`);
    parts.push(describe(first.entry));
    return [parts.join("\n"), ...(first.entry.kind === "after" ? guessed : []), ...lines].join("\n\n");
  }

  return { explain, print, listed, tell, find, nearest };
}
