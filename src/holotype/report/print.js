// Printing: the categories with their pictures, each on a page of its own, and none of the controls.

const MOST_PRINTED = 36; // pictures of a category where all are printed: a page of A4 or letter
const MOST_PRINTED_ALONE = 480; // where one category is

/** A picture that is printed whatever the browser does with backgrounds: a sheet of which the frame shows one cell. */
function printedThumb(i) {
  if (studio) return h("span", { class: "cell" }, studio.thumb(i, false, false));
  const { cell, width, height, side, grid, folder } = data.thumbs;
  const at = cell[i];
  if (at === undefined || at < 0) return h("span", { class: "cell missing" }, "no picture");
  const unit = Math.max(width[i], height[i]);
  const place = at % (grid * grid);
  const sheet = h("img", { src: `${folder}${String(Math.floor(at / (grid * grid))).padStart(5, "0")}.jpg`, alt: "", decoding: "sync", style: {
    "--b": (grid * side) / unit, "--x": -((place % grid) * side) / unit, "--y": -(Math.floor(place / grid) * side) / unit } });
  return h("span", { class: "cell" }, h("span", { class: "crop", style: { "--w": width[i] / unit, "--h": height[i] / unit } }, sheet));
}

function printedCategory(category, most) {
  const members = now.members[category.index];
  const list = members.slice(0, most);
  const more = category.n - list.length;
  return h("section", { class: "printed" },
    h("h2", {}, glyph(category.kind), category.name),
    h("p", {}, `${category.kind === "novel" ? "New category" : "Known class"}, ${plural(category.n, "image")}`,
      category.name !== category.id ? `, found as ${category.id}` : "", category.words ? `; ${category.words}` : ""),
    h("div", { class: "cells" }, list.map((i) => h("figure", {}, printedThumb(i), h("figcaption", {}, shortName(i), now.doubtful[i] ? " (doubtful)" : "")))),
    more > 0 ? h("p", {}, `and ${number(more)} more`) : null);
}

/** What goes on paper: the category that is shown, or else all of them. */
function printed() {
  const [view, id] = place();
  const alone = view === "category" ? categoryAt(id) : null;
  const [new_, old] = [novel(), known()];
  const all = alone ? [alone] : [...new_, ...old];
  return h("div", { id: "print" },
    h("header", {}, h("h1", {}, data.title), h("p", {}, `${plural(data.total.images, "image")}: ${plural(old.length, "known class", "known classes")} and ${plural(new_.length, "new category", "new categories")}`),
      alone ? null : h("ol", {}, all.map((category) => h("li", {}, glyph(category.kind), category.name, ` (${number(category.n)})`)))),
    all.map((category) => printedCategory(category, alone ? MOST_PRINTED_ALONE : MOST_PRINTED)));
}

function preparePrint() {
  document.getElementById("print")?.remove();
  document.body.append(printed());
  document.body.classList.add("printing");
}

function endPrint() {
  document.body.classList.remove("printing");
  document.getElementById("print")?.remove();
}

/** Sheets that were never on the screen have to be loaded first, for which a browser's own print command may not wait. */
async function printWhenLoaded() {
  toast("Getting the pictures ready for printing…");
  preparePrint();
  await Promise.allSettled([...document.querySelectorAll("#print img")].map((image) => image.decode()));
  window.print();
}

function startPrint() {
  addEventListener("beforeprint", () => document.getElementById("print") || preparePrint());
  addEventListener("afterprint", endPrint);
  addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey || event.key.toLowerCase() !== "p") return;
    event.preventDefault();
    printWhenLoaded();
  });
}
