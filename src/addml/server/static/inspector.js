"use strict";

const byId = (id) => document.getElementById(id);
const view = byId("view");
let shown = null; // the content of the view: {job} or {model}
let lists = { runs: "", models: "" };

// Builds elements from text only, so that no value is interpreted as HTML.
function el(name, about, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(about ?? {})) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...content.flat().filter((one) => one !== null && one !== undefined));
  return made;
}

const number = (value, digits = 4) => (value === null || value === undefined ? "–" : Number(value.toPrecision(digits)).toLocaleString("en"));
const counted = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

let hiding = 0;
function fail(words) {
  byId("failure").textContent = words;
  byId("failure").hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => (byId("failure").hidden = true), 12000);
}

async function ask(path, about) {
  let answer;
  try {
    answer = await fetch(path, about);
  } catch {
    throw new Error("the server does not answer; is addml serve still running?");
  }
  if (answer.status === 204) return null;
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error.message);
  return found;
}

// Shows errors of `work` to the user.
const guarded = (work) => async (...args) => {
  try {
    await work(...args);
  } catch (error) {
    fail(error.message);
  }
};

// Runs and models ---------------------------------------------------------------------------------------------

function runItem(job) {
  const state = job.state === "done" ? `${job.seconds} s` : `${job.state}, ${job.seconds} s`;
  const by = job.model ? `, with ${job.model}` : "";
  return el("li", null,
    el("button", { class: "open", "data-key": `open ${job.id}`, "aria-current": shown?.job === job.id ? "true" : null, onclick: guarded(() => showRun(job.id)) },
      job.file, el("small", null, state + by)),
    el("button", { class: "away", "data-key": `away ${job.id}`, title: "stop the run and delete its results", "aria-label": `delete ${job.file}`,
      onclick: guarded(async () => {
        if (shown?.job === job.id) {
          shown = null;
          view.replaceChildren();
        }
        await ask(`api/v1/jobs/${job.id}`, { method: "DELETE" });
        await refresh();
      }) }, "×"));
}

function modelItem(model) {
  return el("li", null,
    el("button", { class: "open", "data-key": model.name, "aria-current": shown?.model === model.name ? "true" : null, onclick: guarded(() => showModel(model.name)) },
      model.name, el("small", null, `${counted(model.trained_rows, model.noun)}, ${counted(model.columns, "column")}`)));
}

// Lists are rebuilt every second during a run; the focused button keeps its focus.
function list(id, items) {
  const held = byId(id).contains(document.activeElement) ? document.activeElement.dataset.key : null;
  byId(id).replaceChildren(...items);
  if (held !== null) [...byId(id).querySelectorAll("button")].find((one) => one.dataset.key === held)?.focus();
}

async function refresh() {
  const [{ jobs }, { models }] = await Promise.all([ask("api/v1/jobs"), ask("api/v1/models")]);
  const runs = JSON.stringify([jobs, shown]), offered = JSON.stringify([models, shown]);
  if (runs !== lists.runs) list("runs", jobs.reverse().map(runItem));
  if (offered !== lists.models) {
    list("models", models.map(modelItem));
    const chosen = byId("model").value;
    byId("model").replaceChildren(byId("model").options[0],
      ...models.filter((one) => one.noun !== "image").map((one) => el("option", { value: one.name }, `Score it with ${one.name}`)));
    byId("model").value = models.some((one) => one.name === chosen) ? chosen : "";
    showOptions();
  }
  lists = { runs, models: offered };
  return jobs.some((job) => job.state === "waiting" || job.state === "running");
}

async function poll() {
  const busy = await refresh().catch((error) => fail(error.message));
  setTimeout(poll, busy ? 1000 : 5000);
}

// One run -----------------------------------------------------------------------------------------------------

async function showRun(id) {
  shown = { job: id };
  await follow(id);
}

async function follow(id) {
  const job = await ask(`api/v1/jobs/${id}`);
  if (shown?.job !== id) return; // the user has opened something else
  if (job.state === "waiting" || job.state === "running") {
    view.replaceChildren(el("p", { class: "hint" }, `${job.file}: ${job.state} …`));
    setTimeout(guarded(() => (shown?.job === id ? follow(id) : null)), 1000);
  } else if (job.state === "done") {
    view.replaceChildren(el("div", { class: "card" }, ...jobView(job)));
  } else {
    view.replaceChildren(el("div", { class: "card" }, el("h3", null, `${job.file} ${job.state}`), el("p", null, job.error?.message ?? "")));
  }
  await refresh();
}

function jobView(job) {
  const all = job.summary, noun = all.events ? "event" : "row";
  const head = all.events
    ? `${counted(all.events.length, "event")} in ${counted(all.rows, "step")}`
    : `${all.anomalies.toLocaleString("en")} of ${counted(all.rows, "row")} flagged`;
  const asking = job.made && !all.events ? el("div", { hidden: true }) : null;
  const about = asking && (async (row) => {
    asking.replaceChildren(...(await tryRow(job.made, row)));
    open("Try a row");
  });
  const given = asking && labelBar(job);
  const ranked = el("div", null, el("div", { class: "scroll" }, rankedTable(all.top, noun, about, given)), given?.bar);
  const report = el("iframe", { title: "report", src: job.files.report, hidden: true, sandbox: "allow-scripts allow-downloads" });
  const panels = { [`Ranked ${noun}s`]: ranked, Report: report };
  if (asking) panels["Try a row"] = asking;
  function open(name) {
    for (const tab of tabs) tab.setAttribute("aria-selected", String(tab.textContent === name));
    for (const [one, panel] of Object.entries(panels)) panel.hidden = one !== name;
  }
  const tabs = Object.keys(panels).map((name, place) => el("button", {
    role: "tab", "aria-selected": String(place === 0),
    onclick: guarded(async () => {
      open(name);
      if (panels[name] === asking && !asking.children.length) await about(null);
    }),
  }, name));
  return [
    el("h3", null, head),
    el("p", { class: "muted" }, `${job.file}, ${job.seconds} s; threshold ${number(all.threshold)} ${all.decided_by}`),
    el("p", { class: "muted" }, all.notes.join("; ")),
    el("div", { class: "tabs", role: "tablist" }, tabs, el("span", { class: "files" },
      el("a", { href: job.files.scored, download: `${job.file}.scored.csv` }, "Scored table"),
      job.files.model ? el("a", { href: job.files.model, download: `${job.file}.model.zip`, title: "model folder for addml score --model" }, "Model") : null)),
    ...Object.values(panels),
  ];
}

// The user's labels, {row: is an anomaly}, and the bar that trains again with them.
function labelBar(job) {
  const rows = (name) => job.options.filter(([key]) => key === name).flatMap(([, value]) => value.split(",").map(Number));
  const known = new Map([...rows("known_anomalies").map((row) => [row, true]), ...rows("known_normal").map((row) => [row, false])]);
  const numbers = (is) => [...known].filter(([, one]) => one === is).map(([row]) => row).sort((a, b) => a - b).join(",");
  const asked = () => ({ known_anomalies: numbers(true), known_normal: numbers(false) });
  const before = JSON.stringify(asked());
  const button = el("button", { class: "main", onclick: guarded(async () => {
    button.disabled = true;
    try {
      const next = await ask(`api/v1/jobs/${job.id}/again?${new URLSearchParams(asked())}`, { method: "POST" });
      await showRun(next.id);
    } finally {
      button.disabled = false;
    }
  }) });
  const show = () => {
    const changed = JSON.stringify(asked()) !== before;
    button.textContent = known.size ? `Train with ${counted(known.size, "answer")}` : "Train without answers";
    button.hidden = !changed;
    hint.textContent = changed ? "" : known.size ? `Trained with ${counted(known.size, "answer")}.` : "Do you know some of these rows? Answer yes or no and train again; a yes helps most.";
  };
  const hint = el("span", { class: "muted" }), bar = el("p", { class: "answers" }, button, hint);
  const choice = (row, is, word) => {
    const one = el("button", { class: "answer", "aria-pressed": String(known.get(row) === is), onclick: () => {
      if (known.get(row) === is) known.delete(row);
      else known.set(row, is);
      for (const other of one.parentElement.children) other.setAttribute("aria-pressed", String(other === one && known.has(row)));
      show();
    } }, word);
    return one;
  };
  show();
  return { bar, of: (row) => el("td", { class: "known" }, choice(row, true, "yes"), choice(row, false, "no")) };
}

function rankedTable(top, noun, about, given) {
  const ids = [...new Set(top.flatMap((one) => Object.keys(one.ids)))];
  const heads = ["Rank", noun === "row" ? "Row" : "Step", ...ids, "Score", "Probability", "Why", ...(given ? ["An anomaly?"] : [])];
  const numbers = new Set(["Rank", "Row", "Step", "Score", "Probability"]);
  const rows = top.map((one) => el("tr", { class: one.is_anomaly ? "strange" : null },
    el("td", { class: "number" }, String(one.rank)),
    el("td", { class: "number" }, about
      ? el("button", { class: "ask", title: "try other values for this row", onclick: guarded(() => about(one)) }, one.row.toLocaleString("en"))
      : one.row.toLocaleString("en")),
    ids.map((id) => el("td", { class: "id" }, String(one.ids[id] ?? ""))),
    el("td", { class: "number" }, number(one.score)),
    el("td", { class: "number" }, one.probability === null ? "–" : one.probability.toFixed(2)),
    el("td", { class: "reasons" }, one.reasons.map((reason) => reason.words).join("; ")),
    given?.of(one.row)));
  const line = el("tr", null, heads.map((head) => el("th", { class: numbers.has(head) ? "number" : ids.includes(head) ? "id" : head === "Why" ? null : "known" }, head)));
  return el("table", null, el("thead", null, line), el("tbody", null, rows));
}

// One model ---------------------------------------------------------------------------------------------------

const asText = (value) => (value === null || value === undefined ? "" : String(value));

async function showModel(name) {
  shown = { model: name };
  const content = await tryRow(name);
  if (shown?.model !== name) return;
  view.replaceChildren(el("div", { class: "card" }, ...content));
  await refresh();
}

const usualValue = ({ value }) => (typeof value === "number" ? String(Number(value.toPrecision(6))) : value ?? "");

// A form with the values of a ranked or a typical row; editing it updates the score.
async function tryRow(name, ranked = null) {
  const model = await ask(`api/v1/models/${encodeURIComponent(name)}`);
  const head = [el("h3", null, name), el("p", { class: "muted" },
    `trained on ${counted(model.trained_rows, model.noun)}; threshold ${number(model.threshold)} ${model.decided_by}`)];
  if (model.noun !== "row") {
    const way = model.noun === "image" ? "score a folder of images with addml score" : `upload a file and score it with ${name}`;
    return [...head, el("p", null, `This model scores ${model.noun}s: ${way}.`)];
  }
  const fields = model.usual.map((one) => [one, el("input", { name: one.column, value: ranked ? asText(ranked.values[one.column]) : usualValue(one), title: one.words, autocomplete: "off" })]);
  const verdict = el("div", null);
  let asked = 0;
  const judge = guarded(async () => {
    const mine = ++asked;
    const row = Object.fromEntries(fields.map(([one, field]) => [one.column, typed(one, field.value)]));
    const answer = await ask(`api/v1/models/${encodeURIComponent(name)}/score`, {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ rows: [row], all: true }) });
    if (mine === asked) verdict.replaceChildren(...verdictOf(answer));
  });
  let waiting = 0;
  const form = el("form", { class: "row", onsubmit: (event) => event.preventDefault(), oninput: () => {
    clearTimeout(waiting);
    waiting = setTimeout(judge, 250);
  } }, fields.map(([one, field]) => el("label", null, one.column, field, el("small", null, `usual: ${one.words}`))));
  await judge();
  return [...head, verdict, el("p", { class: "muted" }, `Change values of ${ranked ? `row ${ranked.row}` : "a typical row"} and watch the score.`), form];
}

function typed(one, value) {
  if (value.trim() === "") return null;
  if (one.kind === "number" && Number.isFinite(Number(value))) return Number(value);
  if (one.kind === "boolean" && /^(true|false)$/i.test(value)) return value.toLowerCase() === "true";
  return value;
}

function verdictOf({ threshold, results: [one] }) {
  return [
    el("div", { class: one.is_anomaly ? "verdict strange" : "verdict" }, el("b", null, one.is_anomaly ? "flagged" : "not flagged"),
      el("span", null, `score ${number(one.score)}, threshold ${number(threshold)}`),
      el("span", null, `probability ${one.probability.toFixed(2)}`), el("span", null, `p-value ${one.p_value.toPrecision(2)}`)),
    el("ul", { class: "why" }, one.reasons.map((reason) => el("li", null, reason.words))),
  ];
}

// Upload ------------------------------------------------------------------------------------------------------

const file = byId("file"), drop = byId("drop");
const showFileName = () => (byId("chosen").firstChild.textContent = file.files[0]?.name ?? "Drop a file here or choose one");
const showOptions = () => document.querySelectorAll(".detect").forEach((one) => (one.hidden = byId("model").value !== ""));
file.addEventListener("change", showFileName);
byId("model").addEventListener("change", showOptions);
for (const [name, over] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
  drop.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", over);
    if (name === "drop" && event.dataTransfer.files.length) {
      file.files = event.dataTransfer.files;
      showFileName();
    }
  });
}

byId("upload").addEventListener("submit", guarded(async (event) => {
  event.preventDefault();
  const one = file.files[0];
  if (!one) return fail("choose a file first");
  const options = [...byId("upload").querySelectorAll("details input")].filter((field) => field.value.trim() && !field.closest("[hidden]"));
  const query = new URLSearchParams({ name: one.name, model: byId("model").value });
  for (const option of options) query.set(option.name, option.value.trim());
  const button = byId("upload").querySelector("button");
  button.disabled = true;
  try {
    const job = await ask(`api/v1/jobs?${query}`, { method: "POST", body: one });
    await showRun(job.id);
  } finally {
    button.disabled = false;
  }
}));

poll();
