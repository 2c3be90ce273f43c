// The studio's half of the page: edits go to the server at once and come back from it, and its events are heard here.

const served = data?.studio ?? null; // what the server has added to the data of the page
const live = {
  logged: [], // lines of the log, oldest first, undone ones and those that undo included
  outbox: [], // what the log does not have yet: { id, run, time, action, row, digest, category, value, saved }
  sending: false,
  timer: 0,
  waits: 0, // failures in a row
  words: "", // why nothing can be sent; "" = it can
  job: served?.job ?? null,
  jobs: served?.jobs ?? [],
  problem: served?.problem ?? "",
  look: served?.look ?? {}, // what the first look at a folder has found: { lines, groups }
  placement: served?.placement ?? null, // { run_id, edits, rows, ids, probability }: images placed anew by the answers so far
  pending: null, // one that the page does not show yet
  learned: null, // { words, moved, from } of the last one that it shows
  round: null, // { run_id, round, words } of a round that this page does not show
  alike: new Map(),
  same: new Map(), // image -> those that are so like it that one answer serves both
};
const SIMILAR = 0.95; // cosine, as in results/review_queue.py
const BATCH_MS = 250;
const MOST_SENT = 500;
const LONGEST_WAIT = 10_000;
const LONGEST_ANSWER = 10_000; // from then on nobody is there any more; what is sent twice counts once
const AWAY = "The studio does not answer. Your edits are kept in this browser, and are sent when it is back.";
const LOCKED = "The studio was started anew. Open the link that it has printed in its terminal, in this browser: your edits are kept, and are sent then.";

async function post(path, body, signal) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json", "X-Holotype": "1" }, body: JSON.stringify(body), signal });
  if (answer.ok) return answer.json();
  throw await refusal(answer);
}

/** An answer without data, as an error whose words can be shown. */
async function refusal(answer) {
  const text = await answer.text();
  let words = answer.status === 403 ? LOCKED : text;
  try {
    words = JSON.parse(text).words;
  } catch { /* not ours: the text itself */ }
  return Object.assign(new Error(words), { told: true });
}

const wordsOf = (error) => (error.told ? error.message : AWAY);

// -- the outbox: it lies in this browser until the server has synced it -------------------------------------

const OUTBOX = `holotype:outbox:${data ? [...(data.facts.earlier_runs ?? []), data.run_id][0] : ""}:`;
const ownBox = OUTBOX + crypto.randomUUID(); // each window has its own, so that none writes over another's

/** What windows that are closed have left; if one of them is still open, the same is sent twice and counts once. */
function adoptOutbox() {
  const found = [];
  for (const key of Object.keys(localStorage).filter((name) => name.startsWith(OUTBOX))) {
    try {
      found.push(...JSON.parse(localStorage.getItem(key)));
      localStorage.removeItem(key);
    } catch { /* not ours */ }
  }
  return found.filter((item) => item && typeof item.id === "string");
}

function keepOutbox() {
  const open = live.outbox.filter((item) => !item.saved).map(({ saved, ...item }) => item);
  try {
    if (open.length) localStorage.setItem(ownBox, JSON.stringify(open));
    else localStorage.removeItem(ownBox);
  } catch {
    toast("This browser has no room for unsent edits: leave the page open until they are saved.");
  }
}

const PERSON = "holotype:person";
/** Who corrects in this browser, "" = nobody has said so; it stands in the log. */
const person = () => localStorage.getItem(PERSON) ?? "";
const personField = () => h("label", { class: "person" }, "Your name, for the log ",
  h("input", { type: "text", maxlength: 60, value: person(), onchange: (event) => localStorage.setItem(PERSON, event.target.value.trim()) }));
const asItem = (edit) => ({ id: crypto.randomUUID(), run: edit.run_id, time: edit.time, action: edit.action,
  row: now.rows.get(edit.digest || edit.image)?.[0] ?? null, digest: edit.digest, category: edit.category, value: edit.value, by: person() });
const fromServer = ({ run, run_id = run, time, action, category, value, digest, by = "", row }) => ({ run_id, time, action, by,
  image: row === null || row === undefined ? "" : name(row), category, value, digest });

/** All edits of this round that count, those of the log first. */
function standingEdits() {
  const logged = new Set(live.logged.map(keyOf));
  const all = [...live.logged, ...live.outbox.map(fromServer).filter((edit) => !logged.has(keyOf(edit)))];
  return inEffect(all).filter((edit) => edit.run_id === data.run_id);
}

/** What was changed on the page goes into the outbox: new edits, and undo for those that are gone. */
function queueChanges() {
  const before = new Map(standingEdits().map((edit) => [keyOf(edit), edit]));
  const after = new Set(edits.map(keyOf));
  const gone = [...before].filter(([key]) => !after.has(key)).map(([, edit]) => edit);
  const time = new Date().toISOString();
  live.outbox.push(...edits.filter((edit) => !before.has(keyOf(edit))).map(asItem),
    ...gone.map((edit) => asItem({ ...edit, time, action: UNDO, value: edit.time })));
  keepOutbox();
  sendSoon(BATCH_MS);
}

function sendSoon(wait) {
  if (!live.timer && !live.sending && live.outbox.some((item) => !item.saved)) live.timer = setTimeout(send, wait);
  drawState();
}

async function send() {
  live.timer = 0;
  live.sending = true;
  const batch = live.outbox.filter((item) => !item.saved).slice(0, MOST_SENT);
  try {
    const { saved, refused } = await post("/api/edits", { edits: batch.map(({ saved: _, ...item }) => item) }, AbortSignal.timeout(LONGEST_ANSWER));
    const done = new Set(saved);
    live.outbox = live.outbox.filter(({ id }) => !Object.hasOwn(refused, id));
    live.outbox.forEach((item) => { item.saved ||= done.has(item.id); });
    Object.assign(live, { words: "", waits: 0 });
    keepOutbox();
    if (Object.keys(refused).length) {
      toast(Object.values(refused)[0]);
      follow();
    }
  } catch (error) {
    live.words = wordsOf(error);
    live.waits += 1;
  }
  live.sending = false;
  sendSoon(live.waits ? Math.min(LONGEST_WAIT, 500 * 2 ** live.waits) : 0);
}

/** Edits as log and outbox have them; drawn anew only where that is not what the page shows. */
function follow() {
  const list = standingEdits();
  const same = list.length === edits.length && list.every((edit, at) => keyOf(edit) === keyOf(edits[at]));
  edits = list; // also where they are the same: the log knows who made them
  if (same) return drawState();
  rebuild();
  show();
  return drawState();
}

// -- events of the server: all of them come in here ---------------------------------------------------------

const SERVER_EVENTS = {
  edits({ from, edits: lines }) {
    const heard = new Set(from ? live.logged.map(keyOf) : []);
    const fresh = lines.map(fromServer).filter((edit) => !heard.has(keyOf(edit)));
    live.logged = from ? [...live.logged, ...fresh] : fresh;
    const logged = new Set(live.logged.map(keyOf));
    live.outbox = live.outbox.filter((item) => !item.saved || !logged.has(keyOf(fromServer(item))));
    follow();
  },
  job({ job, jobs }) {
    const ended = live.job?.state === "running" && job && job.state !== "running" && job.state !== "stopping";
    Object.assign(live, { job, jobs });
    if (ended && !(job.name === "learn" && job.state === "done")) toast(`${job.title}: ${JOB_STATES[job.state]}.`);
    drawWork();
  },
  round(event) {
    if (data.first && event.run_id !== data.run_id) return location.replace("/"); // nothing can be lost here
    live.round = event.run_id === data.run_id ? null : event;
    drawState();
  },
  placement({ placement }) {
    if (placement && (placement.run_id !== data.run_id || JSON.stringify(placement) === JSON.stringify(live.pending ?? live.placement))) return;
    live.pending = placement;
    drawState();
  },
  look({ look }) {
    live.look = look;
    drawLook();
  },
  problem({ words }) {
    live.problem = words;
    drawState();
  },
};

function listen(after) {
  const source = new EventSource(`/events?after=${after}`);
  source.onopen = () => {
    clearTimeout(live.timer); // it is back: what waits is sent now
    Object.assign(live, { words: "", waits: 0, timer: 0 });
    sendSoon(0);
  };
  source.onmessage = (message) => {
    const event = JSON.parse(message.data);
    SERVER_EVENTS[event.type]?.(event);
  };
  source.onerror = async () => {
    live.words ||= AWAY;
    drawState();
    if (source.readyState !== EventSource.CLOSED) return; // it tries again by itself
    live.words = await refusalWords(source.url); // also who has nothing to send hears that the server is another one
    drawState();
    setTimeout(() => listen(0), 2000);
  };
}

/** What is said to whoever asks for events; they themselves do not tell. "" = nothing is wrong any more. */
async function refusalWords(address) {
  try {
    const answer = await fetch(address, { signal: AbortSignal.timeout(LONGEST_ANSWER) });
    if (!answer.ok) throw await refusal(answer);
    await answer.body.cancel(); // it would not end
    return "";
  } catch (error) {
    return wordsOf(error);
  }
}

/** Where images lie by the answers so far; applied when nothing that somebody looks at would jump. */
function takePlacement() {
  if (!live.pending) return;
  const before = now.category;
  [live.placement, live.pending] = [live.pending, null];
  images.probability = live.placement.probability;
  rebuild();
  const moved = [...before.keys()].filter((i) => before[i] !== now.category[i]);
  if (queue.changes.length) queue.changes[queue.changes.length - 1] += moved.length;
  live.learned = { answers: live.placement.edits, moved, from: moved.map((i) => now.categories[before[i]]?.name ?? "no category") };
  toast(`${plural(live.placement.edits, "edit")} learned from: ${plural(moved.length, "image")} moved.`);
  drawState();
}

// -- what the page shows of it ------------------------------------------------------------------------------

const unsaved = () => live.outbox.filter((item) => !item.saved).length;

function editsLabel() {
  const count = edits.length ? plural(edits.length, "edit") : "No edits";
  const open = unsaved();
  if (open) return live.words ? `${count} · ${number(open)} not saved` : `${count} · saving`;
  return edits.length ? `${count} · saved` : count;
}

/** The button at the top, and sentences at the bottom that push nothing aside. */
function drawState() {
  const button = document.getElementById("edits-button");
  if (button.textContent !== editsLabel()) button.textContent = editsLabel();
  button.dataset.state = !unsaved() ? "saved" : live.words ? "away" : "saving";
  const notices = [served.read_only, live.problem, live.words].filter(Boolean).map((words) => h("p", {}, words));
  if (live.round) {
    notices.push(h("p", {}, h("strong", {}, `Round ${live.round.round} is here: `), `${live.round.words || "the first one"}. `,
      h("button", { type: "button", class: "primary", onclick: () => { location.hash = "#rounds"; location.reload(); } }, "Look at it")));
  }
  if (live.pending) {
    notices.push(h("p", {}, `${plural(live.pending.edits, "edit")} learned from. `,
      h("button", { type: "button", onclick: () => { takePlacement(); show(); } }, "Place the other images anew")));
  }
  const place = document.getElementById("notices") ?? document.body.appendChild(h("div", { id: "notices", role: "status" }));
  const text = notices.map((notice) => notice.textContent).join("\n");
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  refill(place, notices);
}

const pictureAt = (kind, i) => `/${kind}/${i}?run=${coded(data.run_id)}`;

if (served) {
  studio = {
    Gallery: VirtualGallery,
    menu: data.first ? ["start"] : null,
    readOnly: () => served.read_only || (data.first ? "There is nothing to correct before the first round." : ""),
    address: (i) => (images.problem[i] ? null : pictureAt("image", i)),
    thumb(i, cover, lazy) {
      if (images.problem[i]) return h("span", { class: "thumb missing", title: "no picture" }, "?");
      const element = h("span", { class: cover ? "thumb alone cover" : "thumb alone" });
      element.dataset.picture = pictureAt("thumb", i);
      if (lazy) staying.observe(element);
      else element.style.backgroundImage = `url("${element.dataset.picture}")`;
      return element;
    },
    load() {
      live.logged = served.edits.map(fromServer);
      live.outbox = adoptOutbox();
      edits = standingEdits();
      if (live.placement) images.probability = live.placement.probability;
    },
    placement: () => live.placement,
    arrive: takePlacement,
    store: queueChanges,
    editsLabel,
    editsLead: () => h("p", { class: "lead" }, served.read_only || `They are in the run folder as soon as they are saved${unsaved() ? `; ${number(unsaved())} are on their way` : ""}. The next round learns from them.`, personField()),
    views: { start: [data.first ? "Start" : "", () => startView()], rounds: ["Rounds", () => roundsView()], questions: ["Questions", () => questionsView()], picture: ["Search", () => pictureView()], check: ["", (id) => checkView(id)], number: ["", () => numberView()] },
    keys: { "in Questions": "y yes, c only the first six, n no, 1 to 9 one of the categories, Enter a name, x skip, u undo" },
    key: (key) => place()[0] === "questions" && questionKey(key),
    badge: (key) => (key === "rounds" && isRunning() ? h("span", { class: "n" }, progressWords(live.job) || "…") : null),
    alike: (i) => live.alike.get(i) ?? [],
    async lookForAlike(i) {
      if (live.alike.has(i)) return;
      live.alike.set(i, []);
      images.alike.why = "Looking…";
      try {
        const answer = await fetch(`/api/alike/${i}?run=${coded(data.run_id)}`);
        const { rows, likeness } = answer.ok ? await answer.json() : { rows: [], likeness: [] };
        live.alike.set(i, rows);
        live.same.set(i, rows.filter((_, at) => likeness[at] >= SIMILAR));
      } catch {
        live.alike.delete(i);
      }
      images.alike.why = live.alike.get(i)?.length ? "" : "Nobody knows which images look like it.";
      if (place()[0] === "alike") show();
    },
    start() {
      const isLink = () => location.hash.startsWith("#t=");
      if (isLink()) history.replaceState(null, "", "/"); // this browser is in already
      addEventListener("hashchange", () => isLink() && location.reload()); // the link of another start: to its door
      keepOutbox();
      listen(served.revision);
      drawState();
    },
  };
}
