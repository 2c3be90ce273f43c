// Edits applied to the data of a run, and read and written, as results/edits.py does it. Pure: nothing here knows of a page.
// tests/results/golden_edits.json binds the two.

// Words in which other categories are named, with the names of today, as results/describe.py has it. Pure.

/** What tells of a category at the end of a note. */
const NAMED_IN_NOTES = ["the model would say ", "most frames of its burst are in "];

/** How a category stands to known classes, as these are called now. names: from those of before. */
function renamedWords(words, names) {
  if (!names.size) return words;
  const before = [...names.keys()].sort((a, b) => b.length - a.length).map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const place = new RegExp(`(closest to |nearest | and |; unlike )(${before.join("|")})(?= -?\\d\\.\\d\\d|$| \\(before )`, "g");
  return words.replace(place, (_, joint, name) => joint + names.get(name));
}

/** A suggested name of a new category likewise. */
function renamedSuggestion(suggested, names) {
  const [, near, number] = /^near (.+), new (\d+)$/s.exec(suggested) ?? [];
  return names.has(near) ? `near ${names.get(near)}, new ${number}` : suggested;
}

/** The note of an image likewise. */
function renamedNote(note, names) {
  for (const words of NAMED_IN_NOTES) {
    const at = note.lastIndexOf(words);
    const name = note.slice(at + words.length);
    if (at >= 0 && names.has(name)) return note.slice(0, at) + words + names.get(name);
  }
  return note;
}

const MOST_EXEMPLARS = 12;
const UNNAMED = /^new-[0-9]+$/;
const COLUMNS = ["run_id", "time", "action", "image", "category", "value", "digest", "by"];

/** What an edit says, whatever the round: of an image by its content, wherever its file lies. */
const saidOf = (edit) => [edit.time, edit.action, edit.digest || edit.image, edit.category, edit.value].join("\u001f");
const keyOf = (edit) => `${edit.run_id}\u001f${saidOf(edit)}`;
const UNDO = "undo"; // takes back what was said of its image, or of its category, at the time that is its value

/** The edits that count: without those that were taken back, and without the lines that say so. */
function inEffect(edits) {
  const place = (edit, time) => [edit.run_id, time, edit.digest || edit.image || edit.category].join("\u001f");
  const undone = new Set(edits.filter(({ action }) => action === UNDO).map((edit) => place(edit, edit.value)));
  return edits.filter((edit) => edit.action !== UNDO && !undone.has(place(edit, edit.time)));
}

const asEdit = (row) => Object.fromEntries(COLUMNS.map((column, at) => [column, row[at]]));

/** Without blank signs at the ends; Python counts a few more than trim() does. */
const stripped = (text) => text.replace(/^[\s\x1c-\x1f\x85]+|[\s\x1c-\x1f\x85]+$/g, "");

/** Do people see it? A known class always; a new category while there are images in it. */
const isAwake = (category) => !category.gone && (category.n > 0 || category.kind === "known");

/** What was measured on other images than it has now is not known of it any more; how to check it is. */
function unmeasured(category) {
  category.cohesion = category.separation = null;
  category.uniform = category.returns = "";
  category.faint = false;
  category.changed = true;
}

/** The spot check of a category of n images, as results/purity.py has it. */
function checkInWords(n) {
  const wrong = n - Math.floor(0.9 * n + 1e-9);
  let missed = 1;
  let looked = 0;
  for (; looked < n && missed > 1 - 0.95; looked++) missed *= (n - wrong - looked) / (n - looked);
  if (!looked) return "";
  if (looked === n) return `Look at all ${n}: only then do you know whether more than 90 % are right.`;
  return `Look at ${looked} of its ${n.toLocaleString("en-US")} images, drawn at random: if all are right, you can be 95 % sure that more than 90 % are.`;
}

/**
 * How things stand after the edits, each taken once and in their order. discovery: as report/page_data.py writes it.
 * placement: { rows, ids } where images without an answer lie by the answers about others; null = there is none.
 * problems says for each edit why it was not applied, in the order of the edits ("" = it was); nothing given is changed.
 */
function applyEdits(discovery, edits, placement = null) {
  const standing = new Standing(discovery);
  const dealtWith = new Set(discovery.log.map(asEdit).map(keyOf));
  const earlier = new Set(discovery.facts.earlier_runs ?? []);
  standing.applied = 0;
  standing.problems = edits.map((edit) => {
    if (earlier.has(edit.run_id) || dealtWith.has(keyOf(edit))) return "";
    if (edit.run_id !== discovery.run_id) return `It belongs to run ${edit.run_id}.`;
    dealtWith.add(keyOf(edit));
    const problem = standing.apply(edit);
    if (!problem) standing.applied++;
    return problem;
  });
  if (placement) standing.place(placement);
  standing.finish();
  return standing;
}

const indices = new WeakMap(); // images change no name: what 100,000 of them are called is looked up once

function indexOf(images) {
  if (indices.has(images)) return indices.get(images);
  const paths = images.path.map((rest) => images.root + rest);
  const keys = paths.map((path, i) => images.digest[i] || path);
  const keyAt = new Map(paths.map((path, i) => [path, keys[i]]));
  const rows = new Map(); // key -> its images: copies share one
  keys.forEach((key, i) => rows.get(key)?.push(i) ?? rows.set(key, [i]));
  const typical = images.typicality; // the most typical first
  const order = keys.map((_, i) => i).sort((a, b) => (typical[b] ?? -1) - (typical[a] ?? -1) || a - b);
  indices.set(images, { paths, keys, keyAt, rows, order });
  return indices.get(images);
}

/** Why an edit is left alone. */
class CannotApply extends Error {}

class Standing {
  constructor(discovery) {
    const { images } = discovery;
    Object.assign(this, indexOf(images)); // paths, keys, keyAt, rows, order
    this.labelled = images.label; // below 0 = it came without a label
    this.category = Int32Array.from(images.category); // index in categories; -1 = in none
    this.doubtful = Uint8Array.from(images.doubtful);
    this.note = new Map(Object.entries(images.note).map(([i, note]) => [Number(i), note]));
    this.categories = []; // those of the run, then those split off; merged and rejected ones are `gone`
    this.byId = new Map(); // those that are not gone
    discovery.categories.forEach((category) => this.add(category));
    discovery.asleep.filter(({ id }) => !this.byId.has(id)).forEach((asleep) => this.add(asleep));
    this.before = discovery.categories;
    this.merged = new Map(Object.entries(discovery.merged));
    this.rejected = [...discovery.rejected];
    this.confirmed = new Map(); // image -> id of a category, or a label that no category has
    for (const [i, value] of Object.entries(discovery.confirmed)) this.confirmed.set(Number(i), value);
  }

  add(category) {
    const added = {
      name: category.id, kind: "novel", n: 0, exemplars: [], borderline: [], cohesion: null, separation: null,
      nearest: "", signature: [], words: "", suggested: "", ...category, index: this.categories.length, gone: false,
    };
    this.categories.push(added);
    this.byId.set(added.id, added);
    return added;
  }

  /** Do it; returns why it cannot be done, and then has changed nothing. */
  apply(edit) {
    try {
      if (!Object.hasOwn(ACTIONS, edit.action)) throw new CannotApply("There is no such action.");
      ACTIONS[edit.action](this, edit);
      return "";
    } catch (reason) {
      if (!(reason instanceof CannotApply)) throw reason;
      return reason.message;
    }
  }

  // -- looking up -----------------------------------------------------------------------------------

  /** The category that people see under this id, or into which it was merged, or which has this name. */
  awake(word) {
    const category = this.byId.get(this.end(word));
    return category && isAwake(category) ? category
      : this.categories.find((c) => c.name === word && isAwake(c)) ?? null;
  }

  /** The id of what a category has been merged into, by way of others if need be. */
  end(id) {
    const seen = new Set();
    while (this.merged.has(id) && !this.byId.has(id) && !seen.has(id)) {
      seen.add(id);
      id = this.merged.get(id);
    }
    return id;
  }

  /** What a word in an edit means: as it stands or else without blanks, awake or else asleep. */
  find(word) {
    const bareWord = stripped(word);
    return this.awake(word) ?? this.awake(bareWord) ?? this.byId.get(this.end(word)) ?? this.byId.get(this.end(bareWord)) ?? null;
  }

  existing(word) {
    const category = this.target(word);
    if (!category) throw new CannotApply(`There is no category ${word}.`);
    return category;
  }

  /** As `find`; what was rejected is no target. */
  target(word) {
    const category = this.find(word);
    if (!category && [word, stripped(word)].some((id) => this.rejected.includes(this.end(id)))) {
      throw new CannotApply(`The category ${word} was rejected.`);
    }
    return category;
  }

  /** The image that an edit speaks of, and its copies. */
  copies(edit) {
    const list = this.rows.get(edit.digest || this.keyAt.get(edit.image));
    if (list === undefined) throw new CannotApply(`There is no image ${edit.image} in this report.`);
    return list;
  }

  // -- changing -------------------------------------------------------------------------------------

  /** What an image was confirmed as, for its copies too; undefined = nothing. */
  confirm(i, value) {
    for (const copy of this.rows.get(this.keys[i])) {
      if (value === undefined) this.confirmed.delete(copy);
      else this.confirmed.set(copy, value);
    }
  }

  /** Let an image change its category; null = it is in none. */
  put(i, category, note) {
    const left = this.categories[this.category[i]] ?? null; // -1 = it was in none
    if (left !== category) [left, category].filter(Boolean).forEach(unmeasured);
    if (left) left.n--;
    if (category) {
      this.wake(category);
      category.n++;
    }
    this.category[i] = category ? category.index : -1;
    this.doubtful[i] = 0;
    this.note.set(i, note);
  }

  /** Does nobody say what it shows? */
  canMove(i) {
    return this.category[i] >= 0 && this.labelled[i] < 0 && !this.confirmed.has(i) && !["moved by hand", "confirmed by hand", "rejected"].includes(this.note.get(i));
  }

  place({ rows, ids }) {
    rows.forEach((i, at) => {
      const category = this.byId.get(this.end(ids[at]));
      if (category && category.index !== this.category[i] && this.canMove(i)) this.put(i, category, "placed by the answers about others");
    });
  }

  /** Before images come to a category that was asleep: somebody else may have its name by now. */
  wake(category) {
    if (isAwake(category)) return;
    const names = [category.name, category.id];
    for (let number = 2; number < this.categories.length + 3; number++) names.push(`${category.id} (${number})`);
    category.name = names.find((name) => !this.awake(name));
  }

  remove(category) {
    category.gone = true;
    this.byId.delete(category.id);
  }

  /** Let `target` speak for both: exemplars in turn, the signature weighted by the numbers of images. */
  join(target, source) {
    const pairs = target.exemplars.slice(0, source.exemplars.length).flatMap((i, at) => [i, source.exemplars[at]]);
    target.exemplars = [...new Set([...pairs, ...target.exemplars, ...source.exemplars])].slice(0, MOST_EXEMPLARS);
    target.borderline = [...new Set([...target.borderline, ...source.borderline])];
    if (source.n && target.kind === "novel" && target.signature.length === source.signature.length) {
      const mean = (a, b) => (a === null || b === null ? null : (a * target.n + b * source.n) / (target.n + source.n));
      target.signature = target.signature.map((likeness, at) => mean(likeness, source.signature[at]));
      target.words = target.words ? `${target.words} (before ${source.name} was merged into it)` : "";
    }
    unmeasured(target);
    target.n += source.n;
  }

  // -- the outcome ----------------------------------------------------------------------------------

  /** The label of an image in the next round: the id of a category, else the word as it was given. */
  label(i) {
    const value = this.confirmed.get(i);
    return value === undefined ? "" : this.find(value)?.id ?? value;
  }

  /** Words, suggested names and notes name categories as these are called now. */
  callAnew() {
    const names = (those) => new Map(those.map(({ id, name }) => [name, this.byId.get(this.end(id))?.name ?? name]).filter(([then, now]) => then !== now));
    const known = names(this.before.filter(({ kind }) => kind === "known"));
    const every = names(this.before);
    for (const category of this.categories) {
      category.words = renamedWords(category.words, known);
      if (category.kind !== "known") category.suggested = renamedSuggestion(category.suggested, known);
      else if (category.suggested) category.suggested = category.name;
    }
    for (const [i, note] of this.note) this.note.set(i, renamedNote(note, every));
  }

  /** Members of each category, the most typical first; who left a category does not speak for it any more. */
  finish() {
    this.callAnew();
    this.members = this.categories.map(() => []);
    this.order.forEach((i) => this.category[i] >= 0 && this.members[this.category[i]].push(i));
    this.categories.forEach((category, c) => {
      const mine = (i) => this.category[i] === c;
      category.exemplars = category.exemplars.filter(mine);
      if (!category.exemplars.length) category.exemplars = this.members[c].slice(0, MOST_EXEMPLARS);
      category.borderline = category.borderline.filter(mine);
      if (category.changed && category.check) category.check = checkInWords(category.n);
    });
  }
}

const ACTIONS = {
  rename(standing, edit) {
    const category = standing.existing(edit.category);
    const word = stripped(edit.value);
    if (!word) throw new CannotApply("A name cannot be empty.");
    const other = standing.awake(word);
    if (other && other !== category) {
      const known = other.kind === "known" && category.kind === "known";
      throw new CannotApply(`Another category is called ${word}; ${known ? "both are known, so move the images of one to the other" : "merge the two instead"}.`);
    }
    category.name = word;
  },
  merge(standing, edit) {
    const source = standing.existing(edit.category);
    const target = standing.existing(edit.value);
    if (source === target) throw new CannotApply("The two are one category already.");
    if (source.kind === "known") throw new CannotApply(`${source.name} is a known class and stays; ${target.kind === "known" ? "move its images" : `merge ${target.name} into it`} instead.`);
    standing.remove(source);
    standing.merged.set(source.id, target.id);
    if (source.n) standing.wake(target);
    standing.join(target, source);
    standing.category.forEach((c, i, all) => { if (c === source.index) all[i] = target.index; });
  },
  move(standing, edit) {
    const list = standing.copies(edit);
    const word = stripped(edit.value);
    if (!word) throw new CannotApply("It does not say where to.");
    const category = standing.target(edit.value) ?? standing.add({ id: word, words: "split off by hand" });
    const before = standing.confirmed.get(list[0]);
    list.forEach((i) => standing.put(i, category, "moved by hand"));
    if (before === undefined) return;
    standing.confirm(list[0], standing.find(before) === category ? category.id : undefined);
  },
  reject(standing, edit) {
    const leave = (i) => {
      standing.put(i, null, "rejected");
      standing.confirm(i, undefined);
    };
    if (edit.image || edit.digest) return standing.copies(edit).forEach(leave);
    const category = standing.existing(edit.category);
    if (category.kind === "known") throw new CannotApply(`${category.name} is a known class and stays; reject its images instead.`);
    standing.category.forEach((c, i) => { if (c === category.index) leave(i); });
    standing.remove(category);
    standing.rejected.push(category.id);
  },
  confirm(standing, edit) {
    const list = standing.copies(edit);
    const word = stripped(edit.value);
    if (!word) throw new CannotApply("It does not say which label.");
    const category = standing.target(edit.value);
    standing.confirm(list[0], category ? category.id : word);
    if (category) list.forEach((i) => standing.put(i, category, "confirmed by hand"));
  },
};

// edits.csv as results/edits.py reads and writes it. Pure: nothing here knows of a page.

const EDITS_FORMAT = "2"; // stands in the last column
const READABLE_FORMATS = ["", "1", EDITS_FORMAT]; // files of format 1 have no digests
const REQUIRED = COLUMNS.filter((column) => !["digest", "by"].includes(column));
const RISKY = /^[=+\-@\t\r']/;

/** A cell that no spreadsheet takes for a formula, and its inverse. */
const guarded = (cell) => (RISKY.test(cell) ? `'${cell}` : cell);
const bare = (cell) => (cell[0] === "'" && RISKY.test(cell.slice(1)) ? cell.slice(1) : cell);
const quoted = (cell) => (/[",\r\n]|^ /.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);

const toCsv = (list) =>
  [[...COLUMNS, "format"], ...list.map((edit) => [...COLUMNS.map((column) => guarded(edit[column] ?? "")), EDITS_FORMAT])]
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
    else if (sign === separator || sign === "\n" || sign === "\r") {
      rows[rows.length - 1].push(cell);
      cell = "";
      if (sign === "\r" && text[at + 1] === "\n") at++;
      if (sign !== separator) rows.push([]);
    } else cell += sign;
  }
  if (cell !== "" || rows[rows.length - 1].length) rows[rows.length - 1].push(cell);
  return rows;
}

/** The edits in a file, in its order; problem says in a sentence why it is none ("" = it is one). */
function readEdits(text) {
  const [head, ...rows] = parseCsv(text).filter((row) => row.some((cell) => cell !== ""));
  const none = (problem) => ({ edits: [], problem });
  const missing = REQUIRED.find((column) => !head || !head.includes(column));
  if (missing) return none(`This is not an edits file: it has no column ${missing}.`);
  const cellOf = (row, column) => row[head.lastIndexOf(column)] ?? "";
  const told = rows.filter((row) => REQUIRED.some((column) => cellOf(row, column) !== ""));
  if (told.some((row) => row.slice(head.length).some((cell) => cell !== ""))) {
    return none("A line has more cells than columns; put a text with a comma in quotation marks.");
  }
  const other = told.map((row) => stripped(cellOf(row, "format"))).find((format) => !READABLE_FORMATS.includes(format));
  if (other !== undefined) return none(`This file is of format ${other}, and this page reads format ${EDITS_FORMAT}.`);
  const edits = told.map((row) => Object.fromEntries(COLUMNS.map((column) => [column, bare(cellOf(row, column))])));
  const odd = edits.find((edit) => edit.action !== UNDO && !Object.hasOwn(ACTIONS, edit.action));
  return odd ? none(`There is no action ${odd.action}; the actions are ${Object.keys(ACTIONS).join(", ")}.`) : { edits: inEffect(edits), problem: "" };
}
