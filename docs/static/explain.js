// What `capturable explain` says of a text, in the page: capturable/causes.py, explain.py and similar_causes.py,
// line by line, on the rules that docs/rules.py writes into rules.js. A test compares the answers with theirs.
"use strict";

/** The rules' functions. Python's names in JavaScript's spelling; patterns are [source, flags]. */
function explainer({ entries, symptoms, levels, undecided, near, known: said, ...rules }) {
  const pattern = ([source, flags], more = "") => new RegExp(source, flags + more);
  const fits = (one, text) => pattern(one).test(text);
  const squeezed = (text) => text.toLowerCase().split(/\s+/).filter(Boolean).join(" ");
  const compare = (a, b) => a.map((one, at) => one - b[at]).find((by) => by) ?? 0;
  const lower = entries.map((entry) => entry.messages.map(squeezed));
  const messagesOf = (kinds) => new Set(entries.flatMap((entry, at) => (!kinds || kinds.includes(entry.kind) ? lower[at] : [])));
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

  /** What makes an answer doubtful: the text speaks of no graph, or of another framework's; else "". */
  function caveat(text, hits) {
    const other = Object.entries(rules.foreign).find(([, sign]) => fits(sign, text))?.[0];
    const unnamed = text.replace(/\bcuda_?error\w*/gi, ""), ours = fits(rules.ours, text);
    if (other && !(ours && fits(rules.pytorchs, unnamed))) return said.other.replace("{}", other);
    return ours || hits.some(({ entry }) => entry.kind === "silent") || !hits.length ? "" : said.no_graph;
  }

  /** The other causes of the first hit's message: [entry, how to tell], and whether the lines near it named one. */
  function others(hits) {
    const [first] = hits, several = rules.many.includes(first.entry.kind);
    const causes = hits.slice(1).filter((one) => one.message === first.message).map(({ entry }) => entry)
      .filter(({ kind }) => kind === "error" || kind === "warning");
    const told = new Map(causes.map((entry) => [entry.name, [entry, entry.tell || entry.cause.split(". ")[0].replace(/\.+$/, "")]]));
    return { told: [...told.values()], count: causes.length, several, decided: first.rank[3] < 0 && !several };
  }

  /** For a text without a known message: the causes whose description is most like it, the best first. */
  function nearest(text, count = 5) {
    const lines = splitLines(text).map((line) => line.slice(0, rules.length));
    const suspected = suspicions(text), typed = suspected.size && text.trim().split(/\s+/).length <= rules.typed && !text.includes(":");
    if (!fits(rules.field, text) || !(typed || lines.some((line) => fits(rules.about, line)))) return [];
    const telling = lines.length <= rules.lines ? lines : lines.filter((line) => fits(rules.line, line)).slice(-rules.lines);
    const asked = [...new Set(words(telling.join("\n")))], weights = described();
    const rated = entries.map((entry, one) => {
      const alike = asked.reduce((sum, word) => sum + (weights[one].get(word) ?? 0), 0);
      return [alike + (suspected.get(entry.title) ?? 0), entry];
    }).filter(([, entry]) => rules.guessed.includes(entry.kind) && named(entry, text)).sort((a, b) => b[0] - a[0]);
    const best = rated[0][0], least = rules.alike * (lines.some((line) => fits(rules.named, line)) ? rules.little : 1);
    return best >= least ? rated.slice(0, count).filter(([alike]) => alike >= best * rules.less).map(([, entry]) => entry) : [];
  }

  /** What the symptoms that the text tells of add to the likeness of their causes: most to the usual one, the first. */
  function suspicions(text) {
    const adds = new Map();
    for (const { causes } of symptoms.filter((one) => fits(one.words, text) && fits(one.near, text)))
      causes.forEach((title, place) => adds.set(title, Math.max(adds.get(title) ?? 0, rules.symptom + (place ? 0 : rules.usual))));
    return adds;
  }

  function named(entry, text) {
    const product = Object.entries(rules.products).find(([name]) => new RegExp(`^${name}\\b`).test(entry.title));
    return !product || fits(product[1], text);
  }

  let vocabulary = null;
  function described() {
    if (vocabulary) return vocabulary;
    const counts = entries.map((entry) => {
      const parts = [entry.title, entry.title, entry.title, ...entry.messages, entry.cause, entry.tell, entry.fix, entry.words];
      const count = new Map();
      for (const word of words(parts.join("\n"))) count.set(word, (count.get(word) ?? 0) + 1);
      return count;
    });
    const common = new Map();
    for (const count of counts) for (const word of count.keys()) common.set(word, (common.get(word) ?? 0) + 1);
    const weight = (word) => rules.scale * Math.log(counts.length / common.get(word));
    const total = (count) => [...count.values()].reduce((sum, times) => sum + times, 0);
    const usual = counts.reduce((sum, count) => sum + total(count), 0) / counts.length;
    vocabulary = counts.map((count) => {
      const less = rules.saturated * (1 - rules.long + (rules.long * total(count)) / usual);
      return new Map([...count].map(([word, times]) => [word, (weight(word) * times * (1 + rules.saturated)) / (times + less)]));
    });
    return vocabulary;
  }

  function words(text) {
    const split = text.replace(/(?<=[a-z])(?=[A-Z])|_/g, " ").toLowerCase();
    return (split.match(/[a-z]{2,}/g) ?? []).filter((word) => !rules.plain.includes(word)).map(stem);
  }

  function stem(word) {
    const ending = rules.endings.find((end) => word.endsWith(end) && word.length - end.length >= 3) ?? "";
    return word.slice(0, word.length - ending.length);
  }

  /** All that is known of a text: what the page shows, and what the command prints. */
  function explain(text) {
    const hits = find(text), doubt = caveat(text, hits);
    const unanswered = hits.length ? hits[0].entry.kind === "after" : !doubt;
    const guesses = unanswered ? nearest(text) : [];
    return { text, hits, doubt, guesses, first: hits[0], others: hits.length ? others(hits) : null };
  }

  /** The answer as the command prints it. */
  function print({ text, hits, doubt, guesses, first, others }) {
    const describe = (entry) => `${entry.names}\n  cause: ${entry.cause}\n  fix:   ${entry.fix}`;
    const guessed = guesses.length ? [said.guesses, ...guesses.map(describe)] : [said.nothing];
    if (!hits.length) {
      return [said.unknown, ...(doubt ? [doubt] : guessed)].join("\n\n");
    }
    const parts = doubt ? [`${doubt}\n`] : [];
    if (text.trim().includes("\n")) parts.push(`line ${first.number + 1}: ${first.line.slice(0, 200)}\n`);
    parts.push(describe(first.entry));
    if (first.entry.kind === "after") parts.push("", ...guessed);
    else if (others.count && others.decided) parts.push(`\n${said.decided.replace("{}", others.count)}`);
    else if (others.count) {
      parts.push("\n" + (others.several ? said.tell_apart : said.others_too));
      parts.push(...others.told.map(([entry, tell]) => `  ${entry.name}: ${tell}.`));
    }
    return parts.join("\n");
  }

  return { explain, print, find, nearest, words };
}
