// Draws the bars of timeline.py and lets one hover over them, zoom in, and walk from one to the next.
function timeline({ lanes, end, variants }) {
  const LANE = 46, BAR = 24, AXIS = 26, NEAR = 6; // pixels
  const everyBar = variants.map(([, bars]) => bars.map(([lane, start, long, name, said, partners, other]) => (
    { lane, start, end: start + long, name, said, partners, other })));
  const used = (bars) => lanes.map((_, lane) => lane).filter((lane) => bars.some((bar) => bar.lane === lane));
  const height = Math.max(...everyBar.map((bars) => used(bars).length)) * LANE;
  let bars = everyBar[0], mine = used(bars), chosen = null, from = 0, span = end; // the part of the step that is shown

  const hint = matchMedia("(hover: none)").matches
    ? "Tap a bar to see what it is; + zooms in on it, − out, and all shows the whole step. Drag to move."
    : "Point at a bar, or come here by Tab: ← and → go along a lane, ↑ and ↓ from a kernel to its launch and back. "
      + "Enter or a double click zooms in, − out, Escape shows the whole step; drag to move.";

  function draw() {
    const width = plot.clientWidth || 640, x = (time) => ((time - from) / span) * width, y = (lane) => mine.indexOf(lane) * LANE + 18;
    const nodes = [], family = new Set(chosen ? [chosen, ...chosen.partners.map((one) => bars[one])] : []);
    const every = [0.01, 0.1, 1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7].flatMap((one) => [one, 2 * one, 5 * one]);
    const step = every.find((one) => (one / span) * width > 75) ?? end;
    for (let tick = Math.ceil(from / step) * step; tick <= from + span; tick += step) {
      const anchor = x(tick) < 20 ? "start" : x(tick) > width - 30 ? "end" : "middle";
      nodes.push(make("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 0, y2: height }));
      nodes.push(make("text", { x: x(tick), y: height + 18, "text-anchor": anchor }, end < 1e4 ? `${+tick.toFixed(2)} µs` : `${+(tick / 1e3).toFixed(5)} ms`));
    }
    for (const bar of bars.filter((one) => lanes[one.lane][0] === "launches")) {
      for (const work of bar.partners.map((one) => bars[one])) {
        const look = family.has(bar) && family.has(work) ? "chosen" : "";
        nodes.push(make("line", { class: look, x1: x(bar.start), x2: x(work.start), y1: y(bar.lane) + BAR, y2: y(work.lane) }));
      }
    }
    for (const bar of bars.filter((one) => one.end >= from && one.start <= from + span)) {
      const left = Math.max(x(bar.start), -2), long = Math.max(Math.min(x(bar.end), width + 2) - left, 1);
      const look = bar === chosen ? "chosen" : family.has(bar) ? "partner" : bar.other ? "other" : "";
      nodes.push(make("rect", { class: look, x: left, y: y(bar.lane), width: long, height: BAR, fill: lanes[bar.lane][1] }));
      if (bar.lane === 0 && long > 7 * bar.name.length)
        nodes.push(make("text", { class: "inside", x: left + long / 2, y: y(0) + 16, "text-anchor": "middle" }, bar.name));
    }
    mine.forEach((lane) => nodes.push(make("text", { class: "lane", x: 2, y: y(lane) - 4 }, lanes[lane][0])));
    plot.replaceChildren(...nodes);
    said.replaceChildren(...(chosen ? [make("b", {}, chosen.name), make("br"), chosen.said] : [hint]));
  }

  function look(start, long) {
    span = Math.min(Math.max(long, end / 2000), end);
    from = Math.min(Math.max(start, 0), end - span);
    draw();
  }
  function choose(bar) {
    if (!bar || bar === chosen) return;
    chosen = bar;
    look(bar.end < from || bar.start > from + span ? bar.start - span / 2 : from, span);
  }
  /** Zoom so that one time stays where it is: the chosen bar's, or else that in the middle. */
  function zoom(times, at) {
    const middle = from + span / 2, mine = chosen ? (chosen.start + chosen.end) / 2 : middle;
    const fixed = at ?? (mine < from || mine > from + span ? middle : mine);
    look(fixed - (fixed - from) / times, span / times);
  }
  const far = (bar, time) => Math.max(bar.start - time, time - bar.end, 0);
  const nearest = (lane, time) => bars.filter((bar) => bar.lane === lane)
    .reduce((best, bar) => (!best || far(bar, time) < far(best, time) ? bar : best), null);
  function along(by) {
    const next = bars[bars.indexOf(chosen) + by]; // bars are sorted by lane and time
    if (next?.lane === chosen.lane) choose(next);
  }
  function across(by) {
    let to = chosen.partners.map((one) => bars[one]).find((bar) => (bar.lane - chosen.lane) * by > 0);
    choose(to ?? nearest(mine[mine.indexOf(chosen.lane) + by], chosen.start));
  }

  const keys = {
    ArrowRight: () => along(1), ArrowLeft: () => along(-1), ArrowDown: () => across(1), ArrowUp: () => across(-1),
    Enter: () => zoom(4), " ": () => zoom(4), "+": () => zoom(2), "-": () => zoom(0.5), Escape: () => look(0, end),
  };
  function press(event) {
    if (!keys[event.key]) return;
    event.preventDefault();
    if (chosen || !event.key.startsWith("Arrow")) keys[event.key]();
    else choose(bars.find((bar) => bar.end >= from));
  }
  const time = (event) => from + (event.offsetX / plot.clientWidth) * span; // bars let the pointer through
  let grasped = 0;
  function point(event) {
    const bar = nearest(mine[Math.floor(event.offsetY / LANE)], time(event));
    const near = event.pointerType === "touch" ? 3 * NEAR : NEAR;
    if (bar && (far(bar, time(event)) / span) * plot.clientWidth < near) choose(bar);
  }
  function move(event) {
    if (event.buttons && span < end) look(from + grasped - time(event), span);
    else point(event);
  }
  function wheel(event) {
    if (!event.ctrlKey) return; // so that the page scrolls; a pinch comes with it
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.25 : 0.8, time(event));
  }

  const said = make("output", { "aria-live": "polite" });
  const plot = make("svg", { tabindex: 0, role: "application", height: height + AXIS,
    "aria-label": "Timeline of one step: arrow keys go from bar to bar", onkeydown: press, onwheel: wheel,
    onpointerdown: (event) => { grasped = time(event); point(event); }, onpointermove: move,
    ondblclick: (event) => zoom(4, time(event)) });
  const group = `timeline-${Math.random()}`;
  const switches = variants.length < 2 ? [] : variants.map(([name], number) => {
    const onchange = () => { bars = everyBar[number]; mine = used(bars); chosen = null; draw(); };
    return make("label", {}, make("input", { type: "radio", name: group, checked: number === 0, onchange }), name);
  });
  const buttons = [["+", "zoom in", () => zoom(2)], ["−", "zoom out", () => zoom(0.5)], ["all", "whole step", () => look(0, end)]]
    .map(([text, label, onclick]) => make("button", { type: "button", title: label, "aria-label": label, onclick }, text));
  new ResizeObserver(draw).observe(plot);
  return [make("div", {}, ...switches, ...buttons), plot, said];
}
