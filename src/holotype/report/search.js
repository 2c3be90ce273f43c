// Find by file name: what is typed may stand anywhere in the path of an image below the folder of all images.

/** As people compare names: upper and lower case alike, either slash, accents in either of their two spellings. */
const compared = (text) => text.normalize("NFC").toLowerCase().replaceAll("\\", "/");

/** Numbers of the names that hold the words, in the order of the names. */
function findNames(names, words) {
  const wanted = compared(words.trim());
  if (!wanted) return [];
  const found = [];
  names.forEach((one, i) => { if (compared(one).includes(wanted)) found.push(i); });
  return found.sort((a, b) => (names[a] < names[b] ? -1 : names[a] > names[b] ? 1 : a - b));
}

let allNames = null;
function namesOfAll() {
  allNames ??= images.path.map((_, i) => relativeName(i));
  return allNames;
}

/** How many of the images are in which category, the most first: links, and text between them. */
function whereThey(list) {
  const counts = new Map();
  list.forEach((i) => counts.set(now.category[i], (counts.get(now.category[i]) ?? 0) + 1));
  return [...counts].sort((a, b) => b[1] - a[1]).flatMap(([c, n], at) => [at ? ", " : "", `${number(n)} in `,
    c < 0 ? "no category" : h("a", { href: link(now.categories[c]) }, now.categories[c].name)]);
}

/** Below a tile: the category, then the name. */
const whereAndWhat = (i) => {
  const category = now.categories[now.category[i]];
  return [h("span", { class: "where" }, glyph(category?.kind), category ? category.name : "in no category"),
    h("span", { class: "soft what" }, legible(relativeName(i)))];
};

function findView(words) {
  const hits = sieved(findNames(namesOfAll(), words));
  const sample = data.total.shown < data.total.images
    ? ` Only the ${number(data.total.shown)} images of this page are searched; all ${number(data.total.images)} are in assignments.csv.` : "";
  if (!words.trim()) {
    return [h("h1", {}, "Find by file name"),
      h("p", { class: "lead" }, `Type a part of a name, or of a folder’s name, into the field at the top.${sample}`)];
  }
  return [
    h("h1", {}, `${plural(hits.length, "image")} with “${words.trim()}” in the name`),
    h("p", { class: "lead", role: "status" }, hits.length ? [whereThey(hits), "."] : "Upper and lower case do not matter; try a shorter part of the name.", sample),
    hits.length || sieveOn() ? h("div", { class: "tools" }, sieveTools()) : null,
    hits.length ? galleryOf(hits, { title: "Images found", caption: whereAndWhat }).element : null,
  ];
}

const findField = () => document.getElementById("find-field");

/** The view follows the field. Letters after the first replace the address, so that “back” leaves the search. */
function onFind() {
  const address = `#find/${coded(findField().value)}`;
  if (place()[0] === "find") location.replace(address);
  else location.hash = address;
}

/** From the field to the first image found. */
function toFirstHit() {
  if (place()[0] === "find") document.querySelector("main .gallery")?.gallery.focus(0);
}

function startFind() {
  const field = findField();
  field.addEventListener("input", onFind);
  field.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown") return;
    event.preventDefault();
    toFirstHit();
  });
  document.getElementById("find").addEventListener("submit", (event) => {
    event.preventDefault();
    toFirstHit();
  });
}

/** The field shows what is searched for, and is empty elsewhere. */
function followFind(view, words) {
  const wanted = view === "find" ? words : "";
  if (findField().value !== wanted) findField().value = wanted;
}
