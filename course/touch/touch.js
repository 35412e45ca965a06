// Put the picture of a box into the page as SVG, and hand it on: touch(box, svg, data, controls).
function touchPicture(box, data, touch) {
  const image = box.querySelector("img"), text = new TextDecoder();
  const bytes = Uint8Array.from(atob(image.src.split(",")[1]), (one) => one.charCodeAt(0));
  const svg = new DOMParser().parseFromString(text.decode(bytes), "image/svg+xml").documentElement;
  const shown = document.importNode(svg, true), controls = document.createElement("div");
  shown.setAttribute("aria-label", image.alt);
  controls.className = "controls";
  image.replaceWith(shown);
  box.append(controls);
  touch(shown, data, controls);
  // or JupyterLab takes the keys; it asks the element that has the focus, not those around it
  for (const one of box.querySelectorAll("input, button")) one.dataset.lmSuppressShortcuts = "true";
}
