// Tiles, galleries that grow as one scrolls, the selection, and where the keyboard is.

const selected = new Set();
const CHUNK = 96;

/** Thumbnails load when they come near the visible part of the page. */
const nearby = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    entry.target.style.backgroundImage = `url("${entry.target.dataset.sheet}")`;
    nearby.unobserve(entry.target);
  }
}, { rootMargin: "400px" });

/** A thumbnail. Its box is a square whose side is the CSS variable --side; cover: fill the square. */
function thumb(i, { cover = false, lazy = true } = {}) {
  if (studio) return studio.thumb(i, cover, lazy);
  const { cell, width, height, side, grid, folder } = data.thumbs;
  const at = cell[i];
  if (at === undefined || at < 0) return h("span", { class: "thumb missing", title: "no picture" }, "?");
  const [w, t] = [width[i], height[i]];
  const unit = cover ? Math.min(w, t) : Math.max(w, t);
  const place = at % (grid * grid);
  const left = (place % grid) * side + (cover ? (w - unit) / 2 : 0);
  const top = Math.floor(place / grid) * side + (cover ? (t - unit) / 2 : 0);
  const sheet = `${folder}${String(Math.floor(at / (grid * grid))).padStart(5, "0")}.jpg`;
  const element = h("span", { class: "thumb", style: {
    "--w": cover ? 1 : w / unit, "--h": cover ? 1 : t / unit,
    "--b": (grid * side) / unit, "--x": -left / unit, "--y": -top / unit,
  } });
  element.dataset.sheet = sheet;
  if (lazy) nearby.observe(element);
  else element.style.backgroundImage = `url("${sheet}")`;
  return element;
}

function describe(i) {
  const category = now.categories[now.category[i]];
  const parts = [shortName(i), category ? `in ${category.name}` : "in no category"];
  if (images.probability[i] !== null) parts.push(`probability ${share(images.probability[i])}`);
  if (images.label[i] >= 0) parts.push(`labelled ${nameOf(images.labels[images.label[i]])}`);
  if (now.confirmed.has(i)) parts.push(`confirmed as ${labelOf(i)}`);
  if (now.doubtful[i]) parts.push("doubtful");
  if (images.taken?.[i]) parts.push(`taken ${whenTaken(i)}`);
  if (framesOf(i).length > 1) parts.push(`one of ${framesOf(i).length} frames of a burst`);
  return parts.join(", ");
}

function badge(i) {
  if (now.confirmed.has(i)) return h("span", { class: "badge ok", "aria-hidden": "true" }, "✓");
  if (now.doubtful[i]) return h("span", { class: "badge doubt", "aria-hidden": "true" }, "?");
  if (now.note.get(i) === "moved by hand") return h("span", { class: "badge moved", "aria-hidden": "true" }, "→");
  if (images.label[i] >= 0) return h("span", { class: "badge label", "aria-hidden": "true" }, "L");
  return null;
}

/** A grid of tiles. caption: image -> a line below its tile, or null. id: stays when the title changes. */
class Gallery {
  constructor(list, { caption = null, title = "Images", id = title } = {}) {
    this.list = list;
    this.id = id;
    this.position = 0; // of the tile that had the focus last
    this.caption = caption;
    this.shown = 0;
    this.last = 0;
    this.grid = h("div", { class: "grid", role: "listbox", "aria-multiselectable": "true", "aria-label": title,
      onclick: (event) => this.click(event), ondblclick: (event) => this.open(this.at(event)),
      onkeydown: (event) => this.key(event), onfocusin: (event) => this.enter(event) });
    this.end = h("div", { class: "end", "aria-hidden": "true" });
    this.element = h("div", { class: "gallery" }, this.grid, this.end);
    this.element.gallery = this;
    this.more();
    this.watch = new IntersectionObserver((entries) => entries.some((e) => e.isIntersecting) && this.more(),
      { rootMargin: "900px" });
    this.watch.observe(this.end);
  }

  more(until = this.shown + CHUNK) {
    const part = document.createDocumentFragment();
    for (; this.shown < Math.min(until, this.list.length); this.shown++) part.append(this.tile(this.shown));
    this.grid.append(part);
    if (this.shown >= this.list.length && this.watch) this.watch.disconnect();
  }

  tile(position) {
    const i = this.list[position];
    const chosen = selected.has(i);
    return h("div", { class: "tile", role: "option", tabindex: position === 0 ? 0 : -1, "aria-selected": String(chosen),
      "aria-label": describe(i), title: describe(i), "data-position": position, "data-image": i },
    h("span", { class: "frame" }, thumb(i), badge(i)),
    h("span", { class: "zoomer", "aria-hidden": "true", title: "Look closer (Enter)" }, "⤢"), // no button: an option holds none
    this.caption ? h("span", { class: "caption" }, this.caption(i)) : null);
  }

  at(event) {
    const tile = event.target.closest(".tile");
    return tile ? Number(tile.dataset.position) : null;
  }

  click(event) {
    const position = this.at(event);
    if (position === null) return;
    if (event.target.closest(".zoomer")) return this.open(position);
    if (event.shiftKey) {
      const [from, to] = [Math.min(this.last, position), Math.max(this.last, position)];
      for (let p = from; p <= to; p++) selected.add(this.list[p]);
    } else toggle(this.list[position]);
    this.last = position;
    this.focus(position);
    showSelection();
  }

  open(position) {
    if (position !== null) showImage(this.list, position);
  }

  focus(position) {
    this.more(Math.max(this.shown, Math.min(position + 1, this.list.length)));
    const tile = this.grid.children[position];
    this.element.closest("details")?.setAttribute("open", "");
    tile?.focus();
  }

  enter(event) {
    cursor = this;
    this.position = this.at(event);
    this.grid.querySelectorAll('[tabindex="0"]').forEach((other) => other.setAttribute("tabindex", "-1"));
    event.target.closest(".tile").setAttribute("tabindex", "0");
  }

  columns() {
    return Math.max(1, getComputedStyle(this.grid).gridTemplateColumns.split(" ").length);
  }

  key(event) {
    const position = this.at(event);
    if (position === null || event.target.closest(".zoomer")) return;
    const columns = this.columns();
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns,
      Home: -position, End: this.shown - 1 - position }[event.key];
    if (step !== undefined) {
      this.focus(Math.max(0, Math.min(this.list.length - 1, position + step)));
    } else if (event.key === " ") {
      toggle(this.list[position]);
      this.last = position;
      showSelection();
    } else if (event.key === "Enter") this.open(position);
    else if (event.key === "s" && !event.ctrlKey && !event.metaKey) location.hash = alikeLink(this.list[position]);
    else return;
    event.preventDefault();
  }
}

/** The grid of a list of images; a studio has one that holds few tiles of any number of images. */
const galleryOf = (list, options) => (studio ? new studio.Gallery(list, options) : new Gallery(list, options));

function toggle(i) {
  if (selected.has(i)) selected.delete(i);
  else selected.add(i);
}

/** Tiles follow the selection, and the bar at the bottom says what can be done with it. */
function showSelection() {
  document.querySelectorAll(".tile[data-image]").forEach((tile) =>
    tile.setAttribute("aria-selected", String(selected.has(Number(tile.dataset.image)))));
  const bar = document.getElementById("selection");
  bar.hidden = selected.size === 0;
  const first = [...selected].slice(0, 4);
  refill(bar, [
    h("span", { class: "few" }, first.map((i) => thumb(i, { cover: true, lazy: false }))),
    h("strong", {}, `${number(selected.size)} selected`),
    h("span", { class: "buttons" },
      burstButton(),
      h("button", { type: "button", onclick: moveSelected }, "Move to…"),
      h("button", { type: "button", onclick: splitSelected }, "New category…"),
      h("button", { type: "button", onclick: confirmSelected, title: "They belong where they are: use as labels in the next round" }, "Confirm"),
      h("button", { type: "button", onclick: rejectSelected, title: "They belong to no category" }, "Reject"),
      h("button", { type: "button", class: "quiet", onclick: clearSelected }, "Clear")),
  ]);
  if (typeof drawMap === "function") drawMap();
}

function clearSelected() {
  selected.clear();
  showSelection();
}

/** What is selected is what one sees: a selection goes with the view that it was made in, and so do open questions about it. */
function endSelection() {
  document.querySelectorAll("dialog[open]").forEach((open) => open.close());
  if (!selected.size) return;
  toast(`${plural(selected.size, "image is", "images are")} no longer selected: they are out of sight.`);
  clearSelected();
}

const idOf = (i) => now.categories[now.category[i]]?.id ?? "";

const editOf = (action, i, value = "") => ({ action, image: name(i), category: idOf(i), value, digest: images.digest[i] ?? "" });

/** list: the images that the edits are about. */
function done(list, edits, message) {
  list.forEach((i) => selected.delete(i));
  addEdits(edits, message);
  showSelection();
  goOn({ edited: list });
}

/** Where a command asks for a name, what is typed next must not be read as commands, even if there is no image to name. */
function noImage() {
  dialogue("No image", "ask", h("form", { method: "dialog" }, h("p", {}, "Select images first, or go to one with the arrow keys."),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "OK"))));
}

function moveSelected() {
  const list = targets();
  if (!list.length) return noImage();
  const own = new Set(list.map((i) => now.categories[now.category[i]]));
  pickCategory("Move to", { about: list, without: own.size === 1 ? [...own][0] : null }, (target) =>
    done(list, list.map((i) => editOf("move", i, target.id)),
      `${plural(list.length, "image")} moved to ${target.name}.`));
}

function splitSelected() {
  const list = targets();
  if (!list.length) return noImage();
  askName("New category", `${plural(list.length, "image")} will be split off as a category of their own. Nothing is said about the images that stay.`, "", (word) => {
    const taken = findCategory(word);
    done(list, list.map((i) => editOf("move", i, taken ? taken.id : word)),
      `${plural(list.length, "image")} moved to ${word}.`);
  });
}

const confirmSelected = () => confirmImages(targets());

/** They belong where they are. A new category needs a name first, since its name becomes the label. */
function confirmImages(list) {
  const placed = list.filter((i) => now.category[i] >= 0);
  if (!placed.length) return;
  const unnamed = placed.map((i) => now.categories[now.category[i]]).find((c) => c.kind === "novel" && UNNAMED.test(c.name));
  if (unnamed) {
    askName(`What is ${unnamed.name}?`, "Confirmed images become labels of a class in the next round, so it needs a name.", unnamed.suggested, (word) => {
      if (addEdits([{ action: "rename", category: unnamed.id, value: word }])) confirmImages(list);
    });
    return;
  }
  done(list, placed.map((i) => editOf("confirm", i, idOf(i))),
    `${plural(placed.length, "image")} confirmed; the next round learns from ${placed.length === 1 ? "it" : "them"}.`);
}

function rejectSelected() {
  const list = targets();
  if (!list.length) return;
  done(list, list.map((i) => editOf("reject", i)),
    `${plural(list.length, "image")} rejected.`);
}

// Where the keyboard is among the images, and where it goes on after an edit.

const CONTROLS = "a, button:not([tabindex]), input, select, summary";
let cursor = null; // the gallery of which an image had the focus last; its `position` says which
let closeUp = null; // the image that is shown large, as a list with a position likewise

/** Fill an element anew: the control that had the focus has it again, or else the keyboard goes back to its image. */
function refill(element, children) {
  const controls = () => [...element.querySelectorAll(CONTROLS)];
  const holder = document.activeElement;
  const at = controls().indexOf(holder);
  element.replaceChildren(...children);
  if (holder.isConnected) return;
  controls()[at]?.focus({ preventScroll: true });
  if (document.activeElement === document.body) returnFocus();
}

/** To the image that the keyboard was at, or the next one that is still there, or the last. */
function returnFocus() {
  const gallery = [...document.querySelectorAll("main .gallery")].map((element) => element.gallery).find(({ id, list }) => id === cursor?.id && list.length);
  if (closeUp) closeUp.element.focus();
  else if (gallery) {
    const there = new Set(gallery.list);
    const next = cursor.list.slice(cursor.position).find((i) => there.has(i));
    gallery.focus(next === undefined ? gallery.list.length - 1 : gallery.list.indexOf(next));
  } else if (document.activeElement === document.body) (map.canvas ?? document.getElementById("main")).focus({ preventScroll: true });
}

/** After an edit: to the first image that an undo brought back, else to the next one that was not edited, else to the last. */
function goOn({ edited = [], undone = [] }) {
  returnFocus();
  const spot = closeUp ?? cursor;
  if (!spot) return;
  const [done, back] = [new Set(edited), new Set(undone)];
  const returned = spot.list.findIndex((i) => back.has(i));
  const next = spot.list.findIndex((i, at) => at >= spot.position && !done.has(i));
  spot.focus([returned, next].find((at) => at >= 0) ?? spot.list.length - 1);
}

/** What a command is about: the image that is shown large, else the selection, else the image that has the focus. */
function targets() {
  if (closeUp) return [closeUp.list[closeUp.position]];
  if (selected.size) return [...selected];
  const tile = document.activeElement.closest(".tile[data-image]");
  if (tile) return [Number(tile.dataset.image)];
  return map.canvas && document.activeElement === map.canvas && map.keys >= 0 ? [map.keys] : [];
}
