// Edits of earlier rounds that never reached the run folder: which of them fit this round. Pure: nothing here knows of a page.

/** An edit whatever the round: one that was taken over differs from what it was made of by its run alone. */
const saidOf = (edit) => COLUMNS.slice(1).map((column) => edit[column]).join("\u001f");

const asEdit = (row) => Object.fromEntries(COLUMNS.map((column, at) => [column, row[at]]));

/** The log of the run folder, of all rounds. */
const wholeLog = (discovery) => [...discovery.log, ...(discovery.earlier_log ?? [])].map(asEdit);

/** A path from the top of a machine or of a store; all others start at the folder of the images. */
const WHOLE = /^(?:[\\/]|[A-Za-z]:[\\/]|\w+:\/\/)/;

/** Follows a collection that was moved, or whose images this page calls by short names: the edit with the name of today. */
function atHome(discovery, paths, edit) {
  if (!edit.image || paths.has(edit.image)) return edit;
  const { root, earlier_roots: before } = discovery.facts;
  const parts = edit.image.split(/[\\/]/);
  for (let first = 1; root === undefined && WHOLE.test(edit.image) && first < parts.length; first++) {
    const end = parts.slice(first).join("/");
    if (paths.has(end)) return { ...edit, image: end };
  }
  for (const old of before ?? []) {
    if (!old || !edit.image.startsWith(old)) continue;
    const rest = edit.image.slice(old.length).replace(/^[\\/]+/, "");
    const here = [`${root}/${rest}`, `${root}\\${rest}`].find((path) => paths.has(path));
    if (here) return { ...edit, image: here };
  }
  return edit;
}

/** What the log does not have. stored: edits of earlier rounds, oldest first. */
function notLogged(discovery, stored) {
  const paths = pathsOf(discovery);
  const logged = new Set(wholeLog(discovery).map(saidOf));
  return stored.filter((edit) => !logged.has(saidOf(edit)) && !logged.has(saidOf(atHome(discovery, paths, edit))));
}

const pathsOf = (discovery) => new Set(discovery.images.path.map((rest) => discovery.images.root + rest));

/**
 * What is left of the edits of earlier rounds: `take` fit this round, as edits of this round; `left` are pairs of an edit
 * and the reason why it does not. edits: those of this round in this browser, which are later and so count for more.
 */
function carryOver(discovery, stored, edits) {
  const paths = pathsOf(discovery);
  const later = [...wholeLog(discovery), ...edits];
  const had = new Set(edits.map(saidOf));
  const open = [...new Map(notLogged(discovery, stored).map((edit) => atHome(discovery, paths, edit))
    .filter((edit) => !had.has(saidOf(edit))).map((edit) => [saidOf(edit), edit])).values()];
  const first = new Standing(discovery);
  const refused = open.map((edit) => whyNot(first, later, edit));
  const own = open.map((edit) => ({ ...edit, run_id: discovery.run_id }));
  const fitting = own.filter((_, at) => !refused[at]);
  const { problems } = applyEdits(discovery, [...edits, ...fitting]);
  const problemOf = new Map(fitting.map((edit, at) => [edit, problems[edits.length + at]]));
  const reasons = own.map((edit, at) => refused[at] || problemOf.get(edit));
  return {
    take: own.filter((_, at) => !reasons[at]),
    left: open.flatMap((edit, at) => (reasons[at] ? [[edit, reasons[at]]] : [])),
  };
}

/** Why an edit is not even tried; "" = it may be. */
function whyNot(standing, later, edit) {
  const about = (other) => (edit.image ? other.image === edit.image : !other.image && other.action === edit.action && other.category === edit.category);
  if (later.some((other) => about(other) && other.time > edit.time)) return "A later edit says what counts.";
  const unheard = (word) => UNNAMED.test(stripped(word)) && !standing.find(word) && !standing.rejected.includes(standing.end(word));
  if (["move", "confirm"].includes(edit.action) && unheard(edit.value)) return `There is no category ${edit.value} in this round.`;
  return "";
}
