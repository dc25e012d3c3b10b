"use strict";
// Runs before anything is painted: a page must not flash in the other theme.
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden: the system's theme applies.
}
