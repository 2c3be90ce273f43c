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
