// Small charts in SVG: likeness to the known classes, and how many categories there are.

/** Smallest and largest likeness of any new category, and 0: all bars have one scale. */
function likenessRange() {
  let [low, high] = [0, 0.01];
  for (const category of data.categories) {
    if (category.kind !== "novel") continue;
    for (const value of category.signature) if (value !== null) [low, high] = [Math.min(low, value), Math.max(high, value)];
  }
  return [low, high];
}

/** Bars of the known classes that a category is most like, and the one it is least like; those below 0 go left. */
function signature(category, most) {
  const order = category.signature.map((value, j) => [value, j]).filter(([value, j]) => value !== null && data.known[j] !== category.id)
    .sort((a, b) => b[0] - a[0]);
  if (!order.length) return null;
  const [low, high] = likenessRange();
  const at = (value) => (100 * (Math.min(Math.max(value, low), high) - low)) / (high - low);
  const shown = order.length <= most ? order : [...order.slice(0, most - 1), order[order.length - 1]];
  return h("ul", { class: "bars", "aria-label": "likeness to the known classes" }, shown.map(([value, j], n) =>
    h("li", { class: n === shown.length - 1 && order.length > most ? "far" : "" },
      h("span", { class: "who", title: nameOf(data.known[j]) }, nameOf(data.known[j])),
      h("span", { class: "track" },
        h("span", { class: `bar${value < 0 ? " below" : ""}`, style: { left: `${at(Math.min(0, value))}%`, width: `${Math.abs(at(value) - at(0))}%` } }),
        low < 0 ? h("span", { class: "zero", style: { left: `${at(0)}%` } }) : null),
      h("span", { class: "value" }, fixed(value).replace("-", "−")))));
}

const LINES = [
  { key: "labelled_accuracy", title: "Labelled images in the right place", dash: "", mark: "circle" },
  { key: "silhouette", title: "Silhouette: how well groups stand apart (uses no labels)", dash: "5 4", mark: "diamond" },
  { key: "stability", title: "Stability: do two runs agree? (uses no labels)", dash: "2 3", mark: "square" },
];

/** One curve of a criterion over the number of categories, with the range as a band. */
function curve(count, line) {
  const points = count.points.filter((p) => typeof p[line.key] === "number").sort((a, b) => a.k - b.k);
  if (points.length < 2) return null;
  const [W, H, L, R, T, B] = [340, 120, 36, 10, 10, 22];
  const ks = points.map((p) => p.k);
  const vs = points.map((p) => p[line.key]);
  const [k0, k1] = [Math.min(...ks, count.low), Math.max(...ks, count.high)];
  let [v0, v1] = [Math.min(...vs), Math.max(...vs)];
  if (v1 - v0 < 1e-9) [v0, v1] = [v0 - 0.05, v1 + 0.05];
  const x = (k) => L + ((k - k0) / (k1 - k0 || 1)) * (W - L - R);
  const y = (v) => H - B - ((v - v0) / (v1 - v0)) * (H - T - B);
  const mark = (p) => line.mark === "circle" ? h("circle", { cx: x(p.k), cy: y(p[line.key]), r: 3 })
    : line.mark === "diamond" ? h("path", { d: `M${x(p.k)} ${y(p[line.key]) - 4}l4 4-4 4-4-4z` })
      : h("rect", { x: x(p.k) - 2.5, y: y(p[line.key]) - 2.5, width: 5, height: 5 });
  const ticks = [...new Set([k0, count.low, count.best, count.high, k1])].sort((a, b) => a - b)
    .filter((k, at, list) => k === count.best || list.every((o) => o === k || Math.abs(x(o) - x(k)) > 18 || (o !== count.best && o > k)));
  return h("figure", { class: "curve" }, h("figcaption", {}, line.title),
    h("svg", { viewBox: `0 0 ${W} ${H}`, role: "img",
      "aria-label": `${line.title}: ${points.map((p) => `${p.k} categories ${p[line.key].toFixed(2)}`).join(", ")}` },
    h("rect", { class: "band", x: x(count.low) - 3, y: T - 6, width: x(count.high) - x(count.low) + 6, height: H - T - B + 6 }),
    h("line", { class: "best", x1: x(count.best), x2: x(count.best), y1: T - 6, y2: H - B }),
    h("line", { class: "axis", x1: L, x2: W - R, y1: H - B, y2: H - B }),
    h("polyline", { class: "line", "stroke-dasharray": line.dash, points: points.map((p) => `${x(p.k)},${y(p[line.key])}`).join(" ") }),
    h("g", { class: "marks" }, points.map(mark)),
    h("g", { class: "ticks" }, ticks.map((k) => h("text", { x: x(k), y: H - 8, "text-anchor": "middle",
      class: k === count.best ? "strong" : "" }, String(k))),
    [v0, v1].map((v) => h("text", { x: L - 7, y: y(v) + 4, "text-anchor": "end" }, v.toFixed(2))))));
}

/** How many categories: the range in words, and a curve for each criterion. */
function countPanel() {
  const count = data.count;
  const { k, in_use: used } = data.facts;
  const empty = used && used < k ? h("p", { class: "lead" }, `Trained with ${k}, ${used} in use.`) : null;
  if (!count) return [h("p", {}, "The number of categories was given, not estimated."), empty];
  const curves = LINES.map((line) => curve(count, line)).filter(Boolean);
  const range = count.low === count.high ? plural(count.low, "category", "categories") : `${count.low} to ${count.high} categories`;
  return [
    h("p", { class: "big" }, range, h("span", { class: "soft" }, `, best estimate ${count.best} (known classes included)`)),
    count.words ? h("p", { class: "lead" }, count.words) : null,
    empty,
    h("div", { class: "curves" }, curves),
    curves.length ? h("p", { class: "soft" }, "Higher is better. The band is the range; the line marks the best estimate.") : null,
  ];
}

/** Discovered categories x known classes; the stronger the colour, the more alike. */
function heatmap() {
  const rows = novel().filter((category) => category.signature.length);
  if (!rows.length || !data.known.length) return h("p", {}, "There is nothing to relate: no new categories, or no known classes.");
  const values = rows.flatMap((category) => category.signature).filter((v) => v !== null);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const wide = data.known.length > 24;
  const cell = (category, value, j) => {
    const level = value === null ? 0 : (value - low) / (high - low || 1);
    const best = value === Math.max(...category.signature);
    return h("td", { class: `${level > 0.55 ? "deep" : ""}${best ? " best" : ""}`, style: { "--level": `${Math.round(level * 100)}%` },
      title: `${category.name} and ${nameOf(data.known[j])}: ${fixed(value)}` }, wide ? h("span", { class: "sr" }, fixed(value)) : fixed(value).replace("-", "−"));
  };
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Relations, scrolls sideways" },
    h("table", { class: `heat${wide ? " wide" : ""}` },
      h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "corner" }, "new \\ known"),
        data.known.map(nameOf).map((word) => h("th", { scope: "col" }, h("span", { title: word }, word))))),
      h("tbody", {}, rows.map((category) => h("tr", {},
        h("th", { scope: "row" }, h("a", { href: link(category) },
          h("span", { class: "pair" }, category.exemplars.slice(0, 2).map((i) => thumb(i, { cover: true }))),
          h("span", { class: "who" }, category.name))),
        data.known.map((word, j) => cell(category, category.signature[j] ?? null, j)))))));
}

/** What would join or part at a few categories less or more; holotype cut does it. */
function aroundPanel() {
  const around = data.around;
  if (!around?.steps.length) return null;
  return h("div", { class: "around" },
    h("p", {}, `Without training, the ${around.k} categories can be cut at ${around.low} to ${around.high} (holotype cut):`),
    h("div", { class: "scroll" }, h("table", { class: "plain" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "categories"), h("th", { scope: "col" }, "what happens"))),
      h("tbody", {}, around.steps.map(([k, words]) => h("tr", {}, h("th", { scope: "row" }, String(k)), h("td", {}, words)))))));
}
