// Questions: what to ask next, so that an answer puts as many images right as it can. Each takes one key. The value of a
// question is the images that its answer is expected to put right.

const CORE = 6; // the most typical images of a category in a question, and the oddest ones
const CLOSE = 0.3; // separation below which two categories may be one
const [NEAR, LEAST_STRANGERS, MOST_STRANGERS] = [300, 3, 400]; // ten-thousandths of the map, and images
const SURE = 900; // thousandths from which nobody asks about an image
const REMEMBERED = data ? `holotype:asked:${data.run_id}` : "";

const queue = {
  question: null, // the one that is shown; it stays until it is answered
  candidates: [], // categories that its keys 1 to 9 mean
  asked: new Set(), // keys of those that were skipped, or answered in a way that leaves no edit
  changes: [], // images that each of the last ten answers has changed
  unsure: 0, // images of which nobody is sure, one of a burst; some of them are questions
};
try {
  queue.asked = new Set(JSON.parse(localStorage.getItem(REMEMBERED) ?? "[]"));
} catch { /* nothing is remembered */ }

const doubtOf = (list) => list.reduce((sum, i) => sum + 1 - (images.probability[i] ?? 500) / 1000, 0) / Math.max(1, list.length);
/** Has somebody said what it is, or another frame of its burst? */
const isAnswered = (i) => [i, ...framesOf(i)].some((frame) => now.confirmed.has(frame) || now.note.get(frame) === "moved by hand");
const isNamed = (category) => category.kind === "known" || !UNNAMED.test(category.name);

/** Are these twelve one thing? Of each new category of which nobody has confirmed an image. */
function groupQuestions() {
  return novel().flatMap((category) => {
    const members = onePerBurst(now.members[category.index].filter((i) => now.canMove(i)));
    if (members.length < 2 || now.members[category.index].some((i) => now.confirmed.has(i))) return [];
    const core = members.slice(0, CORE);
    const odd = members.slice(core.length).slice(-CORE);
    return [{ kind: "group", key: `group ${category.id}`, category, images: [...core, ...odd], core,
      value: doubtOf(members) * category.n * [...core, ...odd].reduce((yes, i) => yes * (1 - doubtOf([i])), 1) }];
  });
}

/** Is A the same as B? Of categories that lie close to each other; at least one of the two is new. */
function pairQuestions() {
  return novel().flatMap((category) => {
    const measured = data.categories[category.index];
    const other = findCategory(measured?.nearest ?? "");
    if (!other || other === category || measured.separation === null || measured.separation >= CLOSE) return [];
    return [{ kind: "pair", key: `pair ${[category.id, other.id].sort().join(" ")}`, category, other, images: category.exemplars.slice(0, CORE),
      value: Math.min(category.n, other.n) * (1 - measured.separation / CLOSE) / 2 }];
  });
}

/** Is this one of those? In the order in which answers put most images right (results/review_queue.py). */
function imageQuestions() {
  const { queue: rows, gains } = live.placement?.queue.length ? live.placement : data.queue;
  const isOpen = (i) => (images.probability[i] ?? 0) < SURE && now.canMove(i) && !isAnswered(i) && ![i, ...framesOf(i)].some((frame) => queue.asked.has(`image ${now.keys[frame]}`));
  queue.unsure = onePerBurst([...images.probability.keys()].filter(isOpen)).length;
  return rows.flatMap((i, at) => (isOpen(i) ? [{ kind: "image", key: `image ${now.keys[i]}`, category: now.categories[now.category[i]], images: [i], value: gains[at] * Math.max(1, framesOf(i).length) }] : []));
}

/** The category that the model would put a labelled image into, by its note; null where it agrees. */
function modelSays(i) {
  const [, word] = /(?:^|; )the model would say (.+)$/s.exec(now.note.get(i) ?? "") ?? [];
  return word === undefined ? null : findCategory(word);
}

/** Images whose label the model doubts: who is right? */
function labelQuestions() {
  const list = [...now.note.keys()].filter((i) => images.label[i] >= 0 && now.category[i] >= 0 && !isAnswered(i) && modelSays(i));
  return onePerBurst(list).map((i) => ({ kind: "label", key: `label ${now.keys[i]}`, category: now.categories[now.category[i]], other: modelSays(i), images: [i], value: 1 }));
}

/** Strangers in groups: images far from their category that lie close to each other on the map. */
function strangerQuestions() {
  const open = onePerBurst(doubtful().filter((i) => now.canMove(i) && images.x[i] !== null && !isAnswered(i)));
  const left = new Set(open.slice(0, MOST_STRANGERS));
  const found = [];
  for (const i of left) {
    const near = [...left].filter((j) => Math.hypot(images.x[i] - images.x[j], images.y[i] - images.y[j]) < NEAR).slice(0, 2 * CORE);
    if (near.length < LEAST_STRANGERS) continue;
    near.forEach((j) => left.delete(j));
    found.push({ kind: "strangers", key: `strangers ${now.keys[i]}`, category: now.categories[now.category[i]], images: near, value: doubtOf(near) * near.length / 2 });
  }
  return found;
}

/** What two people say of one image, where that differs: what counts now, and the other. */
function disagreements() {
  const said = new Map(); // image -> person -> what they said last: a category, or null = it is in none
  for (const edit of edits) {
    const i = edit.image || edit.digest ? now.rows.get(edit.digest || edit.image)?.[0] : undefined;
    if (i === undefined || !edit.by) continue;
    if (!said.has(i)) said.set(i, new Map());
    said.get(i).set(edit.by, edit.action === "reject" ? null : findCategory(edit.value));
  }
  return [...said].flatMap(([i, people]) => {
    const category = now.categories[now.category[i]] ?? null;
    const found = [...people].find(([, other]) => other && other !== category);
    return found && people.size > 1 && category ? [{ kind: "people", key: `people ${now.keys[i]}`, category, other: found[1], by: found[0], images: [i], value: Infinity }] : [];
  });
}

const makeQuestions = () => [...disagreements(), ...groupQuestions(), ...pairQuestions(), ...labelQuestions(), ...strangerQuestions(), ...imageQuestions()]
  .filter(({ key }) => !queue.asked.has(key)).sort((a, b) => (a.value === b.value ? 0 : b.value - a.value));

const isOpenQuestion = (question, all) => question && all.some(({ key }) => key === question.key);

// -- answers ------------------------------------------------------------------------------------------------

function remember(keys) {
  keys.forEach((key) => queue.asked.add(key));
  try {
    localStorage.setItem(REMEMBERED, JSON.stringify([...queue.asked].slice(-2000)));
  } catch { /* it is asked again after the page was loaded anew */ }
}

/** Go on to the next question. made: edits; changed: images that they are about. */
function answered(question, made = [], changed = 0) {
  if (made.length && studio.readOnly()) return toast(studio.readOnly());
  const alike = question.kind === "image" ? live.same.get(question.images[0]) ?? [] : [];
  remember([...(made.length && question.kind !== "people" ? [] : [question.key]), ...alike.map((i) => `image ${now.keys[i]}`)]);
  queue.changes = [...queue.changes, changed].slice(-10);
  queue.question = null;
  takePlacement(); // everything is drawn anew: nothing jumps
  if (made.length) return addEdits(made);
  return show();
}

/** A name for a category; that of another one means that the two are the same. then: (edits, the category to go on with). */
function nameCategory(category, then) {
  askName(`What is ${category.name}?`, "Confirmed images become labels of a class in the next round, so it needs a name.", isNamed(category) ? category.name : category.suggested, (word) => {
    const other = findCategory(word);
    if (other && other !== category) then([{ action: "merge", category: category.id, value: other.id }], other);
    else then([{ action: "rename", category: category.id, value: word }], category);
  });
}

const named = (category, then) => (isNamed(category) ? then([], category) : nameCategory(category, then));

const confirmAs = (list, category) => list.map((i) => editOf("confirm", i, category.id));
/** An answer about one frame of a burst holds for all of them. */
const wholeBurst = (i) => [i, ...framesOf(i).filter((frame) => frame !== i && now.canMove(frame))];

/** list: images of the question that are the same thing. */
const confirmGroup = (question, list) => named(question.category,
  (made, category) => answered(question, [...made, ...confirmAs(list.flatMap(wholeBurst), category)], question.category.n));

const YES = {
  group: (question) => confirmGroup(question, question.images),
  pair: (question) => answered(question, [{ action: "merge", category: question.category.id, value: question.other.id }], question.category.n),
  image: (question) => named(question.category, (made, category) => {
    const list = wholeBurst(question.images[0]);
    answered(question, [...made, ...confirmAs(list, category)], list.length);
  }),
  label: (question) => answered(question, confirmAs(question.images, question.category), 1),
  people: (question) => answered(question, confirmAs(question.images, question.category), 1),
  strangers: (question) => askName("What are they?", "A name that no category has makes a new one.", "", (word) => moveTo(question, findCategory(word) ?? word)),
};

const moveTo = (question, target) => {
  const list = question.images.flatMap(wholeBurst);
  answered(question, list.map((i) => editOf("move", i, target.id ?? target)), list.length);
};

const NO = {
  group: (question) => answered(question),
  pair: (question) => answered(question),
  image: (question) => pickCategory("What is it?", { about: question.images, without: question.category }, (target) => moveTo(question, target)),
  label: (question) => answered(question, [editOf("confirm", question.images[0], question.other.id)], 1),
  people: (question) => moveTo(question, question.other),
  strangers: (question) => answered(question),
};

const candidates = ({ kind, images: list, category }) => (kind === "image" || kind === "strangers" ? byLikeness(list).filter((other) => other !== category).slice(0, 9) : []);

/** A name for what is shown: a category that is called so, or a new one. */
function nameIt(question) {
  if (question.kind === "strangers") return YES.strangers(question);
  if (question.kind !== "image") return nameCategory(question.category, (made) => addEdits(made));
  return askName("What is it?", "A name that no category has makes a new one.", "", (word) => moveTo(question, findCategory(word) ?? word));
}

/** Keys of this view; returns whether it was one. */
function questionKey(key) {
  const { question } = queue;
  if (!question || selected.size) return false; // a selection has keys of its own
  const choice = /^[1-9]$/.test(key) ? queue.candidates[key - 1] : null;
  if (key === "y") YES[question.kind](question);
  else if (key === "n") NO[question.kind](question);
  else if (key === "c" && question.kind === "group") confirmGroup(question, question.core);
  else if (key === "x") answered(question);
  else if (key === "Enter" && !document.activeElement.closest(".tile, a, button") && question.kind !== "label" && question.kind !== "people") nameIt(question);
  else if (choice) moveTo(question, choice);
  else return false;
  return true;
}

// -- the view -----------------------------------------------------------------------------------------------

const ASKED = {
  group: ({ images: list }) => `Are these ${list.length} one thing?`,
  pair: ({ category, other }) => (other.kind === "known" ? `May ${category.name} be part of ${other.name}?` : `Is ${category.name} the same as ${other.name}?`),
  people: ({ category, other, by }) => `It is ${category.name} now, and ${other.name} to ${by}. Should it stay?`,
  strangers: ({ images: list }) => `Are these ${list.length} something else?`,
  image: ({ category }) => `Is this ${category.name}?`,
  label: ({ category, other }) => `It is labelled ${category.name}, and looks like ${other.name}. Is the label right?`,
};

const button = (key, words, onclick, kind = "") => h("button", { type: "button", class: kind, onclick }, h("kbd", {}, key), ` ${words}`);

/** Three images of a category, to compare with. */
const examples = (category, without) => h("figure", { class: "examples" }, h("figcaption", {}, glyph(category.kind), ` ${category.name}`),
  [...category.exemplars, ...now.members[category.index]].filter((i, at, all) => !without.includes(i) && all.indexOf(i) === at).slice(0, 3).map((i) => thumb(i, { lazy: false })));

const onePicture = (i) => (address(i) ? h("img", { class: "asked", src: address(i), alt: describe(i) }) : h("div", { class: "asked" }, thumb(i, { lazy: false })));

function questionsView() {
  const all = makeQuestions();
  if (!isOpenQuestion(queue.question, all)) queue.question = all[0] ?? null;
  const { question } = queue;
  queue.candidates = question ? candidates(question) : [];
  all.filter(({ kind }) => kind === "image").slice(0, 3).forEach(({ images: [i] }) => studio.lookForAlike(i)); // they come next
  const left = all.filter(({ kind }) => kind !== "image").length + queue.unsure;
  const changed = queue.changes.reduce((sum, n) => sum + n, 0);
  const count = h("p", { class: "soft", role: "status" }, left ? plural(left, "question") : "No questions",
    ` left. ${queue.changes.length ? `The last ${plural(queue.changes.length, "answer has", "answers have")} changed ${plural(changed, "image")}.` : ""}`);
  if (!question) return [h("h1", {}, "Nothing left to ask"), count, h("p", {}, h("a", { href: "#rounds" }, "Train another round"), " to learn from your answers.")];
  const beside = { group: [], pair: [question.other], image: [question.category], label: [question.category, question.other], people: [question.category, question.other], strangers: [question.category] }[question.kind];
  return [h("h1", {}, ASKED[question.kind](question)), count,
    h("div", { class: "question" }, question.images.length > 1 ? galleryOf(question.images, { title: ASKED[question.kind](question), id: "question" }).element : onePicture(question.images[0]),
      beside.map((category) => examples(category, question.images))),
    h("div", { class: "buttons answers" },
      button("y", question.kind === "strangers" || (question.kind === "group" && !isNamed(question.category)) ? "Yes: name it" : question.kind === "pair" ? "Yes: merge" : "Yes", () => YES[question.kind](question), "primary"),
      question.kind === "group" ? button("c", `Only the first ${question.core.length}`, () => confirmGroup(question, question.core)) : null,
      button("n", question.kind === "image" ? "No: it is…" : "No", () => NO[question.kind](question)),
      queue.candidates.map((category, at) => button(at + 1, category.name, () => moveTo(question, category))),
      question.kind === "label" || question.kind === "people" ? null : button("Enter", "Type a name", () => nameIt(question)),
      button("x", "Skip", () => answered(question)), button("u", "Undo", undo, "quiet"))];
}
