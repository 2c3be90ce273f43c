// What the tests ask of the report's own scripts. Each task takes and returns a list.

/** How things stand, in the words of tests/categories/golden.py. */
function outcomeOf(discovery, edits, placement) {
  const before = JSON.stringify([discovery, edits]);
  const now = applyEdits(discovery, edits, placement);
  if (JSON.stringify([discovery, edits]) !== before) throw new Error("applyEdits changed what it was given");
  const image = (i) => {
    const category = now.categories[now.category[i]];
    return [category?.id ?? "", category?.name ?? "", category?.kind ?? "", now.note.get(i) ?? "", Boolean(now.doubtful[i])];
  };
  const awake = now.categories.filter(isAwake);
  awake.forEach((category) => {
    const whole = discovery.total.shown === discovery.total.images; // else some of its images are not on the page
    if (whole && now.members[category.index].length !== category.n) {
      throw new Error(`${category.id} does not hold ${category.n}`);
    }
  });
  return {
    images: now.paths.map((path, i) => [path, image(i)]),
    categories: awake.map(({ id, name, kind, n }) => [id, name, kind, n]),
    merged: [...now.merged],
    rejected: now.rejected,
    confirmed: now.paths.map((path, i) => [path, now.label(i)]).filter(([, label]) => label !== ""),
    applied: now.applied,
    refused: now.problems.flatMap((problem, at) => (problem ? [at] : [])),
    exemplars: awake.map((category) => category.exemplars.map((i) => now.paths[i])),
    signatures: awake.map((category) => category.signature),
    words: awake.map(({ words, suggested }) => [words, suggested]),
    measured: awake.map(({ cohesion, separation, returns, faint }) => [cohesion, separation, returns ?? "", faint ?? false]),
  };
}

const TASKS = {
  apply: (cases) => cases.map(({ discovery, edits, placement }) => outcomeOf(discovery, edits, placement)),
  toCsv: (lists) => lists.map(toCsv),
  readEdits: (texts) => texts.map(readEdits),
  checkInWords: (sizes) => sizes.map(checkInWords),
  checks: (cases) => cases.map(({ discovery, edits }) => applyEdits(discovery, edits).categories.map(({ id, check }) => [id, check ?? ""])),
  stripped: (texts) => texts.map(stripped),
  findNames: (cases) => cases.map(([names, words]) => findNames(names, words)),
  windsRound: (cases) => cases.map(([shape, x, y]) => windsRound(shape, x, y)),
  carryOver: (cases) => cases.map(({ discovery, stored, edits }) => carryOver(discovery, stored, edits)),
};
