// When, where and with which camera images were taken: what is shown of it, and galleries by it; and bursts. A report of files that
// say nothing of it has none of this.

const sieve = { from: "", to: "", camera: "" }; // days as YYYY-MM-DD, and the number of a camera; "" = any

/** The list without the images of other days or cameras, and without those of which nobody knows. */
const sieved = (list) => (sieveOn() ? list.filter((i) => passes(sieve, images.taken?.[i] ?? "", images.camera?.[i] ?? -1)) : list);
const sieveOn = () => Object.values(sieve).some((value) => value !== "");

/** Is an image of these days, both included, and of this camera? taken: ISO 8601, "" = not known. */
function passes(wanted, taken, camera) {
  if (wanted.camera !== "" && camera !== Number(wanted.camera)) return false;
  if (wanted.from === "" && wanted.to === "") return true;
  const day = taken.slice(0, 10);
  return day !== "" && (wanted.from === "" || day >= wanted.from) && (wanted.to === "" || day <= wanted.to);
}

/** By the clock of the camera; what has none comes last. Offsets from UTC do not count: a camera's clock is its own. */
function byTime(taken, names) {
  const key = (i) => taken[i].slice(0, 19) || "9999";
  return (a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : names[a] < names[b] ? -1 : 1);
}

if (images?.taken) SORTS.time = ["by time", byTime(images.taken, images.path)];
if (images?.cameras?.length > 1) {
  const within = images.taken ? byTime(images.taken, images.path) : SORTS.name[1];
  SORTS.camera = ["by camera", (a, b) => images.camera[a] !== images.camera[b]
    ? (images.camera[a] + 1 || Infinity) - (images.camera[b] + 1 || Infinity) : within(a, b)];
}

function sieveTools() {
  const change = (key) => (event) => {
    sieve[key] = event.target.value;
    endSelection();
    show();
  };
  const days = images.taken ? images.taken.filter(Boolean).map((taken) => taken.slice(0, 10)).sort() : [];
  const day = (key, label) => h("label", {}, label, h("input", { type: "date", value: sieve[key], min: days[0], max: days.at(-1), onchange: change(key) }));
  return [
    days.length ? [day("from", "From "), day("to", "to ")] : null,
    images.cameras?.length > 1 ? h("label", {}, "Camera ", h("select", { onchange: change("camera") },
      h("option", { value: "" }, "any"), images.cameras.map((name, value) => h("option", { value, selected: sieve.camera === String(value) }, name)))) : null,
    sieveOn() ? h("button", { type: "button", class: "quiet", onclick: () => {
      Object.assign(sieve, { from: "", to: "", camera: "" });
      endSelection();
      show();
    } }, "All days and cameras") : null,
  ];
}

const whenTaken = (i) => images.taken[i].replace("T", " ");

/** Rows of the large view. */
const occasionFacts = (i) => [
  ["Taken", images.taken?.[i] ? whenTaken(i) : null],
  ["Camera", images.cameras?.[images.camera?.[i]] ?? null],
  ["Place", images.place?.[i] ? images.place[i].map((degrees) => degrees.toFixed(5)).join(", ") : null],
];

// Bursts: frames that one camera took within seconds of each other. One of them speaks for all, and what is done to one
// is offered for the others. A report without bursts has none of this.

const bursts = new Map(); // number of a burst -> its images on this page
if (images?.group) images.group.forEach((group, i) => { if (group >= 0) bursts.set(group, [...(bursts.get(group) ?? []), i]); });

/** All frames of the burst that an image belongs to, itself included; nothing for one that is alone. */
const framesOf = (i) => bursts.get(images.group?.[i]) ?? [];

/** The first image of each burst and category, in the order of the list; those that are alone stay. */
function onePerBurst(list) {
  const seen = new Set();
  return list.filter((i) => {
    if (framesOf(i).length < 2) return true;
    const key = `${images.group[i]} ${now.category[i]}`;
    return !seen.has(key) && seen.add(key);
  });
}

/** Behind the number of a category's images: in how many bursts they are, where all of them are on this page. */
function inBursts(category) {
  const list = now.members[category.index];
  if (!images.group || list.length < category.n) return "";
  return ` in ${plural(onePerBurst(list).length, "burst")}`;
}

const burstLead = (every, shown) => (every.length > shown.length
  ? ` Of a burst one frame is shown, the least sure: ${plural(shown.length, "question")} in all.` : "");

/** Frames that are not selected, of bursts of which one is. */
const matesOfSelected = () => [...new Set([...selected].flatMap(framesOf))].filter((i) => !selected.has(i));

function selectBursts() {
  matesOfSelected().forEach((i) => selected.add(i));
  showSelection();
}

/** Offers the whole burst before something is done to one frame of it. */
function burstButton() {
  const n = images.group ? matesOfSelected().length : 0;
  return n ? h("button", { type: "button", class: "primary", onclick: selectBursts, title: "What is true of one frame is mostly true of all (b)" },
    `+ ${plural(n, "frame")} of the same burst${new Set([...selected].map((i) => images.group[i])).size > 1 ? "s" : ""}`) : null;
}
