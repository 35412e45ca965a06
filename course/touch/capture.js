// Eager, capture and replay as time passes: a button, a slider, and the numbers of the moment.
function capture(svg, data, controls) {
  const SECONDS = 16, still = matchMedia("(prefers-reduced-motion: reduce)");
  const said = [...svg.querySelectorAll(".said")], whole = said.map((line) => line.textContent);
  const [curtain, head] = cover(svg, data);
  const button = document.createElement("button"), slider = document.createElement("input");
  const shown = document.createElement("output");
  Object.assign(button, { type: "button", textContent: "Play", hidden: still.matches });
  Object.assign(slider, { type: "range", min: 0, max: data.end, step: 10 });
  slider.setAttribute("aria-label", "moment, us");
  controls.append(button, slider, shown);
  let at = data.end, last = 0, playing = 0;

  function show(moment) {
    at = Math.min(moment, data.end);
    const whole_time = at > data.end - 10, x = data.left + ((data.right - data.left) * at) / data.end;
    curtain.setAttribute("width", whole_time ? data.right : x);
    head.setAttribute("transform", `translate(${x} 0)`);
    head.setAttribute("visibility", whole_time ? "hidden" : "visible");
    said.forEach((line, row) => { line.textContent = whole_time ? whole[row] : now(data.phases[row], at); });
    shown.textContent = `${Math.round(at)} us`;
    slider.value = at;
  }
  function stop() {
    cancelAnimationFrame(playing);
    playing = 0;
    button.textContent = "Play";
  }
  function frame(time) {
    const passed = Math.min(Math.max(time - last, 0), 100); // ms; a frame may be older than the click, or long late
    show(at + (passed * data.end) / (1000 * SECONDS));
    last = time;
    if (at >= data.end || !svg.isConnected) stop();
    else playing = requestAnimationFrame(frame);
  }
  button.onclick = () => {
    if (playing) return stop();
    if (at > data.end - 10) show(0);
    button.textContent = "Stop";
    last = performance.now();
    playing = requestAnimationFrame(frame);
  };
  slider.oninput = () => { stop(); show(slider.valueAsNumber); };
  still.onchange = () => { stop(); show(data.end); button.hidden = still.matches; };
  show(data.end);

  /** What hides the future, and the line of the moment. */
  function cover(svg, { panel: [every, top, tall], phases }) {
    const [, , width, height] = svg.getAttribute("viewBox").split(" ");
    const make = (tag, set) => {
      const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
      Object.entries(set).forEach(([name, value]) => node.setAttribute(name, value));
      return node;
    };
    const clip = make("clipPath", { id: "touch-" + Math.random().toString(36).slice(2) });
    const curtain = make("rect", { width, height }), d = phases.map((_, row) => `M0 ${every * row + top}v${tall}`);
    const head = make("path", { d: d.join(""), stroke: "#222222", "stroke-width": 1.5 });
    clip.append(curtain);
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
