// The map: a canvas on which images that look alike lie close together, under mouse and fingers.

const map = {
  canvas: null, note: null, points: [], zoom: 1, dx: 0, dy: 0, width: 0, height: 0, wide: 1, tall: 1, hover: -1, only: null, keys: -1, touches: new Map(),
};

function mapView() {
  map.points = [];
  for (let i = 0; i < size; i++) if (images.x[i] !== null && images.y[i] !== null) map.points.push(i);
  if (!map.points.length) return h("p", {}, "There is no map for this run.");
  const span = (values) => Math.max(0.05, values.reduce((a, b) => Math.max(a, b)) / 1e4 - values.reduce((a, b) => Math.min(a, b)) / 1e4);
  [map.wide, map.tall] = [span(map.points.map((i) => images.x[i])), span(map.points.map((i) => images.y[i]))];
  map.canvas = h("canvas", { id: "map-canvas", tabindex: 0, role: "application", "aria-describedby": "map-help",
    "aria-label": "Map of the images. Arrow keys go from image to image, Space selects, Enter opens, plus and minus zoom." });
  map.note = h("p", { class: "sr", role: "status", "aria-live": "polite" });
  map.hover = -1;
  if (!shownAt?.startsWith("map/")) Object.assign(map, { zoom: 1, dx: 0, dy: 0, keys: -1 }); // an edit keeps the place
  Object.assign(lasso, { on: false, shape: null });
  map.touches.clear();
  map.canvas.addEventListener("pointermove", mapMove);
  map.canvas.addEventListener("pointerdown", mapDown);
  map.canvas.addEventListener("pointerup", mapUp);
  map.canvas.addEventListener("pointercancel", mapCancel);
  map.canvas.addEventListener("pointerleave", () => mapHover(-1));
  map.canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    mapZoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
  }, { passive: false });
  map.canvas.addEventListener("keydown", mapKey);
  new ResizeObserver(() => drawMap()).observe(map.canvas);
  const sampled = map.points.length < data.total.images ? ` It shows ${number(map.points.length)} of ${number(data.total.images)} images.` : "";
  return [
    h("p", { id: "map-help", class: "lead" }, `Images that look alike lie close together; the distance between far groups means little.${sampled} `,
      "Point at an image to see it, click to select it, drag to move, scroll or pinch to zoom. To select many at once, press “Lasso” and draw around them."),
    h("div", { class: "mapbox" }, h("div", { class: "canvasbox" }, map.canvas,
      h("div", { class: "zoom" },
        h("button", { type: "button", "aria-label": "Zoom in", onclick: () => mapZoom(1.5) }, "+"),
        h("button", { type: "button", "aria-label": "Zoom out", onclick: () => mapZoom(1 / 1.5) }, "−"),
        h("button", { type: "button", "aria-label": "Show everything", onclick: () => { Object.assign(map, { zoom: 1, dx: 0, dy: 0 }); drawMap(); } }, "⤢")), lassoButton()),
    mapLegend()), map.note,
  ];
}

function mapLegend() {
  const entry = (category) => h("button", { type: "button", class: "entry", "aria-pressed": String(map.only === category.index),
    style: { "--c": colour(category.index) }, onclick: (event) => {
      map.only = map.only === category.index ? null : category.index;
      const list = event.currentTarget.closest(".legend");
      list.querySelectorAll(".entry").forEach((other) => other.setAttribute("aria-pressed", "false"));
      event.currentTarget.setAttribute("aria-pressed", String(map.only !== null));
      drawMap();
    } }, glyph(category.kind), h("span", { class: "who" }, category.name), h("span", { class: "n" }, number(category.n)));
  return h("div", { class: "legend", "aria-label": "Categories; press one to see it alone" },
    h("p", { class: "soft kinds" }, h("span", {}, h("span", { class: "glyph known" }), "known"), h("span", {}, h("span", { class: "glyph novel" }), "new"),
      h("span", {}, h("span", { class: "ring" }), " doubtful")),
    novel().map(entry), known().map(entry));
}

const side = () => Math.min((map.width - 60) / map.wide, (map.height - 60) / map.tall);
const screen = (i) => [
  map.width / 2 + map.dx + (images.x[i] / 10000 - 0.5) * side() * map.zoom,
  map.height / 2 + map.dy - (images.y[i] / 10000 - 0.5) * side() * map.zoom,
];

function shape(pen, kind, x, y, r) {
  if (kind === "novel") {
    pen.moveTo(x, y - r * 1.35);
    pen.lineTo(x + r * 1.35, y);
    pen.lineTo(x, y + r * 1.35);
    pen.lineTo(x - r * 1.35, y);
    pen.closePath();
  } else {
    pen.moveTo(x + r, y);
    pen.arc(x, y, r, 0, 7);
  }
}

let waiting = 0;
function drawMap() {
  if (!map.canvas || !map.canvas.isConnected || waiting) return;
  waiting = requestAnimationFrame(() => {
    waiting = 0;
    if (map.canvas && map.canvas.isConnected) paintMap(); // another view may have been opened in between
  });
}

function paintMap() {
  const box = map.canvas.getBoundingClientRect();
  const density = window.devicePixelRatio || 1;
  map.width = box.width;
  map.height = box.height;
  if (map.canvas.width !== Math.round(box.width * density)) map.canvas.width = Math.round(box.width * density);
  if (map.canvas.height !== Math.round(box.height * density)) map.canvas.height = Math.round(box.height * density);
  const pen = map.canvas.getContext("2d");
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.clearRect(0, 0, box.width, box.height);
  const style = getComputedStyle(document.documentElement);
  const [ink, ground] = [style.getPropertyValue("--ink").trim(), style.getPropertyValue("--panel").trim()];
  const base = (map.points.length > 8000 ? 2 : map.points.length > 2000 ? 2.6 : 4) * Math.min(1, box.width / 700);
  const r = Math.max(1.6, Math.min(7, base * Math.sqrt(map.zoom)));
  const groups = new Map();
  for (const i of map.points) {
    const c = now.category[i];
    if (!groups.has(c)) groups.set(c, []);
    groups.get(c).push(i);
  }
  const order = [...groups.keys()].sort((a, b) => (a === map.only) - (b === map.only) || a - b);
  for (const c of order) paintGroup(pen, c, groups.get(c), r, ground);
  paintRings(pen, r, ink);
  paintNames(pen, groups, ink, ground);
  paintLasso(pen, ink, style.getPropertyValue("--accent").trim());
}

function paintGroup(pen, c, list, r, ground) {
  const category = now.categories[c];
  pen.globalAlpha = map.only !== null && map.only !== c ? 0.12 : list.length > 3000 ? 0.6 : 0.85;
  pen.fillStyle = c < 0 ? "#888" : colour(c);
  pen.beginPath();
  for (const i of list) {
    const [x, y] = screen(i);
    if (x > -9 && y > -9 && x < map.width + 9 && y < map.height + 9) shape(pen, category ? category.kind : "known", x, y, r);
  }
  pen.fill();
  if (r >= 3) {
    pen.lineWidth = 0.8;
    pen.strokeStyle = ground;
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

function paintRings(pen, r, ink) {
  pen.strokeStyle = ink;
  pen.lineWidth = 1;
  pen.globalAlpha = map.points.length > 5000 ? 0.4 : 0.75;
  const ring = r + (map.points.length > 5000 ? 1.2 : 2.2);
  pen.beginPath();
  for (const i of map.points) {
    if (!now.doubtful[i] || (map.only !== null && now.category[i] !== map.only)) continue;
    const [x, y] = screen(i);
    pen.moveTo(x + ring, y);
    pen.arc(x, y, ring, 0, 7);
  }
  pen.stroke();
  pen.globalAlpha = 1;
  const crowd = selected.size > 60; // wide rings would hide what they mark
  for (const i of [...selected, map.hover, map.keys]) {
    if (i < 0 || images.x[i] === null) continue;
    const [x, y] = screen(i);
    const wide = !crowd || i === map.hover || i === map.keys;
    pen.lineWidth = wide ? 2.5 : 1.5;
    pen.beginPath();
    pen.arc(x, y, r + (wide ? 4 : 1), 0, 7);
    pen.stroke();
  }
}

/** Names at the middle of their groups; moved a little, or left out, where it would lie on another. */
function paintNames(pen, groups, ink, ground) {
  pen.font = "600 12px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.lineJoin = "round";
  const taken = [];
  const order = [...groups.entries()].filter(([c]) => c >= 0 && isAwake(now.categories[c]))
    .sort((a, b) => (b[0] === map.only) - (a[0] === map.only)
      || (now.categories[b[0]].kind === "novel") - (now.categories[a[0]].kind === "novel") || b[1].length - a[1].length);
  for (const [c, list] of order) {
    if (map.only !== null && c !== map.only) continue;
    const xs = list.map((i) => images.x[i]).sort((a, b) => a - b);
    const ys = list.map((i) => images.y[i]).sort((a, b) => a - b);
    const x = map.width / 2 + map.dx + (xs[xs.length >> 1] / 10000 - 0.5) * side() * map.zoom;
    const middle = map.height / 2 + map.dy - (ys[ys.length >> 1] / 10000 - 0.5) * side() * map.zoom;
    const full = now.categories[c].name;
    const word = `${now.categories[c].kind === "novel" ? "◆ " : ""}${full.length > 22 ? full.slice(0, 21) + "…" : full}`;
    const wide = pen.measureText(word).width / 2 + 4;
    const free = (top) => !taken.some((o) => x - wide < o[2] && x + wide > o[0] && top - 9 < o[3] && top + 9 > o[1]);
    const y = [middle, middle - 20, middle + 20, middle - 38, middle + 38].find(free);
    if (y === undefined) continue;
    taken.push([x - wide, y - 9, x + wide, y + 9]);
    pen.lineWidth = 4;
    pen.strokeStyle = ground;
    pen.strokeText(word, x, y);
    pen.fillStyle = ink;
    pen.fillText(word, x, y);
  }
}

function mapKey(event) {
  const [dx, dy] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key] || [0, 0];
  if (dx || dy) mapStep(dx, dy);
  else if (event.key === "+" || event.key === "=") mapZoom(1.4);
  else if (event.key === "-") mapZoom(1 / 1.4);
  else if (event.key === "0") Object.assign(map, { zoom: 1, dx: 0, dy: 0 });
  else if (event.key === " " && map.keys >= 0) {
    toggle(map.keys);
    showSelection();
  } else if (event.key === "Enter" && map.keys >= 0) showImage([map.keys], 0);
  else if (event.key === "Escape") mapHover(-1);
  else return;
  event.preventDefault();
  drawMap();
}

/** To the nearest image in a direction, more or less straight ahead. */
function mapStep(dx, dy) {
  const at = map.keys >= 0 ? screen(map.keys) : [map.width / 2, map.height / 2];
  let [best, least] = [-1, Infinity];
  for (const i of map.points) {
    if (i === map.keys || (map.only !== null && now.category[i] !== map.only)) continue;
    const [x, y] = screen(i);
    const ahead = (x - at[0]) * dx + (y - at[1]) * dy;
    const aside = Math.abs((x - at[0]) * dy) + Math.abs((y - at[1]) * dx);
    if ((ahead > 0.5 || map.keys < 0) && ahead + 3 * aside < least) [best, least] = [i, Math.abs(ahead) + 3 * aside];
  }
  if (best < 0) return;
  map.keys = best;
  const [x, y] = screen(best);
  mapHover(best, x, y);
  map.note.textContent = describe(best);
}

// The map under mouse and fingers: what lies below them, dragging, pinching, zooming, and clicks.

/** The image nearest to a place on the screen, if it is near enough. */
function pick(x, y, reach = 14) {
  let [best, least] = [-1, reach * reach];
  for (const i of map.points) {
    if (map.only !== null && now.category[i] !== map.only) continue;
    const [px, py] = screen(i);
    const distance = (px - x) ** 2 + (py - y) ** 2;
    if (distance < least) [best, least] = [i, distance];
  }
  return best;
}

function mapHover(i, x, y) {
  const card = document.getElementById("hover");
  if (i !== map.hover) {
    map.hover = i;
    drawMap();
    map.canvas.style.cursor = i >= 0 ? "pointer" : "grab";
    if (i >= 0) card.replaceChildren(...hoverCard(i));
  }
  card.hidden = i < 0;
  if (i < 0) return;
  const box = map.canvas.getBoundingClientRect();
  const [left, top] = [box.left + x + 18, box.top + y + 18];
  card.style.left = `${Math.min(left, innerWidth - card.offsetWidth - 8)}px`;
  card.style.top = `${top + card.offsetHeight > innerHeight ? Math.max(4, box.top + y - card.offsetHeight - 14) : top}px`;
}

function hoverCard(i) {
  const category = now.categories[now.category[i]];
  return [
    thumb(i, { lazy: false }),
    h("span", { class: "lines" }, h("strong", {}, category ? glyph(category.kind) : null, " ", category ? category.name : "in no category"),
      h("span", {}, `probability ${share(images.probability[i])}${now.doubtful[i] ? ", doubtful" : ""}`),
      h("span", { class: "soft" }, shortName(i))),
  ];
}

function mapZoom(factor, x = map.width / 2, y = map.height / 2) {
  const zoom = Math.max(0.6, Math.min(60, map.zoom * factor));
  const real = zoom / map.zoom;
  map.dx = (x - map.width / 2) * (1 - real) + map.dx * real;
  map.dy = (y - map.height / 2) * (1 - real) + map.dy * real;
  map.zoom = zoom;
  drawMap();
}

function mapDown(event) {
  if (event.pointerType === "mouse" && event.button !== 0) return; // the right button opens the browser's menu
  map.canvas.setPointerCapture(event.pointerId);
  map.touches.set(event.pointerId, { x: event.offsetX, y: event.offsetY, x0: event.offsetX, y0: event.offsetY, moved: false });
  if (lasso.on) lassoDown(event);
}

function mapCancel(event) {
  map.touches.delete(event.pointerId);
  cancelLasso();
}

function mapMove(event) {
  const touch = map.touches.get(event.pointerId);
  const [x, y] = [event.offsetX, event.offsetY];
  if (!touch) return mapHover(pick(x, y), x, y);
  if (lasso.shape) return lassoMove(event, touch);
  if (map.touches.size === 2) {
    const other = [...map.touches.entries()].find(([id]) => id !== event.pointerId)[1];
    const [before, after] = [Math.hypot(touch.x - other.x, touch.y - other.y), Math.hypot(x - other.x, y - other.y)];
    if (before > 4) mapZoom(after / before, (x + other.x) / 2, (y + other.y) / 2);
    touch.moved = other.moved = true;
  } else if (touch.moved || Math.hypot(x - touch.x0, y - touch.y0) > 4) {
    touch.moved = true;
    map.dx += x - touch.x;
    map.dy += y - touch.y;
    mapHover(-1);
    drawMap();
  }
  Object.assign(touch, { x, y });
  return undefined;
}

function mapUp(event) {
  const touch = map.touches.get(event.pointerId);
  map.touches.delete(event.pointerId);
  if (lasso.shape && lassoUp(event)) return;
  if (!touch || touch.moved) return;
  const i = pick(event.offsetX, event.offsetY, event.pointerType === "mouse" ? 14 : 26);
  if (i < 0) return;
  toggle(i);
  if (event.pointerType !== "mouse") mapHover(i, event.offsetX, event.offsetY);
  showSelection();
}
