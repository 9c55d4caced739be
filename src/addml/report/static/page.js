// Theme, table of contents, printing, and start-up.

const drawAll = () => { for (const chart of charts) chart.draw(); };
const wantsDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : wantsDark.matches);
const showTheme = () => find("#theme").setAttribute("aria-pressed", String(isDark()));

function setUpTheme() {
  showTheme();
  find("#theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("addml-theme", root.dataset.theme); } catch { /* no storage */ }
    showTheme();
    drawAll();
  });
  wantsDark.addEventListener("change", () => { showTheme(); drawAll(); });
}

function setUpContents() {
  const links = new Map(all(".bar-top nav a").map((link) => [link.hash.slice(1), link]));
  const watcher = new IntersectionObserver((entries) => {
    const now = entries.find((entry) => entry.isIntersecting);
    if (!now) return; // between two sections: keep the last one
    for (const [id, link] of links) {
      if (id === now.target.id) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-30% 0px -69% 0px" }); // the section at a third of the height
  for (const id of links.keys()) watcher.observe(document.getElementById(id));
}

function setUpPrinting() {
  let theme = null;
  addEventListener("beforeprint", () => {
    hideTip();
    theme = root.dataset.theme ?? "";
    root.dataset.theme = "light";
    root.classList.add("printing");
    drawAll();
  });
  addEventListener("afterprint", () => {
    root.classList.remove("printing");
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    drawAll();
  });
}

function setUpResizing() {
  let width = innerWidth, waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 80);
  });
}

drawScores();
setUpTracks();
drawTraining();
drawCurves();
setUpRows();
setUpTheme();
setUpContents();
setUpPrinting();
setUpResizing();
drawAll();
root.dataset.ready = "true";
