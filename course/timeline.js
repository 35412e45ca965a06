// Draws a figure's timeline and lets one touch it; the data come from course/timeline.py. No library, no request.

function touchTimeline(figure) {
  const { lanes, end, variants } = JSON.parse(figure.dataset.timeline);
  const LANE = 46, BAR = 24, AXIS = 26, NEAR = 6; // pixels
  const everyBar = variants.map(([, bars]) => bars.map(([lane, start, long, name, said, partners]) => (
    { lane, start, end: start + long, name, said, partners })));
  let bars = everyBar[0], chosen = null, from = 0, span = end; // the part of the step that is shown

  const make = (tag, set = {}, ...inside) => {
    const space = ["svg", "rect", "line", "text"].includes(tag) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
    const node = document.createElementNS(space, tag);
    Object.entries(set).forEach(([name, value]) => node.setAttribute(name, value));
    node.append(...inside);
    return node;
  };
  const plot = make("svg", { tabindex: 0, role: "application", height: lanes.length * LANE + AXIS,
    "aria-label": "Timeline of one step: arrow keys go from bar to bar" });
  const said = make("output", { "aria-live": "polite" });
  const hint = "Point at a bar, or come here by Tab: ← and → go along a lane, ↑ and ↓ from a kernel to its launch and back. "
    + "Enter or a double click zooms in, − out, Escape shows the whole step; drag to move.";

  function draw() {
    const width = plot.clientWidth || 640, x = (time) => ((time - from) / span) * width, y = (lane) => lane * LANE + 18;
    const nodes = [], family = new Set(chosen ? [chosen, ...chosen.partners.map((one) => bars[one])] : []);
    const every = [0.01, 0.1, 1, 10, 100, 1e3, 1e4, 1e5].flatMap((one) => [one, 2 * one, 5 * one]);
    const step = every.find((one) => (one / span) * width > 75) ?? end;
    for (let tick = Math.ceil(from / step) * step; tick <= from + span; tick += step) {
      const anchor = x(tick) < 20 ? "start" : x(tick) > width - 30 ? "end" : "middle";
      nodes.push(make("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 0, y2: lanes.length * LANE }));
      nodes.push(make("text", { x: x(tick), y: lanes.length * LANE + 18, "text-anchor": anchor }, `${+tick.toFixed(2)} us`));
    }
    for (const bar of bars.filter((one) => lanes[one.lane][0] === "launches")) {
      for (const work of bar.partners.map((one) => bars[one])) {
        const look = family.has(bar) && family.has(work) ? "tie chosen" : "tie";
        nodes.push(make("line", { class: look, x1: x(bar.start), x2: x(work.start), y1: y(bar.lane) + BAR, y2: y(work.lane) }));
      }
    }
    for (const bar of bars.filter((one) => one.end >= from && one.start <= from + span)) {
      const left = Math.max(x(bar.start), -2), long = Math.max(Math.min(x(bar.end), width + 2) - left, 1);
      const look = bar === chosen ? "chosen" : family.has(bar) ? "partner" : "";
      nodes.push(make("rect", { class: look, x: left, y: y(bar.lane), width: long, height: BAR, fill: lanes[bar.lane][1] }));
      if (bar.lane === 0 && long > 7 * bar.name.length)
        nodes.push(make("text", { class: "inside", x: left + long / 2, y: y(0) + 16, "text-anchor": "middle" }, bar.name));
    }
    lanes.forEach(([label], lane) => nodes.push(make("text", { class: "lane", x: 2, y: y(lane) - 4 }, label)));
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
    for (let lane = chosen.lane + by; !to && lanes[lane]; lane += by) to = nearest(lane, chosen.start);
    choose(to);
  }

  const keys = {
    ArrowRight: () => along(1), ArrowLeft: () => along(-1), ArrowDown: () => across(1), ArrowUp: () => across(-1),
    Enter: () => zoom(4), " ": () => zoom(4), "+": () => zoom(2), "-": () => zoom(0.5), Escape: () => look(0, end),
  };
  window.addEventListener("keydown", (event) => { // first of all, or JupyterLab takes the keys for its cells
    const held = event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key !== "+");
    if (held || !keys[event.key] || !figure.contains(event.target)) return;
    event.stopPropagation();
    if (event.target !== plot) return; // a button's or a switch's own
    event.preventDefault();
    if (chosen || !event.key.startsWith("Arrow")) keys[event.key]();
    else choose(bars.find((bar) => bar.end >= from));
  }, true);
  const time = (event) => from + (event.offsetX / plot.clientWidth) * span; // bars let the pointer through
  let grasped = 0;
  function point(event) {
    const bar = nearest(Math.floor(event.offsetY / LANE), time(event));
    const near = event.pointerType === "touch" ? 3 * NEAR : NEAR;
    if (bar && (far(bar, time(event)) / span) * plot.clientWidth < near) choose(bar);
  }
  plot.addEventListener("pointerdown", (event) => { grasped = time(event); point(event); });
  plot.addEventListener("pointermove", (event) => {
    if (event.buttons && span < end) look(from + grasped - time(event), span);
    else point(event);
  });
  plot.addEventListener("dblclick", (event) => zoom(4, time(event)));
  plot.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return; // so that the page scrolls; a pinch comes with it
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.25 : 0.8, time(event));
  });

  const group = `timeline-${Math.random()}`;
  const switches = variants.length < 2 ? [] : variants.map(([name], number) => {
    const radio = make("input", { type: "radio", name: group });
    radio.checked = number === 0;
    radio.addEventListener("change", () => { bars = everyBar[number]; chosen = null; draw(); });
    return make("label", {}, radio, name);
  });
  const buttons = [["+", "zoom in", () => zoom(2)], ["−", "zoom out", () => zoom(0.5)], ["all", "whole step", () => look(0, end)]]
    .map(([text, label, act]) => {
      const button = make("button", { type: "button", title: label, "aria-label": label }, text);
      button.addEventListener("click", act);
      return button;
    });
  figure.replaceChildren(make("div", {}, ...switches, ...buttons), plot, said);
  new ResizeObserver(draw).observe(plot);
}
