// The first page of a folder that holds no run: what is in it, the start, and images that look alike.

const MOST_HEAPS = 60; // classes that can be taken for heaps of unsorted images
const asked = { k: "", seeds: "", heaps: new Set() };

const field = (label, control, words) => h("label", { class: "setting" }, h("span", {}, label), control, h("span", { class: "soft" }, words));

function firstSettings() {
  const classes = Object.entries(data.first).sort((a, b) => b[1] - a[1]);
  const number_ = h("input", { type: "number", min: 1, max: 10000, value: asked.k, placeholder: "automatic", oninput: () => { asked.k = number_.value; } });
  const trainings = h("select", { onchange: () => { asked.seeds = trainings.value; } }, [["", "automatic"], ["1", "1: fastest"], ["3", "3"], ["5", "5: best"]]
    .map(([value, words]) => h("option", { value, selected: asked.seeds === value }, words)));
  const heap = ([word, n]) => h("label", {}, h("input", { type: "checkbox", checked: asked.heaps.has(word), onchange: (event) => {
    asked.heaps[event.target.checked ? "add" : "delete"](word);
  } }), ` ${word} `, h("span", { class: "soft" }, number(n)));
  return h("div", { class: "settings" },
    field("Categories", number_, "Known and new together; automatic estimates the number."),
    field("Trainings that vote", trainings, "More are slower and better."),
    classes.length ? h("details", {}, h("summary", {}, "Is a folder no class, but a heap of unsorted images?"),
      h("div", { class: "heaps" }, classes.slice(0, MOST_HEAPS).map(heap))) : null);
}

/** Start the first round with what was set. */
function startFirst() {
  const settings = { unlabelled: [...asked.heaps] };
  for (const key of ["k", "seeds"]) if (asked[key]) settings[key] = Number(asked[key]);
  ask({ start: "discover", settings });
}

/** The start, or how far it is. */
function firstPanel() {
  const button = h("button", { type: "button", class: "primary", disabled: Boolean(served.read_only), onclick: startFirst }, live.job && !isRunning() ? "Start again" : "Start");
  return isRunning() ? [jobPanel(live.job)] : [live.job ? jobPanel(live.job) : null, firstSettings(), button];
}

function lookPanel() {
  const { lines, groups } = live.look;
  return [h("section", {}, h("h2", {}, "What is in the folder"),
    lines?.length ? h("ul", { class: "findings" }, lines.map((line) => h("li", {}, line.replace(/ \(--[^)]*\)/g, "")))) : h("p", { class: "soft" }, "Looking\u2026")),
  section("A first look", groups ? h("p", { class: "lead" }, "Some of the images, in groups that look alike before any training. The first round makes categories of all of them.") : h("p", { class: "soft" }, "The first pictures come in about ten seconds."),
    h("div", { class: "cards small" }, (groups ?? []).map((list, at) => h("article", { class: "card" },
      h("a", { class: "cover", href: "#start", "aria-label": `Look at group ${at + 1}`, onclick: (event) => { event.preventDefault(); showImage(list, 0); } },
        list.slice(0, 6).map((i) => thumb(i, { cover: true }))),
      h("div", { class: "text" }, h("p", { class: "soft" }, plural(list.length, "image")))))))];
}

function drawLook() {
  const place = document.getElementById("look");
  if (place) refill(place, lookPanel());
}

function startView() {
  const classes = Object.keys(data.first).length;
  return [h("h1", {}, `${plural(size, "image")} in ${data.facts.title || "the folder"}`),
    h("p", { class: "lead" }, classes > 1 ? "Find the categories of the images that have no label." : "Too few images have a label, so the studio proposes groups; name some, and the next round learns from them."),
    h("div", { id: "work" }, firstPanel()), h("div", { id: "look" }, lookPanel())];
}
