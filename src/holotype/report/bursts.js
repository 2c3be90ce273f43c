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
