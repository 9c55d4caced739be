// Ranked rows: open details, go to a row, show one group.

function open(row, yes) {
  const button = find(".opener button", row);
  if (!button) return;
  button.setAttribute("aria-expanded", String(yes));
  find("#" + button.getAttribute("aria-controls")).classList.toggle("open", yes);
}

function goToRow(rank) {
  const row = find("#rank-" + rank);
  if (!row) return;
  if (row.hidden) onlyRanks(null);
  open(row, true);
  row.scrollIntoView({ block: "center" });
  row.focus({ preventScroll: true });
  row.classList.add("found");
  setTimeout(() => row.classList.remove("found"), 1600);
}

function onlyRanks(ranks) {
  for (const row of all(".ranked > tbody > tr")) row.hidden = ranks !== null && !ranks.has(row.dataset.rank);
  const chosen = ranks && [...ranks].join(" ");
  for (const button of all(".groups button")) {
    button.setAttribute("aria-pressed", String(button.dataset.ranks === chosen));
  }
  find("#all-rows").hidden = ranks === null;
}

function setUpRows() {
  const findings = all(".finding");
  for (const row of findings) {
    row.addEventListener("click", (event) => {
      const button = find(".opener button", row);
      const selecting = String(getSelection()).length > 0;
      if (button && (!selecting || event.target === button)) open(row, button.getAttribute("aria-expanded") !== "true");
    });
  }
  for (const link of all(".row-link")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      goToRow(Number(link.hash.slice("#rank-".length)));
    });
  }
  for (const button of all(".groups button")) {
    button.disabled = !button.dataset.ranks;
    button.addEventListener("click", () => {
      onlyRanks(button.getAttribute("aria-pressed") === "true" ? null : new Set(button.dataset.ranks.split(" ")));
    });
  }
  const every = find("#all-details"), rest = find("#all-rows");
  if (every) {
    every.hidden = !find(".opener button");
    every.addEventListener("click", () => {
      const yes = every.getAttribute("aria-pressed") !== "true";
      every.setAttribute("aria-pressed", String(yes));
      every.textContent = yes ? "Close all details" : "Open all details";
      for (const row of findings) open(row, yes);
    });
  }
  if (rest) rest.addEventListener("click", () => onlyRanks(null));
  if (findings.length) open(findings[0], true);
}
