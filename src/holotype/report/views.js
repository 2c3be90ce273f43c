// The views: overview, a category, doubtful images, relations, settings, more like one image.

const LEAD = {
  doubtful: "The model is least sure of these. Each still has a best guess. Select those that are right and confirm them; move the others.",
  relations: "Each row is a new category, each column a known class. The stronger the colour, the more alike they look to the model (cosine of features, 1 = the same, below 0 = unlike); the frame marks the closest class.",
};

function section(title, ...children) {
  return h("section", {}, h("h2", {}, title), ...children);
}

// -- overview -----------------------------------------------------------------------------------------

function overview() {
  const total = data.total;
  const [new_, old] = [novel(), known()];
  const byCount = (a, b) => b.n - a.n;
  return [
    h("h1", { class: "headline" }, h("span", { class: "soft" }, `${plural(total.images, "image")}: `),
      old.length ? [h("span", { class: "whole" }, glyph("known"), plural(old.length, "known class", "known classes")), " and "] : null,
      h("span", { class: "whole" }, glyph("novel"), plural(new_.length, "new category", "new categories"))),
    proportions(),
    partOnly(),
    new_.length ? section("New categories", h("p", { class: "lead" }, data.known.length > 1 ? "Groups of images outside the known classes; look whether one is part of a class that it resembles. The pictures are the most typical ones; the bars say which known classes they resemble."
      : "Groups of images that look alike. Give at least two of them a name: the next round learns from it."),
      data.stability?.length && data.known.length > 1 ? h("p", { class: "soft stability" }, data.stability.join(" ")) : null,
      h("div", { class: "cards" }, [...new_].sort(byCount).map(card)))
      : section("New categories", h("p", { class: "lead" }, "None: every image fits one of the known classes.")),
    section("Known classes", h("div", { class: "cards small" }, [...old].sort(byCount).map(card))),
    h("section", { id: "count" }, h("h2", {}, "How many categories?"), countPanel(), aroundPanel(),
      studio ? h("a", { class: "button", href: "#number" }, "Look at other numbers") : null),
    scores(),
  ];
}

/** One bar for all images: known, new, in none. */
function proportions() {
  const n = { known: 0, novel: 0 };
  for (const category of alive()) n[category.kind] += category.n;
  const none = Math.max(0, data.total.images - n.known - n.novel);
  const parts = [["known", n.known, "in known classes"], ["novel", n.novel, "in new categories"], ["none", none, "in no category"]];
  const unsure = doubtful().length;
  return h("div", { class: "proportions" },
    h("div", { class: "strip", role: "img", "aria-label": parts.map(([, count, words]) => `${count} ${words}`).join(", ") },
      parts.map(([kind, count]) => (count ? h("span", { class: kind, style: { "flex-grow": count } }) : null))),
    h("ul", { class: "stats" },
      parts.map(([kind, count, words]) => (count || kind !== "none" ? h("li", {}, glyph(kind), h("strong", {}, number(count)), ` ${words}`) : null)),
      h("li", {}, h("a", { href: "#doubtful" }, h("strong", {}, number(Math.max(unsure, data.total.shown < data.total.images && !edits.length ? data.total.doubtful : 0))), " doubtful")),
      h("li", {}, h("strong", {}, number(data.total.labelled)), " with a label"),
      data.total.unread ? h("li", {}, h("a", { href: "#settings" }, h("strong", {}, number(data.total.unread)), " could not be read")) : null));
}

function card(category) {
  const new_ = category.kind === "novel";
  return h("article", { class: `card ${category.kind}` },
    h("a", { class: "cover", href: link(category), "aria-label": `Open ${category.name}` },
      category.exemplars.slice(0, new_ ? 6 : 4).map((i) => thumb(i, { cover: true }))),
    h("div", { class: "text" },
      h("h3", {}, glyph(category.kind), h("a", { href: link(category) }, category.name), h("span", { class: "n" }, number(category.n))),
      new_ && category.suggested && category.suggested !== category.name && category.name === category.id
        ? h("p", { class: "suggested" }, category.suggested) : null,
      new_ && category.words ? h("p", { class: "words" }, category.words) : null,
      new_ ? signature(category, 4) : null,
      new_ ? h("p", { class: "soft" }, standing(category)) : null));
}

/** Purity in words, which mean the same in every run; separation compared with the other categories of this run. */
function standing(category) {
  const rank = (key) => {
    const values = data.categories.map((c) => c[key]).filter((v) => v !== null).sort((a, b) => a - b);
    return values.length > 2 && category[key] !== null ? values.filter((v) => v < category[key]).length / (values.length - 1) : null;
  };
  const apart = rank("separation");
  const near = findCategory(category.nearest);
  const words = [];
  if (category.uniform) words.push(category.uniform);
  if (category.faint) words.push("does not come back in most trainings");
  if (apart !== null && near) words.push(apart > 0.66 ? `stands well apart (nearest: ${near.name})` : apart < 0.34 ? `close to ${near.name}` : `nearest to ${near.name}`);
  const text = words.join("; ");
  return text ? text[0].toUpperCase() + text.slice(1) + "." : "";
}

const readWithCare = (words) => (words.length ? h("aside", { class: "caveat" }, h("strong", {}, "Read with care. "), words.map((word) => h("span", {}, word, " "))) : null);

function caveats() {
  const facts = data.facts;
  return readWithCare([facts.caveat, facts.caveats, facts.choice_of_backbone, facts.backbone?.caveat, facts.backbone?.terms].flat().filter(Boolean).map(String));
}

function partOnly() {
  const words = [];
  if (data.total.shown < data.total.images) {
    words.push(`This page shows ${number(data.total.shown)} of ${number(data.total.images)} images: of every category the most typical, the doubtful and a sample of the rest. All of them are in assignments.csv.`);
  }
  return readWithCare(words);
}

const SCORES = { all: "all images", old: "of known classes", new: "of new classes", nmi: "NMI", ari: "ARI", auroc: "AUROC known or new" };

function scores() {
  const found = data.facts.scores;
  if (!found || typeof found !== "object") return null;
  const nested = Object.entries(found).filter(([, value]) => value && typeof value === "object" && !Array.isArray(value));
  const rows = nested.length ? nested : [["this run", found]];
  const keys = Object.keys(SCORES).filter((key) => rows.some(([, row]) => typeof row[key] === "number"));
  if (!keys.length) return null;
  const show = (value) => (typeof value === "number" ? `${(100 * value).toFixed(1)} %` : "");
  return section("Against the truth",
    h("p", { class: "lead" }, "For this collection the true classes are known; the model never saw them. Share of unlabelled images in the right category, each category standing for one class:"),
    h("div", { class: "scroll" }, h("table", { class: "plain" },
      h("thead", {}, h("tr", {}, h("th", {}, ""), keys.map((key) => h("th", { scope: "col" }, SCORES[key])))),
      h("tbody", {}, rows.map(([who, row]) => h("tr", {}, h("th", { scope: "row" }, who), keys.map((key) => h("td", {}, show(row[key])))))))));
}

// -- a category ---------------------------------------------------------------------------------------

const wish = { sort: "typical", filter: "all" };
const SORTS = {
  typical: ["most typical first", (a, b) => (images.typicality[b] ?? -1) - (images.typicality[a] ?? -1)],
  odd: ["least typical first", (a, b) => (images.typicality[a] ?? -1) - (images.typicality[b] ?? -1)],
  unsure: ["least probable first", (a, b) => (images.probability[a] ?? 0) - (images.probability[b] ?? 0)],
  name: ["by file name", (a, b) => (images.path[a] < images.path[b] ? -1 : 1)],
};
const FILTERS = {
  all: ["all", () => true],
  doubtful: ["doubtful", (i) => now.doubtful[i]],
  unlabelled: ["without a label", (i) => images.label[i] < 0 && !now.confirmed.has(i)],
};

function categoryList(current) {
  const entry = (category) => h("a", { href: link(category), "aria-current": category === current ? "page" : null },
    glyph(category.kind), h("span", { class: "who" }, category.name), h("span", { class: "n" }, number(category.n)));
  const option = (category) => h("option", { value: category.id, selected: category === current },
    `${category.kind === "novel" ? "◆" : "●"} ${category.name} (${number(category.n)})`);
  return h("nav", { class: "list", "aria-label": "Categories" },
    h("div", { class: "links" }, h("p", { class: "soft" }, "New"), novel().map(entry), h("p", { class: "soft" }, "Known"), known().map(entry)),
    h("select", { "aria-label": "Category", onchange: (event) => { location.hash = `#category/${coded(event.target.value)}`; } },
      h("optgroup", { label: "New" }, novel().map(option)), h("optgroup", { label: "Known" }, known().map(option))));
}

/** The category that is shown at an address: the one it names, or else the first. */
const categoryAt = (id) => findCategory(id) || novel()[0] || alive()[0];

function categoryView(id) {
  const category = categoryAt(id);
  if (!category) return h("p", {}, "There are no categories.");
  const list = sieved(now.members[category.index].filter(FILTERS[wish.filter][1])).sort(SORTS[wish.sort][1]);
  const gallery = galleryOf(list, { title: `Images in ${category.name}`, id: "category" });
  const choice = (key, table, label) => h("label", {}, label, h("select", { onchange: (event) => {
    wish[key] = event.target.value;
    if (key === "filter") endSelection();
    show();
  } },
    Object.entries(table).map(([value, [words]]) => h("option", { value, selected: wish[key] === value }, words))));
  return h("div", { class: "columns" }, categoryList(category), h("div", { class: "content" },
    categoryHead(category),
    category.borderline.length ? h("details", { class: "border" }, h("summary", {}, `On the border (${category.borderline.length}): they fit another category almost as well`),
      galleryOf(category.borderline, { title: "Images on the border", caption: guess }).element) : null,
    h("div", { class: "tools" }, choice("sort", SORTS, "Sort "), choice("filter", FILTERS, "Show "), sieveTools(),
      h("button", { type: "button", class: "quiet", onclick: () => { list.forEach((i) => selected.add(i)); showSelection(); } }, `Select all ${number(list.length)}`)),
    list.length ? gallery.element : h("p", { class: "soft" }, "No image of this kind."),
    category.n > now.members[category.index].length ? h("p", { class: "soft" }, `${number(category.n - now.members[category.index].length)} more are in assignments.csv.`) : null));
}

const guess = (i) => {
  const other = secondOf(i);
  return other ? `or ${other.name}?` : "";
};

function categoryHead(category) {
  const new_ = category.kind === "novel";
  const near = findCategory(category.nearest);
  return h("div", { class: `head ${category.kind}` },
    h("div", { class: "who" },
      h("h1", {}, glyph(category.kind), category.name),
      h("p", {}, h("span", { class: "chip" }, new_ ? "new category" : "known class"), ` ${plural(category.n, "image")}${inBursts(category)}${category.whole ? `, about ${number(category.whole)} in the collection` : ""}`,
        category.name !== category.id ? h("span", { class: "soft" }, ` · found as ${category.id}`) : null),
      new_ && category.suggested && category.name === category.id ? h("p", { class: "suggested" }, `Suggested name: ${category.suggested}`) : null,
      category.words ? h("p", { class: "words" }, category.words) : null,
      new_ ? h("p", { class: "soft" }, standing(category)) : null,
      category.check ? h("p", { class: "soft" }, category.check) : null,
      category.returns ? h("p", { class: "soft" }, category.returns) : null,
      category.cohesion === null ? null : h("p", { class: "soft numbers" },
        h("span", { title: "Mean cosine of its images with their centre: 1 = all alike" }, `cohesion ${fixed(category.cohesion)}`), " · ",
        h("span", { title: "1 - cosine of its centre with the nearest other centre: 0 = they coincide" }, `separation ${fixed(category.separation)}`),
        near ? [" from ", h("a", { href: link(near) }, near.name)] : null),
      h("div", { class: "buttons" },
        h("button", { type: "button", onclick: () => renameCategory(category) }, "Rename…"),
        new_ ? h("button", { type: "button", onclick: () => mergeCategory(category) }, "Merge into…") : null,
        new_ ? h("button", { type: "button", onclick: () => rejectCategory(category) }, "Reject") : null,
        studio ? h("a", { class: "button", href: `#check/${coded(category.id)}` }, "Spot check") : null)),
    category.signature.length ? h("div", { class: "why" }, h("h2", {}, "Likeness to the known classes"), signature(category, 8)) : null);
}

function renameCategory(category) {
  askName("Rename", `What is ${category.name}?`, category.name === category.id ? category.suggested : category.name, (word) => {
    if (addEdits([{ action: "rename", category: category.id, value: word }], `${category.id} is now called ${word}.`)) show();
  });
}

function mergeCategory(category) {
  pickCategory(`Merge ${category.name} into`, { about: now.members[category.index], without: category }, (target) => {
    if (addEdits([{ action: "merge", category: category.id, value: target.id }], `${category.name} was merged into ${target.name}.`)) location.hash = link(target);
  });
}

function rejectCategory(category) {
  addEdits([{ action: "reject", category: category.id }], `${category.name} was rejected: its images are in no category now.`);
  location.hash = "#overview";
}

// -- the rest -----------------------------------------------------------------------------------------

function doubtfulView() {
  const every = sieved(doubtful());
  const list = onePerBurst(every);
  const rejected = [...now.note].filter(([, note]) => note === "rejected").map(([i]) => i);
  const caption = (i) => [glyph(now.categories[now.category[i]]?.kind), `${now.categories[now.category[i]]?.name ?? "none"}`,
    guess(i) ? h("span", { class: "soft" }, ` ${guess(i)}`) : null];
  return [
    h("h1", {}, plural(every.length, "doubtful image")), h("p", { class: "lead" }, LEAD.doubtful, burstLead(every, list)),
    list.length || sieveOn() ? h("div", { class: "tools" }, sieveTools(), h("button", { type: "button", class: "quiet", onclick: () => { list.forEach((i) => selected.add(i)); showSelection(); } }, `Select all ${number(list.length)}`)) : null,
    galleryOf(list, { title: "Doubtful images", caption }).element,
    rejected.length ? section("Rejected", galleryOf(rejected, { title: "Rejected images" }).element) : null,
  ];
}

const relationsView = () => [
  h("h1", {}, "How the new relate to the known"), h("p", { class: "lead" }, LEAD.relations), heatmap(),
  novel().some((category) => category.words) ? section("In words", h("dl", { class: "facts words" }, novel().map((category) =>
    h("div", {}, h("dt", {}, h("a", { href: link(category) }, category.name)), h("dd", {}, category.words))))) : null,
];

const FIRST = ["title", "command", "method", "k", "backbone.name", "backbone.licence", "steps", "seed", "trained_on", "round", "confirmed_labels", "hardware"];

function settingsView() {
  const rows = new Map();
  const flat = (value, key) => {
    if (value && typeof value === "object" && !Array.isArray(value)) Object.entries(value).forEach(([inner, v]) => flat(v, key ? `${key}.${inner}` : inner));
    else if (value !== null && value !== "" && !(Array.isArray(value) && !value.length)) {
      rows.set(key, Array.isArray(value) ? value.map((v) => (v && typeof v === "object" ? JSON.stringify(v) : String(v))).join("; ") : String(value));
    }
  };
  flat({ run_id: data.run_id, ...data.facts }, "");
  const list = (keys) => h("dl", { class: "facts" }, keys.map((key) =>
    h("div", {}, h("dt", {}, key.replaceAll("_", " ").replaceAll(".", " · ")), h("dd", {}, rows.get(key)))));
  const problems = Object.entries(images.problem);
  return [
    h("h1", {}, "Settings and caveats"), caveats(),
    list(FIRST.filter((key) => rows.has(key))),
    h("details", {}, h("summary", {}, "Everything else that was recorded"), list([...rows.keys()].filter((key) => !FIRST.includes(key)))),
    problems.length ? section(`${plural(problems.length, "image")} could not be read`, h("ul", { class: "problems" },
      problems.slice(0, 200).map(([i, words]) => h("li", {}, h("code", {}, name(Number(i))), " ", words)))) : null,
    section("What the words mean", h("dl", { class: "facts words" }, Object.entries(WORDS).map(([word, meaning]) => h("div", {}, h("dt", {}, word), h("dd", {}, meaning))))),
    section("Keys", keyList()),
  ];
}

const WORDS = {
  "known class": "a class that some of your images were labelled with",
  "new category": "a group of images outside the known classes",
  probability: "how likely the image is in the right category, from 0 to 1; 1 for a label",
  "known score": "how much the image looks like one of the known classes, from 0 to 1",
  typicality: "how close the image is to the centre of its category, from 0 to 1",
  doubtful: "less than 60 % probable, far from the centre of its category, or at odds with its label; look at these first",
  "uniform, fairly uniform, mixed": "at least 90 %, at least 70 %, less than 70 % of its images are estimated to be right",
  ...(images?.group ? { burst: "frames that one camera took within seconds of each other, and that look alike; it counts once" } : {}),
  cohesion: "mean likeness of a category's images to their centre; 1 = all alike",
  separation: "distance of a category's centre to the nearest other one; 0 = they coincide",
};

// More like this: the images of the whole page that look most like one of them to the model, whatever their category.

/** Images most like one, the nearest first. */
function alikeTo(i) {
  if (studio) return studio.alike(i);
  const { each, list } = images.alike;
  return list.slice(i * each, (i + 1) * each).filter((other) => other >= 0);
}

/**
 * The categories, those first that look most like some images: which of them the second guesses and the nearest images
 * name, then how near their signatures are to those of the images' own categories, then the alphabet.
 */
function byLikeness(list) {
  const votes = new Map();
  const vote = (c, n) => votes.set(c, (votes.get(c) ?? 0) + n);
  for (const i of list) {
    vote(secondOf(i)?.index, 1);
    const near = alikeTo(i);
    near.forEach((other) => vote(now.category[other], 1 / near.length));
  }
  const own = [...new Set(list.map((i) => now.categories[now.category[i]]?.signature ?? []))];
  const apart = ({ signature }) => own.reduce((sum, other) => sum + (other.length && other.length === signature.length
    ? Math.hypot(...signature.map((likeness, at) => (likeness ?? 0) - (other[at] ?? 0))) : Infinity), 0);
  return alive().map((category) => ({ category, votes: votes.get(category.index) ?? 0, apart: apart(category) }))
    .sort((a, b) => b.votes - a.votes || (a.apart < b.apart ? -1 : a.apart > b.apart ? 1 : a.category.name.localeCompare(b.category.name, "en", { numeric: true })))
    .map(({ category }) => category);
}

const alikeLink = (i) => `#alike/${coded(images.path[i])}`;

let numbers = null;
/** The number of the image in an address; undefined where there is none. */
function imageAt(words) {
  numbers ??= new Map(images.path.map((path, i) => [coded(path), i]));
  return numbers.get(coded(words));
}

function alikeView(words) {
  const i = imageAt(words);
  if (i === undefined) return [h("h1", {}, "More like this"), h("p", { class: "lead" }, "There is no such image in this report.")];
  studio?.lookForAlike(i);
  const list = alikeTo(i);
  const own = list.filter((other) => now.category[other] === now.category[i]).length;
  const category = now.categories[now.category[i]];
  return [
    h("h1", {}, `More like ${shortName(i)}`),
    h("p", { class: "lead" }, category ? ["It is in ", h("a", { href: link(category) }, glyph(category.kind), category.name), ". "] : "It is in no category. ",
      list.length && own === list.length ? `So ${own === 1 ? "is the image that looks" : `are all ${number(own)} that look`} most like it to the model.`
        : list.length ? [`Of the ${plural(list.length, "image")} that look most like it to the model, ${plural(own, "is", "are")} in the same: `, whereThey(list), "."]
        : images.alike.why || "It could not be read, so nobody knows what it looks like."),
    section("This image", galleryOf([i], { title: "This image", caption: whereAndWhat }).element),
    list.length ? section("Most alike first", galleryOf(list, { title: `Images like ${shortName(i)}`, caption: whereAndWhat }).element) : null,
    list.length && data.total.shown < data.total.images ? h("p", { class: "soft" }, `This compares the ${number(data.total.shown)} images of this page, not all ${number(data.total.images)}.`) : null,
  ];
}
