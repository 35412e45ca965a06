// Sliders for a model of one's own: where it lies among the measured ones, and what the fitted model says of it.
function pays(data, svg) {
  const [left, right, top, bottom] = data.box, powers = (from, to) => Array.from({ length: to - from + 1 }, (_, one) => 2 ** (from + one));
  const widths = [256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192];
  const asked = [
    { name: "depth", values: Array.from({ length: 15 }, (_, one) => one + 2), unit: "layers", start: 4 },
    { name: "width", values: widths, unit: "wide", start: 1024 },
    { name: "batch", values: powers(5, 14), unit: "rows", start: 1024 },
    { name: "host time per launch", values: Array.from({ length: 200 }, (_, one) => (one + 1) / 2), unit: "µs", start: Math.round(2 * data.launch_us) / 2 },
  ];
  const sliders = asked.map(({ name, values, unit, start }) => {
    const slider = make("input", { type: "range", max: values.length - 1, value: values.indexOf(start), oninput: show });
    return { name, slider, unit, shown: make("output"), get value() { return values[slider.valueAsNumber]; } };
  });
  const labels = sliders.map(({ name, slider, shown }) => make("label", {}, make("span", {}, name), slider, shown));
  const answer = make("output");

  const line = svg.querySelector(".model"), dashes = svg.querySelector(".crossover");
  const mine = make("path", { fill: data.colour, stroke: "#FFFFFF" });
  svg.append(mine);
  const place = (value, [low, high], from, to) => from + ((to - from) * Math.log(Math.min(Math.max(value, low), high) / low)) / Math.log(high / low);
  const across = (us) => place(us, data.x, left, right), up = (times) => place(times, data.y, bottom, top);

  /** Arithmetic and memory traffic of a training step at the data sheet's speed, µs: the lesson's ideal_us. */
  function idealUs(depth, width, batch) {
    const weights = depth * width ** 2, operations = batch * (6 * weights - 2 * width ** 2);
    return operations / 495e6 + (24 * weights + 40 * batch * width * depth) / 4.8e6;
  }

  function show() {
    const [depth, width, batch, launchUs] = sliders.map((one) => one.value);
    for (const { slider, shown, unit, value } of sliders) {
      shown.textContent = `${value} ${unit}`;
      slider.setAttribute("aria-valuetext", shown.textContent);
    }
    const [slope, start] = data.launches, launches = Math.round(slope * depth + start), ideal = idealUs(depth, width, batch);
    const kernels = data.stretch * ideal, eager = Math.max(launchUs * launches, kernels), gain = eager / kernels;
    const crossover = launchUs / data.stretch, corner = Math.max(data.x[0], crossover / data.y[1]);
    line.setAttribute("points", `${across(corner)},${up(crossover / corner)} ${across(crossover)},${up(1)} ${right},${up(1)}`);
    dashes.setAttribute("points", `${across(crossover)},${top} ${across(crossover)},${bottom}`);
    mine.setAttribute("d", `M${across(ideal / launches)} ${up(gain) - 9}l9 9l-9 9l-9 -9z`);
    const told = gain > 1
      ? `limited by its launches, about ${launches}. Its kernels take about ${rough(kernels)} µs, so a graph is about ${rough(gain)} times faster.`
      : "limited by its kernels: a graph saves little.";
    const asMeasured = launchUs === asked.at(-1).start;
    const same = asMeasured && data.points.find((one) => one.depth === depth && one.width === width && one.batch === batch);
    const measured = same ? ` Measured: eager ${us(same.eager)}, graph ${us(same.graph)}.` : "";
    const beyond = ["depth", "width", "batch"].filter((name, one) => {
      const seen = data.points.map((point) => point[name]), value = [depth, width, batch][one];
      return value < Math.min(...seen) || value > Math.max(...seen);
    });
    answer.textContent = `Predicted: eager about ${rough(eager)} µs, ${told}` + measured + (beyond.length ? ` Beyond what was measured: ${beyond.join(", ")}.` : "");
  }
  const us = (time) => `${time < 99.5 ? time.toPrecision(2) : Math.round(time)} µs`;
  const rough = (value) => Number(value.toPrecision(2));
  show();
  return [svg, make("div", {}, ...labels), answer];
}
