// Ranked rows: open details, go to a row, show one group.

function toggleDetails(row, isOpen) {
  const button = find(".opener button", row);
  if (!button) return;
  button.setAttribute("aria-expanded", String(isOpen));
  find("#" + button.getAttribute("aria-controls")).classList.toggle("open", isOpen);
}

function goToRow(rank) {
  const row = find("#rank-" + rank);
  if (!row) return;
  if (row.hidden) showRanks(null);
  toggleDetails(row, true);
  row.scrollIntoView({ block: "center" });
  row.focus({ preventScroll: true });
  row.classList.add("found");
  setTimeout(() => row.classList.remove("found"), 1600);
}

// Shows the rows with these ranks, or all rows for null.
function showRanks(ranks) {
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
      const isSelecting = String(getSelection()).length > 0;
      if (!button || (isSelecting && event.target !== button)) return;
      toggleDetails(row, button.getAttribute("aria-expanded") !== "true");
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
      showRanks(button.getAttribute("aria-pressed") === "true" ? null : new Set(button.dataset.ranks.split(" ")));
    });
  }
  const allDetails = find("#all-details");
  if (allDetails) {
    allDetails.hidden = !find(".opener button");
    allDetails.addEventListener("click", () => {
      const isOpen = allDetails.getAttribute("aria-pressed") !== "true";
      allDetails.setAttribute("aria-pressed", String(isOpen));
      allDetails.textContent = isOpen ? "Close all details" : "Open all details";
      for (const row of findings) toggleDetails(row, isOpen);
    });
  }
  find("#all-rows")?.addEventListener("click", () => showRanks(null));
  if (findings.length) toggleDetails(findings[0], true);
}
