"use strict";

const byId = (id) => document.getElementById(id);
const view = byId("view");
let shown = null; // what the view shows: {job} or {model}
let lists = { runs: "", models: "" };

// Builds elements from text only, so that no value is interpreted as HTML.
function el(name, attributes, ...content) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...content.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const number = (value, digits = 4) => (value === null || value === undefined ? "–" : Number(value.toPrecision(digits)).toLocaleString("en"));
const counted = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

let hideTimer = 0;
function showError(message) {
  byId("failure").textContent = message;
  byId("failure").hidden = false;
  clearTimeout(hideTimer);
  hideTimer = setTimeout(() => (byId("failure").hidden = true), 12000);
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("the server does not answer; is addml serve still running?");
  }
  if (response.status === 204) return null;
  const body = await response.json();
  if (!response.ok) throw new Error(body.error.message);
  return body;
}

// Wraps an event handler: its errors are shown to the user.
const guarded = (handler) => async (...args) => {
  try {
    await handler(...args);
  } catch (error) {
    showError(error.message);
  }
};

// Runs and models ---------------------------------------------------------------------------------------------

function runItem(job) {
  const state = job.state === "done" ? `${job.seconds} s` : `${job.state}, ${job.seconds} s`;
  const by = job.model ? `, with ${job.model}` : "";
  return el("li", null,
    el("button", { class: "open", "data-key": `open ${job.id}`, "aria-current": shown?.job === job.id ? "true" : null, onclick: guarded(() => showRun(job.id)) },
      job.file, el("small", null, state + by)),
    el("button", { class: "delete", "data-key": `delete ${job.id}`, title: "stop the run and delete its results", "aria-label": `delete ${job.file}`,
      onclick: guarded(async () => {
        if (shown?.job === job.id) {
          shown = null;
          view.replaceChildren();
        }
        await request(`api/v1/jobs/${job.id}`, { method: "DELETE" });
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
  const focused = byId(id).contains(document.activeElement) ? document.activeElement.dataset.key : null;
  byId(id).replaceChildren(...items);
  if (focused !== null) [...byId(id).querySelectorAll("button")].find((button) => button.dataset.key === focused)?.focus();
}

async function refresh() {
  const [{ jobs }, { models }] = await Promise.all([request("api/v1/jobs"), request("api/v1/models")]);
  const current = { runs: JSON.stringify([jobs, shown]), models: JSON.stringify([models, shown]) };
  if (current.runs !== lists.runs) list("runs", jobs.reverse().map(runItem));
  if (current.models !== lists.models) {
    list("models", models.map(modelItem));
    const chosen = byId("model").value;
    byId("model").replaceChildren(byId("model").options[0],
      ...models.filter((model) => model.noun !== "image").map(({ name }) => el("option", { value: name }, `Score it with ${name}`)));
    byId("model").value = models.some((model) => model.name === chosen) ? chosen : "";
    showOptions();
  }
  lists = current;
  return jobs.some((job) => job.state === "waiting" || job.state === "running");
}

async function poll() {
  const busy = await refresh().catch((error) => showError(error.message));
  setTimeout(poll, busy ? 1000 : 5000);
}

// One run -----------------------------------------------------------------------------------------------------

async function showRun(id) {
  shown = { job: id };
  await follow(id);
}

async function follow(id) {
  const job = await request(`api/v1/jobs/${id}`);
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
  const findings = job.summary, noun = findings.events ? "event" : "row";
  const title = findings.events
    ? `${counted(findings.events.length, "event")} in ${counted(findings.rows, "step")}`
    : `${findings.anomalies.toLocaleString("en")} of ${counted(findings.rows, "row")} flagged`;
  const tryPanel = job.made && !findings.events ? el("div", { hidden: true }) : null;
  const openRow = tryPanel && (async (row) => {
    tryPanel.replaceChildren(...(await tryRow(job.made, row)));
    open("Try a row");
  });
  const labels = tryPanel && labelBar(job);
  const ranked = el("div", null, el("div", { class: "scroll" }, rankedTable(findings.top, noun, openRow, labels)), labels?.bar);
  const report = el("iframe", { title: "report", src: job.files.report, hidden: true, sandbox: "allow-scripts allow-downloads" });
  const panels = { [`Ranked ${noun}s`]: ranked, Report: report };
  if (tryPanel) panels["Try a row"] = tryPanel;
  function open(name) {
    for (const tab of tabs) tab.setAttribute("aria-selected", String(tab.textContent === name));
    for (const [key, panel] of Object.entries(panels)) panel.hidden = key !== name;
  }
  const tabs = Object.keys(panels).map((name, index) => el("button", {
    role: "tab", "aria-selected": String(index === 0),
    onclick: guarded(async () => {
      open(name);
      if (panels[name] === tryPanel && !tryPanel.children.length) await openRow(null);
    }),
  }, name));
  return [
    el("h3", null, title),
    el("p", { class: "muted" }, `${job.file}, ${job.seconds} s; threshold ${number(findings.threshold)} ${findings.decided_by}`),
    el("p", { class: "muted" }, findings.notes.join("; ")),
    el("div", { class: "tabs", role: "tablist" }, tabs, el("span", { class: "files" },
      el("a", { href: job.files.scored, download: `${job.file}.scored.csv` }, "Scored table"),
      job.files.model ? el("a", { href: job.files.model, download: `${job.file}.model.zip`, title: "model folder for addml score --model" }, "Model") : null)),
    ...Object.values(panels),
  ];
}

// The buttons that label rows, and the bar that trains again with the labels.
function labelBar(job) {
  const rows = (name) => job.options.filter(([key]) => key === name).flatMap(([, value]) => value.split(",").map(Number));
  const labels = new Map([...rows("known_anomalies").map((row) => [row, true]), ...rows("known_normal").map((row) => [row, false])]);
  const rowsWith = (label) => [...labels].filter(([, other]) => other === label).map(([row]) => row).sort((a, b) => a - b).join(",");
  const options = () => ({ known_anomalies: rowsWith(true), known_normal: rowsWith(false) });
  const initial = JSON.stringify(options());
  const button = el("button", { class: "main", onclick: guarded(async () => {
    button.disabled = true;
    try {
      const next = await request(`api/v1/jobs/${job.id}/again?${new URLSearchParams(options())}`, { method: "POST" });
      await showRun(next.id);
    } finally {
      button.disabled = false;
    }
  }) });
  const show = () => {
    const changed = JSON.stringify(options()) !== initial;
    const answers = labels.size ? `with ${counted(labels.size, "answer")}` : "without answers";
    button.textContent = `Train ${answers}`;
    button.hidden = !changed;
    if (changed) hint.textContent = "";
    else hint.textContent = labels.size ? `Trained ${answers}.` : "Do you know some of these rows? Answer yes or no and train again; a yes helps most.";
  };
  const hint = el("span", { class: "muted" }), bar = el("p", { class: "answers" }, button, hint);
  const choice = (row, label, text) => {
    const pressed = el("button", { class: "answer", "aria-pressed": String(labels.get(row) === label), onclick: () => {
      if (labels.get(row) === label) labels.delete(row);
      else labels.set(row, label);
      for (const other of pressed.parentElement.children) other.setAttribute("aria-pressed", String(other === pressed && labels.has(row)));
      show();
    } }, text);
    return pressed;
  };
  show();
  return { bar, cell: (row) => el("td", { class: "known" }, choice(row, true, "yes"), choice(row, false, "no")) };
}

function rankedTable(top, noun, openRow, labels) {
  const ids = [...new Set(top.flatMap((row) => Object.keys(row.ids)))];
  const headings = [["Rank", "number"], [noun === "row" ? "Row" : "Step", "number"], ...ids.map((id) => [id, "id"]),
    ["Score", "number"], ["Probability", "number"], ["Why", null], ...(labels ? [["An anomaly?", "known"]] : [])];
  const rows = top.map((ranked) => el("tr", { class: ranked.is_anomaly ? "strange" : null },
    el("td", { class: "number" }, String(ranked.rank)),
    el("td", { class: "number" }, openRow
      ? el("button", { class: "ask", title: "try other values for this row", onclick: guarded(() => openRow(ranked)) }, ranked.row.toLocaleString("en"))
      : ranked.row.toLocaleString("en")),
    ids.map((id) => el("td", { class: "id" }, String(ranked.ids[id] ?? ""))),
    el("td", { class: "number" }, number(ranked.score)),
    el("td", { class: "number" }, ranked.probability === null ? "–" : ranked.probability.toFixed(2)),
    el("td", { class: "reasons" }, ranked.reasons.map((reason) => reason.words).join("; ")),
    labels?.cell(ranked.row)));
  const header = el("tr", null, headings.map(([heading, kind]) => el("th", { class: kind }, heading)));
  return el("table", null, el("thead", null, header), el("tbody", null, rows));
}

// One model ---------------------------------------------------------------------------------------------------

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
  const model = await request(`api/v1/models/${encodeURIComponent(name)}`);
  const header = [el("h3", null, name), el("p", { class: "muted" },
    `trained on ${counted(model.trained_rows, model.noun)}; threshold ${number(model.threshold)} ${model.decided_by}`)];
  if (model.noun !== "row") {
    const remedy = model.noun === "image" ? "score a folder of images with addml score" : `upload a file and score it with ${name}`;
    return [...header, el("p", null, `This model scores ${model.noun}s: ${remedy}.`)];
  }
  const inputs = model.usual.map((usual) => [usual, el("input", { name: usual.column, value: ranked ? String(ranked.values[usual.column] ?? "") : usualValue(usual), title: usual.words, autocomplete: "off" })]);
  const verdict = el("div", null);
  let latest = 0; // number of the last request: earlier ones may be answered later
  const score = guarded(async () => {
    const current = ++latest;
    const row = Object.fromEntries(inputs.map(([usual, input]) => [usual.column, parsedValue(input.value, usual.kind)]));
    const response = await request(`api/v1/models/${encodeURIComponent(name)}/score`, {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ rows: [row], all: true }) });
    if (current === latest) verdict.replaceChildren(...verdictOf(response));
  });
  let timer = 0;
  const form = el("form", { class: "row", onsubmit: (event) => event.preventDefault(), oninput: () => {
    clearTimeout(timer);
    timer = setTimeout(score, 250);
  } }, inputs.map(([usual, input]) => el("label", null, usual.column, input, el("small", null, `usual: ${usual.words}`))));
  await score();
  return [...header, verdict, el("p", { class: "muted" }, `Change values of ${ranked ? `row ${ranked.row}` : "a typical row"} and watch the score.`), form];
}

function parsedValue(text, kind) {
  if (text.trim() === "") return null;
  if (kind === "number" && Number.isFinite(Number(text))) return Number(text);
  if (kind === "boolean" && /^(true|false)$/i.test(text)) return text.toLowerCase() === "true";
  return text;
}

function verdictOf({ threshold, results: [result] }) {
  return [
    el("div", { class: result.is_anomaly ? "verdict strange" : "verdict" }, el("b", null, result.is_anomaly ? "flagged" : "not flagged"),
      el("span", null, `score ${number(result.score)}, threshold ${number(threshold)}`),
      el("span", null, `probability ${result.probability.toFixed(2)}`), el("span", null, `p-value ${result.p_value.toPrecision(2)}`)),
    el("ul", { class: "why" }, result.reasons.map((reason) => el("li", null, reason.words))),
  ];
}

// Upload ------------------------------------------------------------------------------------------------------

const file = byId("file"), drop = byId("drop");
const showFileName = () => (byId("chosen").firstChild.textContent = file.files[0]?.name ?? "Drop a file here or choose one");
const showOptions = () => document.querySelectorAll(".detect").forEach((option) => (option.hidden = byId("model").value !== ""));
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
  const chosen = file.files[0];
  if (!chosen) return showError("choose a file first");
  const options = [...byId("upload").querySelectorAll("details input")].filter((input) => input.value.trim() && !input.closest("[hidden]"));
  const query = new URLSearchParams({ name: chosen.name, model: byId("model").value });
  for (const option of options) query.set(option.name, option.value.trim());
  const button = byId("upload").querySelector("button");
  button.disabled = true;
  try {
    const job = await request(`api/v1/jobs?${query}`, { method: "POST", body: chosen });
    await showRun(job.id);
  } finally {
    button.disabled = false;
  }
}));

poll();
