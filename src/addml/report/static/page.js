// Theme, contents, paper, and the beginning of everything.

const drawAll = () => { for (const chart of charts) chart.draw(); };
const wantsDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : wantsDark.matches);
const sayTheme = () => find("#theme").setAttribute("aria-pressed", String(isDark()));

function readTheme() {
  sayTheme();
  find("#theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("addml-theme", root.dataset.theme); } catch { /* not kept, then */ }
    sayTheme();
    drawAll();
  });
  wantsDark.addEventListener("change", () => { sayTheme(); drawAll(); });
}

function readContents() {
  const links = new Map(all(".bar-top nav a").map((link) => [link.hash.slice(1), link]));
  const watcher = new IntersectionObserver((entries) => {
    const now = entries.find((entry) => entry.isIntersecting);
    if (!now) return; // between two sections: the last one stays
    for (const [id, link] of links) {
      if (id === now.target.id) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-30% 0px -69% 0px" }); // the section that crosses a line at a third of the height
  for (const id of links.keys()) watcher.observe(document.getElementById(id));
}

function readPaper() {
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

function readSize() {
  let width = innerWidth, waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 80);
  });
}

drawScores();
readTracks();
drawTraining();
drawCurves();
readRows();
readTheme();
readContents();
readPaper();
readSize();
drawAll();
root.dataset.ready = "true";
