/* Charts by Vega-Lite, as they are described in Python. Its expressions are interpreted, not compiled, so that the page needs no `unsafe-eval`. */

let libraryLoaded = null;

async function loadLibrary() {
  const script = document.createElement("script");
  script.textContent = await inflated(embedded("library")).text();
  document.head.append(script);
}

const { charts: CHARTS, colours: COLOURS } = JSON.parse(embedded("charts"));

/* A chart of `charts.py` with its holes filled: `{"hole": name}` is the value of that name. */
function filled(part, values) {
  if (Array.isArray(part)) return part.map((inner) => filled(inner, values));
  if (part === null || typeof part !== "object") return part;
  if (!("hole" in part)) return Object.fromEntries(Object.entries(part).map(([name, inner]) => [name, filled(inner, values)]));
  if (values[part.hole] === undefined) throw new Error(`a chart lacks its ${part.hole}`);
  return values[part.hole];
}

const scheme = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

const tip = el("div", { class: "tip", hidden: true });

/* Where an element of this size stands beside a box and within the window: right of it, left, below or above. */
function placeBeside(box, width, height) {
  const [right, bottom] = [window.innerWidth - width - 8, window.innerHeight - height - 8];
  const within = (value, most) => Math.max(8, Math.min(value, most));
  if (box.right + 8 <= right) return [box.right + 8, within(box.top, bottom)];
  if (box.left - 8 - width >= 8) return [box.left - 8 - width, within(box.top, bottom)];
  return [within(box.left, right), box.bottom + 8 <= bottom ? box.bottom + 8 : box.top - 8 - height];
}

/* Vega's own tooltips would be late and unstyled; these are text in an element of the page, beside their mark. On a
   canvas a mark is no element, so it is taken to be where the pointer is. */
function showTip(handler, event, item, value) {
  tip.hidden = !value;
  if (!value) return;
  tip.textContent = typeof value === "object" ? Object.entries(value).map(([key, text]) => `${key}: ${text}`).join("\n") : value;
  const isMark = event.target instanceof SVGElement && event.target.ownerSVGElement;
  const box = isMark ? event.target.getBoundingClientRect() : new DOMRect(event.clientX - 4, event.clientY - 4, 8, 8);
  const [left, top] = placeBeside(box, tip.offsetWidth, tip.offsetHeight);
  Object.assign(tip.style, { left: `${left}px`, top: `${top}px` });
}

/* Draw the chart `name` with these values into `element`. Returns Vega's view, or null if another drawing of the same
   element has begun since. */
async function chart(element, name, values, { many = false } = {}) {
  const turn = (Number(element.dataset.turn) || 0) + 1;
  element.dataset.turn = turn;
  libraryLoaded ??= loadLibrary();
  await libraryLoaded;
  if (Number(element.dataset.turn) !== turn) return null;
  element.vega?.finalize();
  const description = filled(CHARTS[name], { ...COLOURS[scheme()], title: null, padding: 5, ...values });
  const result = await vegaEmbed(element, description, {
    actions: false,
    ast: true,
    defaultStyle: false,
    renderer: many ? "canvas" : "svg",
    tooltip: showTip,
  });
  element.vega = result.view;
  element.classList.remove("vega-embed");
  if (element.scrollWidth > element.clientWidth) element.setAttribute("tabindex", "0"); // it scrolls, also by keyboard
  else element.removeAttribute("tabindex");
  return result.view;
}

const chartBox = () => el("div", { class: "chart" });

/* Width for a chart in `element`, of which `margin` pixels are axes and legends. */
const widthFor = (element, margin, most) => Math.max(180, Math.min(most, element.clientWidth - margin));
