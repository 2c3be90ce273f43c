// More like this: the images of the whole page that look most like one of them to the model, whatever their category.

/** Images most like one, the nearest first. */
function alikeTo(i) {
  const { each, list } = images.alike;
  return list.slice(i * each, (i + 1) * each).filter((other) => other >= 0);
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
  const list = alikeTo(i);
  const own = list.filter((other) => now.category[other] === now.category[i]).length;
  const category = now.categories[now.category[i]];
  return [
    h("h1", {}, `More like ${shortName(i)}`),
    h("p", { class: "lead" }, category ? ["It is in ", h("a", { href: link(category) }, glyph(category.kind), category.name), ". "] : "It is in no category. ",
      list.length && own === list.length ? `So ${own === 1 ? "is the image that looks" : `are all ${number(own)} that look`} most like it to the model.`
        : list.length ? [`Of the ${plural(list.length, "image")} that look most like it to the model, ${plural(own, "is", "are")} in the same: `, whereThey(list), "."]
        : images.alike.why || "It could not be read, so nobody knows what it looks like."),
    section("This image", new Gallery([i], { title: "This image", caption: whereAndWhat }).element),
    list.length ? section("Most alike first", new Gallery(list, { title: `Images like ${shortName(i)}`, caption: whereAndWhat }).element) : null,
    list.length && data.total.shown < data.total.images ? h("p", { class: "soft" }, `This compares the ${number(data.total.shown)} images of this page, not all ${number(data.total.images)}.`) : null,
  ];
}
