// Edits that were made in the report of an earlier round and never reached the run folder: this page offers them.

let stored = []; // by round: { round, run, edits }
let putOff = false;

function readStore(run) {
  try {
    const list = JSON.parse(localStorage.getItem(storeOf(run)) || "[]");
    const whole = (edit) => [...REQUIRED, "digest"].every((column) => typeof edit[column] === "string");
    return Array.isArray(list) ? list.map((edit) => ({ digest: "", ...edit })).filter(whole) : [];
  } catch {
    return [];
  }
}

function writeStore(run, list) {
  try {
    if (list.length) localStorage.setItem(storeOf(run), JSON.stringify(list));
    else localStorage.removeItem(storeOf(run));
  } catch { /* it could not be read either */ }
}

/** What the run folder has by now is forgotten; all else stays until somebody decides. */
function loadEarlier() {
  stored = (data.facts.earlier_runs ?? []).map((run, at) => ({ round: at + 1, run, edits: readStore(run) }))
    .filter((one) => one.edits.length)
    .map((one) => {
      const kept = notLogged(data, one.edits);
      if (kept.length < one.edits.length) writeStore(one.run, kept);
      return { ...one, edits: kept };
    });
}

const offer = () => carryOver(data, stored.flatMap((one) => one.edits), edits);

/** Shown above every view until it is decided or put off; null where there is nothing to offer. */
function earlierPanel() {
  if (putOff || !stored.some((one) => one.edits.length)) return null;
  const { take, left } = offer();
  const n = take.length + left.length;
  if (!n) return null;
  const rounds = stored.filter((one) => one.edits.length).map((one) => one.round);
  return h("aside", { class: "earlier", "aria-label": "Edits of an earlier round" },
    h("p", {}, h("strong", {}, `${plural(n, "edit")} of ${rounds.length === 1 ? "round" : "rounds"} ${rounds.join(" and ")} never reached the run folder. `),
      take.length ? `${number(take.length)} can be taken over into this round${left.length ? `; ${number(left.length)} cannot.` : "."}`
        : `${n === 1 ? "It does not fit" : "None of them fits"} this round.`),
    left.length ? h("details", { open: !take.length }, h("summary", {}, `Why ${number(left.length)} cannot`),
      h("ul", { class: "log" }, left.map(([edit, why]) => h("li", {}, editWords(edit), h("em", {}, ` ${why}`))))) : null,
    h("div", { class: "buttons" },
      take.length ? h("button", { type: "button", class: "primary", onclick: takeOver }, `Take over ${plural(take.length, "edit")}`) : null,
      h("button", { type: "button", title: "As they were made: holotype discover --edits lets them count in the next round", onclick: () => download(asMade()) }, `Export ${n === 1 ? "it" : `all ${number(n)}`}`),
      h("button", { type: "button", onclick: forget }, "Forget"),
      h("button", { type: "button", class: "quiet", onclick: () => { putOff = true; show(); } }, "Later")));
}

/** Those of the offer with the run in whose report they were made. */
function asMade() {
  const { take, left } = offer();
  const open = new Set([...take, ...left.map(([edit]) => edit)].map(saidOf));
  const paths = pathsOf(data);
  return stored.flatMap((one) => one.edits).filter((edit) => open.has(saidOf(identified(data, paths, edit))));
}

function takeOver() {
  const { take, left } = offer();
  edits.push(...take);
  changed();
  const taken = new Set(take.map(keyOf));
  toast(`${plural(take.length, "edit")} taken over${left.length ? `; ${number(left.length)} could not be` : ""}.`, () => {
    edits = edits.filter((edit) => !taken.has(keyOf(edit)));
    changed();
    toast("Undone.");
  });
}

function forget() {
  const before = stored;
  stored.forEach((one) => writeStore(one.run, []));
  stored = [];
  show();
  toast("Forgotten.", () => {
    stored = before;
    stored.forEach((one) => writeStore(one.run, one.edits));
    show();
    toast("They are back.");
  });
}
