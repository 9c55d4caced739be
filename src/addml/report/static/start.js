"use strict";
// Before the page is drawn: scripts run, which theme was chosen, and charts fine enough for paper.
(function () {
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const theme = localStorage.getItem("addml-theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch { /* no storage: the system's theme */ }
  const real = window.devicePixelRatio || 1;
  Object.defineProperty(window, "devicePixelRatio", { configurable: true, get: () => Math.max(2, real) });
})();
