// Rounds: the job that runs, what can be started, and what the last round has changed.

const JOB_STATES = { running: "running", stopping: "stopping; it saves its state", done: "done", stopped: "stopped; start it again to go on", failed: "failed" };
const SHOWN_MOVES = 12;

const isRunning = () => live.job?.name !== "learn" && (live.job?.state === "running" || live.job?.state === "stopping");

/** How far the phase is, as far as the job itself says so. */
const progressWords = (job) => (job.steps ? `${Math.floor((100 * (job.step ?? 0)) / job.steps)} %` : "");

function timeLeft(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 90) return `about ${Math.max(1, Math.round(seconds))} s left`;
  return seconds < 5400 ? `about ${Math.round(seconds / 60)} min left` : `about ${(seconds / 3600).toFixed(1)} h left`;
}

async function ask(wish) {
  try {
    live.job = (await post("/api/job", wish)).job;
    drawWork();
  } catch (error) {
    toast(error.told ? error.message : AWAY);
  }
}

/** The loss of the training that is on its way. */
function lossCurve(points) {
  if (points.length < 2) return null;
  const [W, H, P] = [320, 96, 8];
  const [steps, losses] = [points.map(([step]) => step), points.map(([, loss]) => loss)];
  const scale = (values, low, high) => (value) => low + ((value - Math.min(...values)) / (Math.max(...values) - Math.min(...values) || 1)) * (high - low);
  const [x, y] = [scale(steps, P, W - P), scale(losses, H - P, P)];
  return h("figure", { class: "curve" }, h("figcaption", {}, `Loss: ${losses.at(-1).toFixed(3)} after ${plural(steps.at(-1), "step")}`),
    h("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Loss, from ${losses[0].toFixed(3)} to ${losses.at(-1).toFixed(3)}` },
      h("line", { class: "axis", x1: P, x2: W - P, y1: H - P, y2: H - P }),
      h("polyline", { class: "line", points: points.map(([step, loss]) => `${x(step)},${y(loss)}`).join(" ") })));
}

function jobPanel(job) {
  const runs = isRunning();
  const facts = [job.phase, progressWords(job), timeLeft(job.seconds_left)].filter(Boolean).join(", ");
  return h("section", { class: "job" }, h("h2", {}, `${data.first ? "First round" : job.title}: ${JOB_STATES[job.state]}`),
    // above all that grows while a job runs
    runs && job.own ? h("button", { type: "button", disabled: job.state === "stopping", onclick: () => ask({ stop: true }) }, "Stop") : null,
    runs ? h("progress", { "aria-label": job.phase || job.title, max: job.steps ?? null, value: job.steps ? job.step ?? 0 : null }) : null,
    runs && facts ? h("p", { class: "facts-line" }, facts) : null,
    runs ? lossCurve(job.curve) : null,
    job.result ? h("p", {}, "It lies in the run folder: ", h("code", {}, job.result)) : null,
    job.lines.length ? h("pre", { class: "said" }, job.lines.slice(runs ? -3 : -12).join("\n")) : null);
}

/** Everything that can be started; a reason stands beside what cannot. */
function jobButtons() {
  const reason = (why_not) => served.read_only || (isRunning() ? "Another job is running." : why_not);
  const button = ({ name: job, title, why_not }) => h("li", {},
    h("button", { type: "button", class: job === "discover" ? "primary" : "", disabled: Boolean(reason(why_not)), onclick: () => ask({ start: job }) }, title),
    reason(why_not) && !isRunning() ? h("span", { class: "soft" }, ` ${reason(why_not)}`) : null);
  return h("ul", { class: "jobs" }, live.jobs.filter(({ name: job }) => job !== "take-back").map(button));
}

function workPanel() {
  const since = edits.length ? `${plural(edits.length, "edit")} of this round will take part in the next one.` : "There are no edits in this round yet.";
  return [h("p", { class: "lead" }, since), live.job ? jobPanel(live.job) : null, jobButtons()];
}

/** The parts that follow the job, wherever they are shown. */
function drawWork() {
  const work = document.getElementById("work");
  if (work?.matches(":active")) return void setTimeout(drawWork, 100); // a button that is replaced while it is pressed is not clicked
  if (work) refill(work, (data.first ? firstPanel() : workPanel()).filter(Boolean));
  const badge = studio.badge("rounds");
  const entry = document.querySelector('#nav a[href="#rounds"]');
  if (entry && (entry.querySelector(".n")?.textContent ?? "") !== (badge?.textContent ?? "")) entry.replaceChildren(VIEWS.rounds[0], ...(badge ? [badge] : []));
}

/** Images that were put elsewhere, the largest moves first. */
function moves({ moved, from }, placed) {
  const groups = new Map();
  moved.forEach((i, at) => {
    const to = placed.categories[placed.category[i]]?.name ?? "no category";
    const key = `${from[at]} → ${to}`;
    groups.set(key, [...(groups.get(key) ?? []), i]);
  });
  return [...groups].sort((a, b) => b[1].length - a[1].length).slice(0, SHOWN_MOVES).map(([title, list]) =>
    h("details", { class: "move" }, h("summary", {}, `${title} (${number(list.length)})`), galleryOf(list, { title }).element));
}

/** What the answers have moved when they were learned from last. */
function learnedPanel() {
  if (!live.learned) return null;
  return section("What your answers have moved", h("p", { class: "big" }, `${plural(live.learned.moved.length, "image")} after ${plural(live.learned.answers, "edit")}`), moves(live.learned, now));
}

function differencePanel() {
  const change = data.difference;
  if (!change) return h("p", { class: "soft" }, "This is the first round: there is nothing to compare it with.");
  const why = live.jobs.find(({ name: job }) => job === "take-back")?.why_not;
  return section(`What round ${change.round} has changed`,
    h("p", { class: "big" }, change.words),
    h("ul", { class: "changes" }, change.lines.map((line) => h("li", {}, line))),
    moves(change, { categories: data.categories, category: images.category }), change.more ? h("p", { class: "soft" }, `${number(change.more)} more have moved.`) : null,
    why ? null : h("button", { type: "button", onclick: () => ask({ start: "take-back" }) }, `Take back round ${change.round}`));
}

function roundsView() {
  return [h("h1", {}, data.facts.round ? `Round ${data.facts.round}` : "This run"), h("div", { id: "work" }, workPanel()), learnedPanel(), differencePanel()];
}
