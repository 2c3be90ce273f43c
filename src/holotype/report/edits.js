// Corrections: a list of edits that this browser keeps, and how things stand with them (corrections.js).

/** Where this browser keeps the edits of a round. A mailed report is another page: it calls images by other names. */
const storeOf = (run) => `holotype:edits:${run}${data.mailed ? ":mailed" : ""}`;
const STORE = data ? storeOf(data.run_id) : "";
const held = new Set(data ? data.log.map(asEdit).map(keyOf) : []); // what the run folder has already
let edits = [];
const listeners = [];

function loadEdits() {
  try {
    const paths = pathsOf(data);
    edits = JSON.parse(localStorage.getItem(STORE) || "[]").map((edit) => identified(data, paths, { digest: "", ...edit })).filter((edit) => !held.has(keyOf(edit)));
  } catch {
    edits = [];
  }
}

function storeEdits() {
  try {
    localStorage.setItem(STORE, JSON.stringify(edits));
  } catch {
    toast("This browser cannot keep edits between visits: export them before you close the page.");
  }
}

function rebuild() {
  now = applyEdits(data, edits, studio?.placement());
}

function changed(rebuilt = false) {
  (studio?.store ?? storeEdits)();
  if (!rebuilt) rebuild();
  listeners.forEach((listener) => listener());
}

/** Edits made together carry the same time and are undone together. Those that do not fit are told and forgotten. */
function addEdits(list, message) {
  if (studio?.readOnly()) return toast(studio.readOnly());
  const time = new Date().toISOString();
  const before = edits.length;
  edits.push(...list.map((edit) => ({ run_id: data.run_id, time, image: "", category: "", value: "", digest: "", ...edit })));
  rebuild();
  const { problems } = now;
  const problem = problems.find((words, at) => at >= before && words);
  edits = edits.filter((edit, at) => at < before || !problems[at]);
  if (problem) toast(problem);
  else if (message) toast(message, undo);
  changed(!problem);
  return !problem;
}

function undo() {
  if (studio?.readOnly()) return toast(studio.readOnly());
  if (!edits.length) return toast("There is nothing to undo.");
  const time = edits[edits.length - 1].time;
  const undone = edits.filter((edit) => edit.time === time).flatMap((edit) => now.rows.get(edit.digest || edit.image) ?? []);
  edits = edits.filter((edit) => edit.time !== time);
  changed();
  toast("Undone.");
  return goOn({ undone });
}

/** bytes: of the file, since one that is not UTF-8 must not come in with its signs replaced. */
function importCsv(bytes) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return toast("This file is not UTF-8 text; save it as CSV UTF-8.");
  }
  const { edits: read, problem } = readEdits(text);
  if (problem) return toast(problem);
  const paths = pathsOf(data);
  const own = read.filter((edit) => edit.run_id === data.run_id).map((edit) => identified(data, paths, edit));
  const have = new Set([...held, ...edits.map(keyOf)]);
  const fresh = [...new Map(own.map((edit) => [keyOf(edit), edit])).values()].filter((edit) => !have.has(keyOf(edit)));
  edits.push(...fresh);
  changed();
  const foreign = read.length - own.length;
  return toast(`${plural(fresh.length, "edit")} imported, ${plural(own.length - fresh.length, "was", "were")} here already` +
    (foreign ? `; ${plural(foreign, "belongs to another run and was", "belong to another run and were")} left out.` : "."));
}

function exportCsv() {
  download(edits);
  toast(`${plural(edits.length, "edit")} exported. ${data.mailed ? "Send the file to whoever sent you this report." : "Next: holotype report RUN --edits edits.csv"}`);
}

function download(list) {
  const address = URL.createObjectURL(new Blob([toCsv(list)], { type: "text/csv;charset=utf-8" }));
  const anchor = h("a", { href: address, download: "edits.csv" });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
