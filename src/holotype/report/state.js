// What the page knows: the data of the run, and how they stand after this browser's edits.

const data = window.HOLOTYPE;
const images = data ? data.images : null;
const size = images ? images.path.length : 0;
const CONTAINS = new Set(images ? images.inside : []);
/** What the studio does otherwise than a report on disk (studio/live.js); null in such a report. */
let studio = null;

/** An element; children may be text, elements or null. Text is never read as HTML. */
function h(tag, attributes, ...children) {
  const element = tag === "svg" || h.svg.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, v] of Object.entries(value)) element.style.setProperty(name, v);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}
h.svg = new Set(["path", "line", "circle", "rect", "text", "g", "polyline", "polygon"]);

const number = (n) => Math.round(n).toLocaleString("en-GB");
const plural = (n, one, many) => `${number(n)} ${n === 1 ? one : many || one + "s"}`;
const share = (thousandths) => (thousandths === null ? "?" : (thousandths / 1000).toFixed(2));
const fixed = (value) => (value === null || value === undefined ? "?" : value.toFixed(2));

const name = (i) => images.root + images.path[i];
const BOX = /#xywh=percent:([\d.]+),([\d.]+),([\d.]+),([\d.]+)$/;
/** Left, top, width and height in percent of the picture that an image is a part of; null where it is the whole. */
const boxOf = (i) => images.path[i].match(BOX)?.slice(1).map(Number) ?? null;
/** A path as people read it, without the box behind it. */
const legible = (path) => path.replace(BOX, (_, ...numbers) => ` (box at ${numbers.slice(0, 2).map((n) => Math.round(n)).join(", ")} %)`);
const shortName = (i) => legible(images.path[i].split(/[\\/]/).pop());

/** The path below the folder of all images, as people know it. */
function relativeName(i) {
  const root = (data.facts.root ?? "").replace(/[\\/]+$/, "");
  const whole = name(i);
  return root && whole.startsWith(root) && /[\\/]/.test(whole[root.length] ?? "") ? whole.slice(root.length + 1) : images.path[i];
}

/** Words as a part of an address, also those of a file name that is not Unicode. */
const coded = (words) => encodeURIComponent(words.toWellFormed ? words.toWellFormed() : words.replace(/[\ud800-\udfff]/gu, "\ufffd"));

/** Address of the image file as seen from this page; null where it has none of its own. */
function address(i) {
  if (studio) return studio.address(i);
  if (CONTAINS.has(i) || images.link === null) return null; // a report that was mailed has no originals
  const rest = images.file.length ? images.file[i] : images.path[i];
  try {
    return images.link + rest.split("/").map(encodeURIComponent).join("/");
  } catch {
    return null; // a file name that is not Unicode
  }
}

/** How things stand now: what applyEdits in corrections.js made of the data and this browser's edits. */
let now = null;

const findCategory = (word) => now.awake(word);
/** What people call the category of an id; a known class of the run may have been renamed. */
const nameOf = (id) => now.byId.get(id)?.name ?? id;
/** Where an image would lie if not where it does, as things stand: what was merged is another one, what is gone none. */
const secondOf = (i) => {
  const other = findCategory(data.categories[images.second[i]]?.id ?? "");
  return other && other.index !== now.category[i] ? other : null;
};
/** Other files of the same content: what is said of one holds for all. */
const copiesOf = (i) => now.rows.get(now.keys[i]).filter((copy) => copy !== i);
const labelOf = (i) => nameOf(now.label(i));
const alive = () => now.categories.filter(isAwake);
const novel = () => alive().filter((category) => category.kind === "novel")
  .sort((a, b) => a.id.localeCompare(b.id, "en", { numeric: true }));
const known = () => alive().filter((category) => category.kind === "known");
const doubtful = () => {
  const found = [];
  for (let i = 0; i < size; i++) if (now.doubtful[i]) found.push(i);
  return found.sort((a, b) => (images.probability[a] ?? 0) - (images.probability[b] ?? 0));
};

/** ● for a known class, ◆ for a new category: the two differ by shape as well as by colour. */
const glyph = (kind) =>
  h("span", { class: `glyph ${kind || "none"}`, role: "img", "aria-label": kind === "known" ? "known class"
    : kind === "novel" ? "new category" : "in no category" });

const link = (category) => `#category/${coded(category.id)}`;

// Colours that people with any colour vision tell apart (Okabe and Ito), one set for light and one for dark ground.
const PALETTE = {
  light: ["#d55e00", "#0072b2", "#009e73", "#b5528c", "#8a7a00", "#3b9bd6", "#7a3fa0", "#8b4a1f"],
  dark: ["#ff8a3d", "#56b4e9", "#2fd3a5", "#e79ac5", "#f0e442", "#9ad0ff", "#c79bf0", "#d9a27e"],
};
/** Colours after those: the first 40 lie at least 14 apart in CIELAB, light and dark. */
const FURTHER = {
  light: { turn: 124.2, saturation: [100, 85, 40, 100, 60], lightness: [48, 66, 29, 35, 64] },
  dark: { turn: 27.6, saturation: [100, 85, 50], lightness: [50, 71, 53] },
};
const dark = () => window.matchMedia("(prefers-color-scheme: dark)").matches;

/** New categories take the colours in turn, then the known classes go on from there. */
function colour(index) {
  const kinds = data.categories.map((category) => category.kind);
  const new_ = kinds.filter((kind) => kind === "novel").length;
  const rank = kinds.slice(0, index).filter((kind) => kind === kinds[index]).length;
  const turn = index >= kinds.length ? index : kinds[index] === "novel" ? rank : new_ + rank;
  const own = PALETTE[dark() ? "dark" : "light"];
  if (turn < own.length) return own[turn];
  const step = turn - own.length;
  const { turn: angle, saturation, lightness } = FURTHER[dark() ? "dark" : "light"];
  return `hsl(${Math.round((step * angle) % 360)} ${saturation[step % saturation.length]}% ${lightness[step % lightness.length]}%)`;
}
