// The lasso: a free shape drawn on the map; the images inside become the selection.

const lasso = {
  on: false, // does dragging draw, or move the map?
  shape: null, // the corners drawn so far, as pairs on the screen; null = nothing is being drawn
  pointer: -1, // what draws: the mouse, or one finger
  button: null,
};
const LASSO_STEP = 3; // pixels between two corners

function lassoButton() {
  lasso.button = h("button", { type: "button", class: "lasso", "aria-pressed": String(lasso.on),
    title: "Draw around images to select them; Shift adds to the selection, Escape cancels (l)", onclick: toggleLasso }, "Lasso");
  return lasso.button;
}

function toggleLasso() {
  if (!map.canvas) return;
  lasso.on = !lasso.on;
  cancelLasso();
  lasso.button.setAttribute("aria-pressed", String(lasso.on));
  map.canvas.classList.toggle("drawing", lasso.on);
  map.note.textContent = lasso.on ? "Lasso on: draw around images to select them." : "Lasso off: dragging moves the map.";
}

/** A second finger means zooming, not drawing. */
function lassoDown(event) {
  if (map.touches.size > 1) return cancelLasso();
  mapHover(-1);
  Object.assign(lasso, { shape: [[event.offsetX, event.offsetY]], pointer: event.pointerId });
  return undefined;
}

function lassoMove(event, touch) {
  if (event.pointerId !== lasso.pointer) return;
  const [x, y] = lasso.shape[lasso.shape.length - 1];
  if (Math.hypot(event.offsetX - x, event.offsetY - y) < LASSO_STEP) return;
  lasso.shape.push([event.offsetX, event.offsetY]);
  Object.assign(touch, { x: event.offsetX, y: event.offsetY, moved: true });
  drawMap();
}

/** Returns whether something was drawn; else it was a click on one image. */
function lassoUp(event) {
  if (event.pointerId !== lasso.pointer) return true;
  const { shape } = lasso;
  cancelLasso();
  if (shape.length < 3) return shape.length > 1;
  const inside = map.points.filter((i) => (map.only === null || now.category[i] === map.only) && windsRound(shape, ...screen(i)));
  if (!event.shiftKey) selected.clear();
  inside.forEach((i) => selected.add(i));
  showSelection();
  map.note.textContent = inside.length ? `${plural(inside.length, "image")} inside the lasso.` : "No image lies inside the lasso.";
  if (!inside.length) toast("No image lies inside the lasso.");
  return true;
}

/** Returns whether there was something to cancel. */
function cancelLasso() {
  const drawn = lasso.shape !== null;
  Object.assign(lasso, { shape: null, pointer: -1 });
  if (drawn) drawMap();
  return drawn;
}

/** Escape takes back one thing at a time: the shape, the selection, the lasso itself. */
function escape() {
  if (cancelLasso()) return;
  if (selected.size) clearSelected();
  else if (lasso.on && map.canvas) toggleLasso();
}

function paintLasso(pen, ink, accent) {
  if (!lasso.shape) return;
  pen.beginPath();
  lasso.shape.forEach(([x, y]) => pen.lineTo(x, y));
  pen.closePath();
  pen.globalAlpha = 0.15;
  pen.fillStyle = accent;
  pen.fill("nonzero");
  pen.globalAlpha = 1;
  pen.setLineDash([6, 4]);
  pen.lineWidth = 2;
  pen.strokeStyle = ink;
  pen.stroke();
  pen.setLineDash([]);
}

/** Does a closed shape wind round a point? So a shape that crosses itself holds all of its loops. */
function windsRound(shape, x, y) {
  let turns = 0;
  shape.forEach(([x1, y1], at) => {
    const [x0, y0] = shape[(at || shape.length) - 1];
    const side = (x1 - x0) * (y - y0) - (x - x0) * (y1 - y0);
    if (y0 <= y && y1 > y && side > 0) turns++;
    else if (y0 > y && y1 <= y && side < 0) turns--;
  });
  return turns !== 0;
}
