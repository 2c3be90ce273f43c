// Edits of earlier rounds that never reached the run folder: which of them fit this round. Pure: nothing here knows of a page.

/** A path from the top of a machine or of a store; all others start at the folder of the images. */
const WHOLE = /^(?:[\\/]|[A-Za-z]:[\\/]|\w+:\/\/)/;

/** Name of an image on the page to its number. */
const pathsOf = (discovery) => new Map(discovery.images.path.map((rest, i) => [discovery.images.root + rest, i]));

/** The edit with the digest of its image, where it names that by path alone; this page may call images by short names. */
function identified(discovery, paths, edit) {
  if (!edit.image || edit.digest) return edit;
  const parts = discovery.facts.root === undefined && WHOLE.test(edit.image) ? edit.image.split(/[\\/]/) : [];
  const ends = parts.map((_, first) => parts.slice(first).join("/"));
  const image = [edit.image, ...ends].find((name) => paths.has(name));
  return image === undefined ? edit : { ...edit, image, digest: discovery.images.digest[paths.get(image)] ?? "" };
}

/** The log of the run folder, of all rounds. */
const wholeLog = (discovery, paths) => [...discovery.log, ...(discovery.earlier_log ?? [])].map((row) => identified(discovery, paths, asEdit(row)));

/** What the log does not have. stored: edits of earlier rounds, oldest first. */
function notLogged(discovery, stored) {
  const paths = pathsOf(discovery);
  const logged = new Set(wholeLog(discovery, paths).map(saidOf));
  return stored.filter((edit) => !logged.has(saidOf(edit)) && !logged.has(saidOf(identified(discovery, paths, edit))));
}

/**
 * What is left of the edits of earlier rounds: `take` fit this round, as edits of this round; `left` are pairs of an edit
 * and the reason why it does not. edits: those of this round in this browser, which are later and so count for more.
 */
function carryOver(discovery, stored, edits) {
  const paths = pathsOf(discovery);
  const later = [...wholeLog(discovery, paths), ...edits];
  const had = new Set(edits.map(saidOf));
  const open = [...new Map(notLogged(discovery, stored).map((edit) => identified(discovery, paths, edit))
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
  const subject = ({ digest, image }) => digest || image;
  const about = (other) => (subject(edit) ? subject(other) === subject(edit) : !subject(other) && other.action === edit.action && other.category === edit.category);
  if (later.some((other) => about(other) && other.time > edit.time)) return "A later edit says what counts.";
  const unheard = (word) => UNNAMED.test(stripped(word)) && !standing.find(word) && !standing.rejected.includes(standing.end(word));
  if (["move", "confirm"].includes(edit.action) && unheard(edit.value)) return `There is no category ${edit.value} in this round.`;
  return "";
}
