// The frame of a picture: touch(script, draw) puts what draw(data, svg) gives into the figure beside the script.

function touch(script, draw) {
  const figure = script.parentElement.querySelector("figure"), image = figure.querySelector("img");
  figure.replaceChildren(...draw(JSON.parse(figure.dataset[figure.className]), image && opened(image)));
  window.addEventListener("keydown", (event) => { // first of all, or JupyterLab takes the keys for its cells
    const held = event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key !== "+");
    if (held || !figure.contains(event.target)) return;
    event.stopPropagation();
    event.target.onkeydown?.(event);
  }, true);
}

/** The SVG that an image shows. */
function opened(image) {
  const text = decodeURIComponent(image.src.split(",")[1]);
  const svg = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  svg.setAttribute("aria-label", image.alt);
  return document.importNode(svg, true);
}

/** An element with its attributes, what it does (onclick: ...) among them, and what lies inside. */
function make(tag, set = {}, ...inside) {
  const shape = ["svg", "rect", "line", "text", "path", "clipPath"].includes(tag);
  const node = shape ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(set)) {
    if (["function", "boolean"].includes(typeof value)) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...inside);
  return node;
}
