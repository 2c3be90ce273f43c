// Corrections: a list of edits in this browser, applied to the data of the run as holotype report does it.

const STORE = data ? `holotype:edits:${data.run_id}` : "";
const COLUMNS = ["run_id", "time", "action", "image", "category", "value"];
const rowOf = new Map();
if (images) for (let i = 0; i < size; i++) rowOf.set(name(i), i);

const keyOf = (edit) => COLUMNS.map((column) => edit[column]).join("\u001f");
const held = new Set(data ? data.log.map((row) => row.join("\u001f")) : []); // what the run folder has already
const SHOWN = new Int32Array(data ? data.categories.length : 0); // images of each category in this report
if (images) for (const c of images.category) if (c >= 0) SHOWN[c]++;
let edits = [];
const listeners = [];

function loadEdits() {
  try {
    edits = JSON.parse(localStorage.getItem(STORE) || "[]").filter((edit) => !held.has(keyOf(edit)));
  } catch {
    edits = [];
  }
}

function storeEdits() {
  try {
    localStorage.setItem(STORE, JSON.stringify(edits));
  } catch {
    toast("This browser cannot keep edits between visits: export them before you close the page.");
  }
}

function changed() {
  storeEdits();
  rebuild();
  listeners.forEach((listener) => listener());
}

/** Edits made together carry the same time and are undone together. */
function addEdits(list, message) {
  const time = new Date().toISOString();
  const before = edits.length;
  edits.push(...list.map((edit) => ({ run_id: data.run_id, time, image: "", category: "", value: "", ...edit })));
  rebuild();
  const failed = edits.slice(before).find((edit) => edit.problem);
  if (failed) {
    const problem = failed.problem;
    edits = edits.filter((edit, i) => i < before || !edit.problem);
    toast(problem);
  } else if (message) toast(message, undo);
  changed();
  return !failed;
}

function undo() {
  if (!edits.length) return toast("There is nothing to undo.");
  const time = edits[edits.length - 1].time;
  edits = edits.filter((edit) => edit.time !== time);
  changed();
  return toast("Undone.");
}

function findCategory(word) {
  const seen = new Set();
  while (now.merged.has(word) && !seen.has(word)) {
    seen.add(word);
    word = now.merged.get(word);
  }
  const found = now.byId.get(word);
  return found && found.alive ? found : now.categories.find((c) => c.alive && c.name === word) || null;
}

/** Everything anew from the data of the run; an edit that does not fit gets a `problem`. */
function rebuild() {
  now.categories = data.categories.map((category, index) => ({ ...category, index, alive: true, found: category.n }));
  now.byId = new Map(now.categories.map((category) => [category.id, category]));
  now.merged = new Map(Object.entries(data.merged));
  now.category = Int32Array.from(images.category);
  now.doubtful = Uint8Array.from(images.doubtful);
  now.mark = new Map();
  now.confirmed = new Map();
  for (const [i, value] of Object.entries(data.confirmed)) now.confirmed.set(Number(i), value);
  for (const edit of edits) {
    const problem = ACTIONS[edit.action] ? ACTIONS[edit.action](edit) : "An action this page does not know.";
    if (problem) edit.problem = problem;
    else delete edit.problem;
  }
  count();
}

function count() {
  now.members = now.categories.map(() => []);
  for (let i = 0; i < size; i++) if (now.category[i] >= 0) now.members[now.category[i]].push(i);
  now.categories.forEach((category, c) => {
    now.members[c].sort((a, b) => (images.typicality[b] ?? -1) - (images.typicality[a] ?? -1) || a - b);
    category.n = category.found + now.members[c].length - (SHOWN[c] ?? 0);
    category.exemplars = category.exemplars.filter((i) => now.category[i] === c);
    if (!category.exemplars.length) category.exemplars = now.members[c].slice(0, 12);
    category.borderline = category.borderline.filter((i) => now.category[i] === c);
    if (category.alive && category.n <= 0 && category.kind === "novel") category.alive = false;
  });
}

function create(word) {
  const category = {
    id: word, name: word, kind: "novel", n: 0, found: 0, exemplars: [], borderline: [], cohesion: null, separation: null,
    nearest: "", signature: [], words: "split off by hand", suggested: "", index: now.categories.length, alive: true,
  };
  now.categories.push(category);
  now.byId.set(word, category);
  return category;
}

function put(i, index, mark) {
  now.category[i] = index;
  now.doubtful[i] = 0;
  now.mark.set(i, mark);
}

const ACTIONS = {
  rename(edit) {
    const category = findCategory(edit.category);
    const word = edit.value.trim();
    if (!category) return `There is no category ${edit.category}.`;
    if (!word) return "A name cannot be empty.";
    const other = now.categories.find((c) => c.alive && c !== category && (c.name === word || c.id === word));
    if (other) return `Another category is called ${word}; merge the two instead.`;
    category.name = word;
    return "";
  },
  merge(edit) {
    const source = findCategory(edit.category);
    const target = findCategory(edit.value);
    if (!source || !target) return `There is no category ${source ? edit.value : edit.category}.`;
    if (source === target) return "The two are one category already.";
    if (source.kind === "known") return `${source.name} is a known class and stays; merge the other one into it.`;
    for (let i = 0; i < size; i++) if (now.category[i] === source.index) now.category[i] = target.index;
    target.exemplars = target.exemplars.flatMap((i, at) => [i, source.exemplars[at]]).filter((i) => i !== undefined);
    target.borderline = [...target.borderline, ...source.borderline];
    target.found += source.found - (SHOWN[source.index] ?? 0); // images of it that the report does not show
    source.alive = false;
    now.merged.set(source.id, target.id);
    return "";
  },
  move(edit) {
    const i = rowOf.get(edit.image);
    const word = edit.value.trim();
    if (i === undefined) return `There is no image ${edit.image} in this report.`;
    if (!word) return "It does not say where to.";
    put(i, (findCategory(word) || create(word)).index, "moved");
    return "";
  },
  reject(edit) {
    if (edit.image) {
      const i = rowOf.get(edit.image);
      if (i === undefined) return `There is no image ${edit.image} in this report.`;
      put(i, -1, "rejected");
      now.confirmed.delete(i);
      return "";
    }
    const category = findCategory(edit.category);
    if (!category) return `There is no category ${edit.category}.`;
    for (let i = 0; i < size; i++) if (now.category[i] === category.index) put(i, -1, "rejected");
    category.alive = false;
    return "";
  },
  confirm(edit) {
    const i = rowOf.get(edit.image);
    if (i === undefined) return `There is no image ${edit.image} in this report.`;
    if (!edit.value.trim()) return "It does not say which label.";
    const category = findCategory(edit.value.trim());
    if (category) put(i, category.index, "confirmed");
    now.confirmed.set(i, edit.value.trim());
    return "";
  },
};

const labelOf = (i) => {
  const value = now.confirmed.get(i);
  return value === undefined ? "" : findCategory(value)?.name ?? value;
};

// -- edits.csv: commas, quotes where needed, and an apostrophe before what a spreadsheet takes for a formula

const RISKY = /^[=+\-@\t\r']/;
const guarded = (cell) => (RISKY.test(cell) ? `'${cell}` : cell);
const bare = (cell) => (cell[0] === "'" && RISKY.test(cell.slice(1)) ? cell.slice(1) : cell);
const quoted = (cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);

const toCsv = (list) =>
  [COLUMNS, ...list.map((edit) => COLUMNS.map((column) => guarded(edit[column])))]
    .map((cells) => cells.map(quoted).join(",") + "\n").join("");

/** Rows of cells. A field in quotes may hold separators, quotes twice, and line ends. */
function parseCsv(text) {
  text = text.replace(/^\ufeff/, "");
  const head = text.split("\n", 1)[0];
  const separator = head.split(";").length > head.split(",").length ? ";" : ",";
  const rows = [[]];
  let cell = "";
  let inside = false;
  for (let at = 0; at < text.length; at++) {
    const sign = text[at];
    if (inside) {
      if (sign !== '"') cell += sign;
      else if (text[at + 1] === '"') cell += text[++at];
      else inside = false;
    } else if (sign === '"' && cell === "") inside = true;
    else if (sign === separator || sign === "\n") {
      rows[rows.length - 1].push(sign === "\n" ? cell.replace(/\r$/, "") : cell);
      cell = "";
      if (sign === "\n") rows.push([]);
    } else cell += sign;
  }
  if (cell !== "" || rows[rows.length - 1].length) rows[rows.length - 1].push(cell);
  return rows.filter((row) => row.some((content) => content !== ""));
}

function importCsv(text) {
  const [head, ...rows] = parseCsv(text);
  const missing = COLUMNS.find((column) => !head || !head.includes(column));
  if (missing) return toast(`This is not an edits file: it has no column ${missing}.`);
  const read = rows.map((row) => Object.fromEntries(COLUMNS.map((c) => [c, bare(row[head.indexOf(c)] ?? "")])));
  const own = read.filter((edit) => edit.run_id === data.run_id);
  const have = new Set([...held, ...edits.map(keyOf)]);
  const fresh = own.filter((edit) => !have.has(keyOf(edit)));
  edits.push(...fresh);
  changed();
  const foreign = read.length - own.length;
  return toast(`${plural(fresh.length, "edit")} imported, ${number(own.length - fresh.length)} were here already` +
    (foreign ? `; ${number(foreign)} belong to another run and were left out.` : "."));
}

function exportCsv() {
  const address = URL.createObjectURL(new Blob([toCsv(edits)], { type: "text/csv;charset=utf-8" }));
  const anchor = h("a", { href: address, download: "edits.csv" });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
  toast(`${plural(edits.length, "edit")} exported. Next: holotype report RUN --edits edits.csv`);
}
