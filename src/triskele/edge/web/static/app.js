"use strict";
(() => {
  const root = document.documentElement;
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

  // Theme

  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

  const switchTheme = () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch {
      // It lasts until the next page then.
    }
    document.dispatchEvent(new CustomEvent("theme"));
  };

  // Notices

  const say = (text) => {
    const box = document.createElement("div");
    box.className = "notice error";
    box.setAttribute("role", "alert");
    box.append(Object.assign(document.createElement("span"), { textContent: text }));
    $("#notice").replaceChildren(box);
  };

  // The chosen item of a list

  const items = () => $$("[data-item]");
  const chosen = () => $("[data-item].chosen");

  const choose = (step) => {
    const all = items();
    if (!all.length) return;
    const at = all.indexOf(chosen());
    const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
    all.forEach((each) => each.classList.toggle("chosen", each === next));
    next.scrollIntoView({ block: "nearest" });
    $("a[data-open]", next)?.focus({ preventScroll: true });
  };

  // Dates: pages send them in ISO, which stays where this script does not run

  const forms = {
    day: { dateStyle: "medium", timeZone: "UTC" },
    month: { month: "long", year: "numeric", timeZone: "UTC" },
    moment: { dateStyle: "medium", timeStyle: "short" },
    age: { dateStyle: "medium", timeStyle: "short" },
  };
  for (const [name, form] of Object.entries(forms)) forms[name] = new Intl.DateTimeFormat(undefined, form);

  const showDates = () => {
    for (const each of $$("[data-as]")) {
      const text = forms[each.dataset.as].format(new Date(each.dateTime || each.dataset.at));
      if (each.dataset.as === "age") each.title = text;
      else each.textContent = text;
    }
  };

  document.addEventListener("htmx:afterSwap", showDates);

  // Keys

  let isGoing = false;

  const toSearch = () => {
    const field = $("[data-search]");
    if (!field) return location.assign("/ui");
    field.focus();
    field.select();
  };

  const edit = () => {
    const form = $("#edit");
    if (form) {
      form.open = true;
      return $("textarea, input", form).focus();
    }
    const link = chosen() && $("a[data-open]", chosen());
    if (link && $("a[href='/ui/new']")) location.assign(`${link.getAttribute("href")}?edit=1`);
  };

  const keys = {
    "/": toSearch,
    j: () => choose(1),
    k: () => choose(-1),
    e: edit,
    n: () => $("a[href='/ui/new']") && location.assign("/ui/new"),
    u: () => $("[data-undo]")?.click(),
    x: () => chosen() && $("input[type=checkbox]", chosen())?.click(),
    g: () => {
      isGoing = true;
      setTimeout(() => (isGoing = false), 1200);
    },
    "?": () => $("#keys").showModal(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inField = event.target.closest("input:not([type=checkbox], [type=radio], [type=range]), textarea, select");
    if (event.key === "Escape" && inField) return event.target.blur();
    if (event.key === "Enter" && event.target.dataset.enter) {
      event.preventDefault();
      return $(event.target.dataset.enter).click();
    }
    if (inField || $("dialog[open]")) return;
    const page = isGoing && $(`nav a[data-key="${CSS.escape(event.key)}"]`);
    const action = page ? () => page.click() : keys[event.key];
    if (!action) return;
    event.preventDefault();
    isGoing = false;
    action();
  });

  // What moved when the same question was ranked in another way

  let before = null;
  const ranking = () => {
    const list = $("#hits");
    return list && { text: list.dataset.text, ids: $$("[data-id]", list).map((each) => each.dataset.id) };
  };

  const markMoves = () => {
    const now = ranking();
    if (!now || !before || before.text !== now.text || before.ids.join() === now.ids.join()) return;
    now.ids.forEach((id, place) => {
      const was = before.ids.indexOf(id);
      if (was === place) return;
      const mark = $(`[data-id="${CSS.escape(id)}"] .moved`);
      mark.textContent = was < 0 ? "new" : was > place ? `▲ ${was - place}` : `▼ ${place - was}`;
      mark.classList.add(was < 0 || was > place ? "up" : "down");
    });
  };

  document.addEventListener("htmx:beforeSwap", () => (before = ranking() || before));
  document.addEventListener("htmx:afterSwap", markMoves);

  // Tables

  const countChosen = () => {
    const bulk = $("#bulk");
    if (!bulk) return;
    const boxes = $$("input[name=id]:not(:disabled)");
    const count = boxes.filter((box) => box.checked).length;
    const all = $("#all-matching");
    bulk.classList.toggle("active", count > 0 || Boolean(all?.checked));
    $("#chosen-count").textContent = all?.checked ? all.dataset.total : String(count);
    const every = $("#every");
    every.checked = count > 0 && count === boxes.length;
    every.indeterminate = count > 0 && count < boxes.length;
  };

  document.addEventListener("change", (event) => {
    if (event.target.id === "every") $$("input[name=id]:not(:disabled)").forEach((box) => (box.checked = event.target.checked));
    if (event.target.matches("#every, #all-matching, input[name=id]")) countChosen();
    if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  });

  document.addEventListener("click", (event) => {
    const target = event.target.closest("button");
    if (!target) return;
    if (target.id === "theme") switchTheme();
    if ("fold" in target.dataset) {
      const isFolded = document.getElementById(target.getAttribute("aria-controls")).classList.toggle("folded");
      target.setAttribute("aria-expanded", String(!isFolded));
    }
    if (target.id === "help") $("#keys").showModal();
    if ("dismiss" in target.dataset) target.closest(".notice").remove();
    if (target.dataset.copy) copy($(target.dataset.copy), target);
  });

  const copy = async (field, button) => {
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
      button.textContent = "Copied";
    } catch {
      // Without a secure address there is no clipboard: the text is selected.
      button.textContent = "Press Ctrl+C";
    }
  };

  // A request that a page leaves behind ends too, and tells nothing of the server.
  const gone =
    document.body.dataset.place === "this server"
      ? "The server does not answer. Try again in a moment; nothing was changed."
      : "The server does not answer. It ends when nobody uses it: run “triskele ui” in a terminal to start it again.";
  let isLeaving = false;
  addEventListener("beforeunload", () => (isLeaving = true));
  document.addEventListener("htmx:sendError", () =>
    isLeaving || say(gone),
  );
  document.addEventListener("htmx:timeout", () => say("The server took too long to answer. Try again."));

  // Scripts with `defer` run when the page is read: what follows sees all of it.
  const isWide = matchMedia("(min-width: 60rem)").matches;
  $$("details[data-wide]").forEach((each) => (each.open = isWide));
  countChosen();
  showDates();
})();
