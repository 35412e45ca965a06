// Eager, capture and replay as time passes: a button, a slider, and the numbers of the moment.
function capture({ end, left, right, panel: [every, top, tall], phases }, svg) {
  const SECONDS = 16, still = matchMedia("(prefers-reduced-motion: reduce)");
  const said = [...svg.querySelectorAll(".said")], whole = said.map((line) => line.textContent);
  const [curtain, head] = cover();
  const button = make("button", { type: "button", hidden: still.matches, onclick: play }, "Play");
  const slider = make("input", { type: "range", min: 0, max: end, step: 10, "aria-label": "moment, µs",
    oninput: () => { stop(); show(slider.valueAsNumber); } });
  const shown = make("output");
  let at = end, last = 0, playing = 0;

  function show(moment) {
    at = Math.min(moment, end);
    const whole_time = at > end - 10, x = left + ((right - left) * at) / end;
    curtain.setAttribute("width", whole_time ? right : x);
    head.setAttribute("transform", `translate(${x} 0)`);
    head.setAttribute("visibility", whole_time ? "hidden" : "visible");
    said.forEach((line, row) => { line.textContent = whole_time ? whole[row] : now(phases[row], at); });
    shown.textContent = `${Math.round(at)} µs`;
    slider.value = at;
  }
  function stop() {
    cancelAnimationFrame(playing);
    playing = 0;
    button.textContent = "Play";
  }
  function frame(time) {
    const passed = Math.min(Math.max(time - last, 0), 100); // ms; a frame may be older than the click, or long late
    show(at + (passed * end) / (1000 * SECONDS));
    last = time;
    if (at >= end || !svg.isConnected) stop();
    else playing = requestAnimationFrame(frame);
  }
  function play() {
    if (playing) return stop();
    if (at > end - 10) show(0);
    button.textContent = "Stop";
    last = performance.now();
    playing = requestAnimationFrame(frame);
  }
  still.onchange = () => { stop(); show(end); button.hidden = still.matches; };
  show(end);
  return [svg, make("div", {}, button, slider, shown)];

  /** What hides the future, and the line of the moment. */
  function cover() {
    const [, , width, height] = svg.getAttribute("viewBox").split(" ");
    const curtain = make("rect", { width, height });
    const clip = make("clipPath", { id: "touch-" + Math.random().toString(36).slice(2) }, curtain);
    const d = phases.map((_, row) => `M0 ${every * row + top}v${tall}`).join("");
    const head = make("path", { d, stroke: "#222222", "stroke-width": 1.5 });
    svg.append(clip, head);
    svg.querySelectorAll("g.time").forEach((part) => part.setAttribute("clip-path", `url(#${clip.id})`));
    return [curtain, head];
  }

  /** A phase at a moment, in words. */
  function now({ name, cpu, queue, gpu, done }, at) {
    const inside = ([start, end]) => start <= at && at < end, range = cpu.find(inside)?.[2];
    const does = `CPU: ${range === "waits" ? "waits for the GPU" : range ?? "between two ranges"}`;
    const count = queue.findLast(([time]) => time <= at)[1], finished = done.filter((end) => end <= at).length;
    if (name === "capture") return `${does} \u00b7 recorded: ${count} \u00b7 GPU: idle`;
    return `${does} \u00b7 waiting: ${count} \u00b7 GPU: ${gpu.some(inside) ? "busy" : "idle"} \u00b7 steps done: ${finished}`;
  }
}
