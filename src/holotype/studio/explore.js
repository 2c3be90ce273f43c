// A spot check of a category, other numbers of categories by eye, and images like a picture of one's own.

const DRAWN = 25;
const checks = new Map(); // category id -> the images that were drawn of it

/** The share that is right at least, with 95 % confidence, if `right` of n images drawn at random are (Clopper and Pearson). */
function leastShare(right, n) {
  const tail = (p) => { // the chance of at least so many right ones, if the share is p
    let sum = 0;
    for (let k = right; k <= n; k++) {
      let term = p ** k * (1 - p) ** (n - k);
      for (let j = 1; j <= n - k; j++) term *= (k + j) / j;
      sum += term;
    }
    return sum;
  };
  let [low, high] = [0, 1];
  for (let step = 0; step < 40; step++) {
    const middle = (low + high) / 2;
    if (tail(middle) < 0.05) low = middle;
    else high = middle;
  }
  return low;
}

/** Some of a list, drawn at random. */
function drawn(list, n) {
  const rest = [...list];
  return Array.from({ length: Math.min(n, rest.length) }, () => rest.splice(Math.floor(Math.random() * rest.length), 1)[0]);
}

function checkView(id) {
  const category = categoryAt(id);
  const members = now.members[category.index];
  const unlabelled = members.filter((i) => images.label[i] < 0);
  if (!checks.has(category.id)) checks.set(category.id, drawn(unlabelled, DRAWN));
  const list = checks.get(category.id);
  const inside = new Set(members);
  const right = list.filter((i) => inside.has(i)).length; // those that were moved or rejected are not
  const again = () => { checks.delete(category.id); show(); };
  return [h("h1", {}, `Spot check of ${category.name}`),
    h("p", { class: "lead" }, `${plural(list.length, "image")} drawn at random. Move or reject those that do not belong; the page counts.`),
    h("p", { class: "big", role: "status" }, `${right} of ${list.length} are right: you can be 95 % sure that at least ${Math.floor(100 * leastShare(right, list.length))} % of its ${plural(unlabelled.length, "image")} without a label are.`),
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => confirmImages(list.filter((i) => inside.has(i))) }, "Confirm the right ones"),
      h("button", { type: "button", class: "quiet", onclick: again }, "Draw others"), h("a", { class: "button", href: link(category) }, "Back")),
    galleryOf(list, { title: `Spot check of ${category.name}`, caption: right === list.length ? null : (i) => (inside.has(i) ? "" : "not in it"), id: "check" }).element];
}

// -- how many categories ------------------------------------------------------------------------------------

/** The edits that lead from the categories of this round to K of them, as holotype cut makes them. */
function editsTo(k) {
  const { tree } = data;
  if (k <= tree.k) return tree.merges.slice(0, tree.k - k).map(({ source, target }) => ({ action: "merge", category: source, value: target }));
  const to = new Map(); // image -> where it ends
  for (const { part, rows } of tree.splits.slice(0, k - tree.k)) for (const i of rows) to.set(i, part);
  return [...to].map(([i, part]) => editOf("move", i, part));
}

let wishedNumber = null;

function numberView() {
  const { tree } = data;
  if (!tree) return [h("h1", {}, "How many categories?"), h("p", {}, "Nothing is known about other numbers of this round; train another one.")];
  const [low, high] = [tree.k - tree.merges.length, tree.k + tree.splits.length];
  const preview = h("div", { class: "cards small" });
  const words = h("p", { class: "big", role: "status" });
  const draw = () => {
    const time = new Date().toISOString();
    const more = editsTo(wishedNumber).map((edit) => ({ run_id: data.run_id, time, image: "", value: "", digest: "", ...edit }));
    const then = applyEdits(data, [...edits, ...more], live.placement);
    words.textContent = plural(wishedNumber, "category", "categories");
    const same = (category) => now.byId.get(category.id)?.n === category.n;
    const there = then.categories.filter(isAwake).sort((a, b) => same(a) - same(b) || b.n - a.n);
    preview.replaceChildren(...there.map((category) => h("article", { class: `card ${category.kind}` },
      h("div", { class: "cover" }, then.members[category.index].slice(0, category.kind === "novel" ? 6 : 4).map((i) => thumb(i, { cover: true }))),
      h("div", { class: "text" }, h("h3", {}, glyph(category.kind), category.name, h("span", { class: "n" }, number(category.n))),
        same(category) ? null : h("p", { class: "soft" }, "changes")))));
  };
  wishedNumber = Math.min(high, Math.max(low, wishedNumber ?? tree.k));
  const slider = h("input", { type: "range", min: low, max: high, value: wishedNumber, "aria-label": "Number of categories", oninput: () => {
    wishedNumber = Number(slider.value);
    draw();
  } });
  draw();
  return [h("h1", {}, "How many categories?"), h("p", { class: "lead" }, `This round has ${tree.k}. Fewer merge what is most alike, more part what is most mixed; what changes comes first.`),
    h("div", { class: "number" }, slider, words),
    h("div", { class: "buttons" }, h("button", { type: "button", class: "primary", onclick: () => {
      if (addEdits(editsTo(wishedNumber), `${plural(wishedNumber, "category", "categories")} now.`)) location.hash = "#overview";
    } }, "Take this number")), preview];
}

// -- like a picture of one's own ------------------------------------------------------------------------------

const LONGEST_SIDE = 512; // pixels that are sent: the network sees fewer

/** A picture as base64, no larger than it needs to be; it goes to this computer alone. */
async function shrunk(file) {
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, LONGEST_SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = Object.assign(document.createElement("canvas"), { width: Math.round(bitmap.width * scale), height: Math.round(bitmap.height * scale) });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.9).split(",")[1];
}

function pictureView() {
  const place = h("div", { class: "found" });
  const told = h("p", { class: "soft", role: "status" });
  const look = async (address, asked, title, wrong) => {
    told.textContent = "Looking; this takes some seconds, the first time more.";
    try {
      const { rows } = await post(address, await asked());
      told.textContent = `${plural(rows.length, "image")}, the most alike first.`;
      refill(place, [galleryOf(rows, { title, caption: whereAndWhat }).element]);
    } catch (error) {
      told.textContent = error.told ? error.message : wrong;
    }
  };
  const field = h("input", { type: "file", accept: "image/*", "aria-label": "A picture", onchange: () => look("/api/picture", async () => ({ picture: await shrunk(field.files[0]) }), "Images like your picture", "This picture cannot be read; choose another one.") });
  const words = h("input", { type: "search", "aria-label": "Words", placeholder: "or words: red car", onchange: () => words.value.trim() && look("/api/words", async () => ({ words: words.value }), `Images like ${words.value}`, "The words could not be looked for.") });
  return [h("h1", {}, "Images like a picture of yours"), h("p", { class: "lead" }, "The picture is compared with all images of the run, and is not kept."), field, words, told, place];
}
