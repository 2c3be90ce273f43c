// Dialogues, navigation and the start of the page.

const VIEWS = {
  overview: ["Overview", overview],
  category: ["Categories", categoryView],
  map: ["Map", () => [h("h1", {}, "Map"), mapView()]],
  relations: ["Relations", relationsView],
  doubtful: ["Doubtful", doubtfulView],
  settings: ["Settings", settingsView],
  find: ["", findView],
  alike: ["", alikeView],
  ...(studio ? studio.views : {}),
};
const MENU = studio?.menu ?? Object.keys(VIEWS).filter((key) => VIEWS[key][0]); // the others are reached from a field or an image

let toastTimer = 0;
function toast(words, undoing = null) {
  const place = document.getElementById("toast");
  refill(place, [h("span", {}, words), undoing ? h("button", { type: "button", onclick: undoing }, "Undo") : ""]);
  place.classList.add("on");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => place.classList.remove("on"), 7000);
}

/** A modal dialogue; goes when it is closed. */
function dialogue(title, kind, ...children) {
  const element = h("dialog", { class: kind, "aria-label": title, onclose: () => element.remove(),
    onclick: (event) => event.target === element && element.close() }, h("div", { class: "inside" }, ...children));
  document.body.append(element);
  element.showModal();
  return element;
}

const closer = () => h("button", { type: "button", class: "quiet close", "aria-label": "Close",
  onclick: (event) => event.target.closest("dialog").close() }, "×");

function askName(title, words, value, then) {
  const field = h("input", { type: "text", "aria-label": "Name", value, maxlength: 200, spellcheck: "false", list: "names", autocomplete: "off" });
  const form = h("form", { onsubmit: (event) => {
    event.preventDefault();
    element.close(); // first, so that the focus is on the page again when the edit is made
    if (field.value.trim()) then(field.value.trim());
  } }, h("h2", {}, title), h("p", {}, words), field, h("datalist", { id: "names" }, alive().filter((category) => !UNNAMED.test(category.name)).map((category) => h("option", { value: category.name }))),
  h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Save"),
    h("button", { type: "button", class: "quiet", onclick: (event) => event.target.closest("dialog").close() }, "Cancel")));
  const element = dialogue(title, "ask", form);
  field.focus();
  field.select();
}

/** A field that finds a category by its name, above the list of them. about: images; what looks most like them comes first. */
function pickCategory(title, { about, without }, then) {
  const rest = byLikeness(about).filter((category) => category !== without);
  const box = h("div", { class: "choices", id: "choices", role: "listbox", "aria-label": "Categories" });
  const hint = h("p", { class: "soft", role: "status" });
  const field = h("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "choices", "aria-autocomplete": "list", autocomplete: "off",
    spellcheck: "false", placeholder: "Find a category", "aria-label": "Find a category", oninput: () => list(), onkeydown: (event) => key(event) });
  const element = dialogue(title, "pick", closer(), h("h2", {}, title), field, hint, box);
  let shown = [];
  let at = -1; // of the option that Enter takes
  const mark = (to) => {
    at = to;
    [...box.children].forEach((option, n) => option.setAttribute("aria-selected", String(n === at)));
    field.setAttribute("aria-activedescendant", at < 0 ? "" : `choice-${at}`);
    box.children[at]?.scrollIntoView({ block: "nearest" });
  };
  const take = (category) => {
    element.close();
    then(category);
  };
  const key = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && shown.length) mark(at < 0 && step < 0 ? shown.length - 1 : (at + step + shown.length) % shown.length);
    else if (event.key === "Enter" && at >= 0) take(shown[at]);
    else return;
    event.preventDefault();
  };
  const list = () => {
    const word = field.value.trim().toLowerCase();
    shown = rest.filter((category) => category.name.toLowerCase().includes(word)).slice(0, 200);
    box.replaceChildren(...shown.map((category, n) => h("div", { role: "option", id: `choice-${n}`, onclick: () => take(category) },
      category.exemplars.slice(0, 1).map((i) => thumb(i, { cover: true, lazy: false })), glyph(category.kind),
      h("span", { class: "who" }, category.name), h("span", { class: "n" }, number(category.n)))));
    hint.textContent = shown.length ? "The most alike first." : "No category has this in its name.";
    mark(shown.length === 1 ? 0 : shown.findIndex((category) => category.name.toLowerCase() === word));
  };
  list();
  field.focus();
}

/** One image, large, with everything known about it. It takes the keys of an edit and goes on through the list. */
function showImage(list, position) {
  const inside = h("div", { class: "picture", tabindex: -1 });
  const dialog = dialogue("Image", "look", inside);
  const turn = (step) => closeUp.focus(closeUp.position + step);
  closeUp = { list, position, element: inside, focus(at) {
    this.position = Math.max(0, Math.min(list.length - 1, at));
    refill(inside, closeLook(list[this.position], this.position, list.length, turn));
  } };
  dialog.addEventListener("close", () => {
    if (cursor?.list === list) cursor.position = closeUp.position;
    closeUp = null;
    returnFocus();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") turn(1);
    else if (event.key === "ArrowLeft") turn(-1);
    else if (event.key === " " && event.target.tagName !== "BUTTON") {
      event.preventDefault();
      toggle(list[closeUp.position]);
      showSelection();
      turn(0);
    }
  });
  inside.focus();
  turn(0);
}

/** The whole picture with a frame around the part that the image is. */
const framed = (picture, [left, top, width, height]) => h("div", { class: "framed" }, picture,
  h("span", { class: "box", "aria-hidden": "true", style: { left: `${left}%`, top: `${top}%`, width: `${width}%`, height: `${height}%` } }));

function closeLook(i, position, n, turn) {
  const category = now.categories[now.category[i]];
  const where = address(i);
  const fallback = h("div", { class: "large" }, thumb(i, { lazy: false }));
  const picture = where ? h("img", { class: "large", src: where, alt: describe(i), onerror: (event) => (event.target.closest(".framed") ?? event.target).replaceWith(fallback) }) : fallback;
  const shown = where && boxOf(i) ? framed(picture, boxOf(i)) : picture;
  const facts = [
    ["Category", category ? h("a", { href: link(category), onclick: (event) => event.target.closest("dialog").close() }, glyph(category.kind), " ", category.name) : "none"],
    ["Could also be", secondOf(i)?.name ?? null],
    ["Probability", share(images.probability[i])], ["Known score", share(images.known_score[i])], ["Typicality", share(images.typicality[i])],
    ["Label", images.label[i] >= 0 ? nameOf(images.labels[images.label[i]]) : "none"], ["Confirmed as", labelOf(i) || null],
    ...occasionFacts(i), ["Doubtful", now.doubtful[i] ? "yes" : null], ["Note", now.note.get(i) || null], ["Problem", images.problem[i] || null],
    ["File", where ? h("a", { href: where, target: "_blank", rel: "noopener" }, legible(name(i))) : legible(name(i))],
    ["The same content", copiesOf(i).map((copy) => legible(name(copy))).join("; ") || null],
    ["Box", boxOf(i) ? `${boxOf(i).join(", ")} % (left, top, width, height)` : null],
  ];
  return [closer(), shown, h("div", { class: "text" },
    h("dl", { class: "facts" }, facts.filter(([, value]) => value !== null).map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value)))),
    h("div", { class: "buttons" },
      h("button", { type: "button", disabled: position === 0, onclick: () => turn(-1), "aria-label": "Previous image" }, "‹"),
      h("span", { class: "soft" }, `${number(position + 1)} of ${number(n)}`),
      h("button", { type: "button", disabled: position === n - 1, onclick: () => turn(1), "aria-label": "Next image" }, "›"),
      h("button", { type: "button", class: "primary", onclick: () => { toggle(i); showSelection(); turn(0); } }, selected.has(i) ? "Unselect" : "Select"),
      h("a", { class: "button", href: alikeLink(i), onclick: (event) => event.target.closest("dialog").close() }, "More like this")))];
}

function showEdits() {
  const file = h("input", { type: "file", accept: ".csv,text/csv", class: "sr", "aria-label": "Import edits.csv", tabindex: -1, onchange: async () => {
    if (file.files[0]) importCsv(await file.files[0].arrayBuffer());
    element.close();
    showEdits();
  } });
  const shortened = edits.map((edit, at) => [edit, now.problems[at]]).slice(-300).reverse();
  const element = dialogue("Edits", "edits", closer(), h("h2", {}, "Your edits"),
    studio ? studio.editsLead() : data.mailed ? h("p", { class: "lead" }, "They are kept in this browser. Export them, and send the file to whoever sent you this report.") : [
      h("p", { class: "lead" }, "They are kept in this browser. Export them, then let Holotype apply names, merges and moves:"),
      h("pre", {}, "holotype report RUN --edits edits.csv"),
      h("p", { class: "lead" }, "or give them to holotype discover, which trains another round that learns from them.")],
    h("div", { class: "buttons" },
      h("button", { type: "button", class: "primary", disabled: !edits.length, onclick: exportCsv }, "Export edits.csv"),
      h("button", { type: "button", onclick: () => file.click() }, "Import…"), file,
      h("button", { type: "button", disabled: !edits.length, class: "undo", onclick: () => {
        undo();
        element.close();
        showEdits().querySelector(".undo:enabled")?.focus();
      } }, "Undo last")),
    data.log.length ? h("p", { class: "soft" }, `The log of this run holds ${plural(data.log.length, "edit")} made earlier.`) : null,
    h("ol", { class: "log" }, shortened.map(([edit, problem]) => h("li", {}, editWords(edit), problem ? h("em", {}, ` ${problem}`) : null))));
  return element;
}

const editWords = (edit) => [h("strong", {}, edit.action), ` ${edit.image ? legible(edit.image.split(/[\\/]/).pop()) : edit.category}`, edit.value ? ` → ${valueWords(edit)}` : "", edit.by ? ` (${edit.by})` : ""];
/** The target of an edit as it is called now, where it is a category. */
const valueWords = (edit) => (edit.action === "rename" ? edit.value : now.find(edit.value)?.name ?? edit.value);

// -- navigation ---------------------------------------------------------------------------------------

function place() {
  const [view, ...rest] = location.hash.slice(1).split("/");
  let id = "";
  try {
    id = decodeURIComponent(rest.join("/"));
  } catch { /* a broken address: the first category */ }
  return [Object.hasOwn(VIEWS, view) ? view : MENU[0], id];
}

let shownAt = null;
function show() {
  const [view, id] = place();
  const main = document.getElementById("main");
  const key = `${view}/${view === "category" ? categoryAt(id)?.id ?? "" : id}`;
  const top = key === shownAt ? scrollY : 0;
  if (key !== shownAt) {
    cursor = null;
    endSelection();
    studio?.arrive();
  }
  map.canvas = null;
  document.getElementById("hover").hidden = true;
  const content = VIEWS[view][1](id);
  main.className = `view ${view}`;
  refill(main, [studio ? null : earlierPanel(), content].flat(3).filter(Boolean));
  navigation(view);
  followFind(view, id);
  const typing = view === "find" && document.activeElement === findField();
  if (shownAt !== null && key !== shownAt && !typing) main.focus({ preventScroll: true });
  scrollTo(0, top);
  shownAt = key;
  drawMap();
}

function navigation(view) {
  refill(document.getElementById("nav"), MENU.map((key) =>
    h("a", { href: `#${key}`, "aria-current": key === view ? "page" : null }, VIEWS[key][0],
      key === "doubtful" ? h("span", { class: "n" }, number(onePerBurst(doubtful()).length)) : studio?.badge(key) ?? null)));
  document.querySelector("#nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  const button = document.getElementById("edits-button");
  button.textContent = studio ? studio.editsLabel() : edits.length ? plural(edits.length, "edit") : "No edits";
  button.classList.toggle("some", edits.length > 0);
}

/** All keys of this page; ? shows them, and Settings. */
const KEY_WORDS = {
  [`1 to ${MENU.length}`]: "go to a view", "arrows": "from image to image, in galleries and on the map", Space: "select or unselect", Enter: "look closer", s: "more like this image",
  "/": "find by file name", l: "the lasso on the map", m: "move the selected images, or else the one that has the focus", n: "split them off as a new category", c: "confirm them", r: "reject them",
  b: "select the other frames of their bursts too", u: "undo the last edit", Escape: "unselect, close", "Ctrl P": "print, with pictures", "?": "show these keys", ...studio?.keys,
};
const keyList = () => h("dl", { class: "facts keys" }, Object.entries(KEY_WORDS).map(([key, words]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, words))));
const showKeys = () => dialogue("Keys", "ask", closer(), h("h2", {}, "Keys"), keyList());

const EDITING = { m: moveSelected, n: splitSelected, c: confirmSelected, r: rejectSelected, u: undo };
const SHORTCUTS = { ...EDITING, b: selectBursts, l: toggleLasso, "/": () => findField().focus(), Escape: escape, "?": showKeys };

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, [contenteditable]")) return;
  const dialog = [...document.querySelectorAll("dialog[open]")].at(-1);
  if (dialog && !dialog.classList.contains("look")) return;
  const keys = dialog ? EDITING : SHORTCUTS;
  if (!dialog && studio?.key(event.key)) return event.preventDefault();
  if (!dialog && /^[1-9]$/.test(event.key) && MENU[event.key - 1]) location.hash = `#${MENU[event.key - 1]}`;
  else if (Object.hasOwn(keys, event.key)) {
    if (event.key !== "Escape") event.preventDefault(); // else the letter lands in the field that opens
    keys[event.key]();
  }
}

function start() {
  if (!data || data.format !== 2) {
    document.getElementById("main").append(h("h1", {}, "The data are missing"), h("p", {},
      "This page needs the folder “report” beside it, as Holotype wrote it. If it lies in a zip file, unpack that first; else copy both together, or build them again with holotype report RUN."));
    return;
  }
  (studio?.load ?? loadEdits)();
  rebuild();
  if (!studio) {
    storeEdits();
    loadEarlier();
  }
  startFind();
  startPrint();
  listeners.push(show);
  document.getElementById("edits-button").addEventListener("click", showEdits);
  addEventListener("hashchange", show);
  addEventListener("keydown", onKey);
  addEventListener("storage", (event) => {
    if (event.key !== STORE || studio) return;
    loadEdits();
    rebuild();
    show();
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
  studio?.start();
  document.body.dataset.ready = "yes";
}

start();
