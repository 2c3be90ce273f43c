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
