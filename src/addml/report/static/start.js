"use strict";
// Runs before the page is drawn: tell the styles that scripts run, restore the theme, make charts fine enough to print.
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
