"use strict";
// Draws what the server has arranged. Everything is drawn at the size of the screen, so names stay readable at any
// zoom: a name is left out where it would cover another one, and appears when there is room for it.
(() => {
  const box = document.getElementById("graph");
  const canvas = document.getElementById("drawing");
  const pen = canvas.getContext("2d");
  const slider = document.getElementById("at");
  const picked = document.getElementById("picked");
  const told = document.getElementById("told");
  const months = slider.dataset.months.split(" ").filter(Boolean);
  const days = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeZone: "UTC" });
  const shownDay = (iso) => iso && days.format(new Date(iso));
  const LINE_PX = 16;
  const NEAR_PX = 14;

  let nodes = [];
  let edges = [];
  let chosen = null;
  let hovered = null;
  let view = null;
  let colours = null;
  let isDue = false;
  const byId = new Map();
  // A node keeps its place while the time is moved.
  const places = new Map();
  const widths = new Map();

  const readColours = () => {
    const style = getComputedStyle(document.documentElement);
    const names = ["ink", "soft", "sheet", "accent", "accent-mid", "accent-light", "line-strong"];
    colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    colours.font = style.getPropertyValue("--sans").trim() || "sans-serif";
  };

  const size = () => ({ width: box.clientWidth, height: box.clientHeight });
  const toScreen = (node) => ({ x: node.x * view.zoom + view.x, y: node.y * view.zoom + view.y });
  const radius = (node) => {
    const grown = Math.min(Math.max(Math.sqrt(view.zoom), 0.7), 1.6);
    return grown * (node.focus ? 9 : node.kind === "concept" ? 4 + Math.min(Math.sqrt(node.weight), 7) : 3.5);
  };

  const fit = () => {
    const { width, height } = size();
    const xs = nodes.map((node) => node.x);
    const ys = nodes.map((node) => node.y);
    const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const zoom = Math.min((width - 120) / Math.max(right - left, 1), (height - 70) / Math.max(bottom - top, 1), 1.6);
    view = { zoom, x: width / 2 - (zoom * (left + right)) / 2, y: height / 2 - (zoom * (top + bottom)) / 2 };
  };

  // Drawing

  const hidden = () =>
    new Set([...document.querySelectorAll("[data-edge]:not(:checked)")].map((each) => each.dataset.edge));

  const around = (node) => {
    const found = new Set([node.id]);
    for (const edge of edges) {
      if (edge.source === node.id) found.add(edge.target);
      if (edge.target === node.id) found.add(edge.source);
    }
    return found;
  };

  const LOOK = {
    mentions: ["line-strong", 1],
    subject: ["accent-mid", 1.6],
    tie: ["accent", 1.2],
    link: ["ink", 1.4],
  };

  const arrow = (from, to, colour) => {
    const turn = Math.atan2(to.y - from.y, to.x - from.x);
    const at = { x: to.x - 7 * Math.cos(turn), y: to.y - 7 * Math.sin(turn) };
    pen.beginPath();
    pen.moveTo(at.x, at.y);
    pen.lineTo(at.x - 8 * Math.cos(turn - 0.4), at.y - 8 * Math.sin(turn - 0.4));
    pen.lineTo(at.x - 8 * Math.cos(turn + 0.4), at.y - 8 * Math.sin(turn + 0.4));
    pen.fillStyle = colour;
    pen.fill();
  };

  const drawEdges = (spots, near) => {
    const off = hidden();
    for (const [group, [colour, width]] of Object.entries(LOOK)) {
      if (off.has(group)) continue;
      for (const open of [true, false]) {
        if (!open && off.has("closed")) continue;
        for (const isNear of near ? [false, true] : [true]) {
          const some = edges.filter(
            (edge) => edge.group === group && edge.open === open && (!near || isTouching(edge, near) === isNear),
          );
          pen.beginPath();
          for (const edge of some) {
            const from = spots.get(edge.source);
            const to = spots.get(edge.target);
            pen.moveTo(from.x, from.y);
            pen.lineTo(to.x, to.y);
          }
          pen.setLineDash(open ? [] : [5, 4]);
          pen.globalAlpha = isNear ? (near ? 1 : 0.75) : 0.12;
          pen.lineWidth = near && isNear ? width + 0.6 : width;
          pen.strokeStyle = colours[colour];
          pen.stroke();
          if (group === "link" && isNear) for (const edge of some) arrow(spots.get(edge.source), spots.get(edge.target), colours[colour]);
        }
      }
    }
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  };

  const isTouching = (edge, near) => edge.source === near.centre || edge.target === near.centre;

  const drawNodes = (spots, near) => {
    for (const node of nodes) {
      const { x, y } = spots.get(node.id);
      const r = radius(node);
      pen.globalAlpha = near && !near.ids.has(node.id) ? 0.15 : 1;
      pen.fillStyle = colours[node.kind === "concept" ? "accent" : "soft"];
      pen.beginPath();
      if (node.kind === "concept") pen.arc(x, y, r, 0, 2 * Math.PI);
      else pen.rect(x - r, y - r, 2 * r, 2 * r);
      pen.fill();
      if (!node.focus && node !== chosen && node !== hovered) continue;
      pen.lineWidth = 3;
      pen.strokeStyle = colours[node.focus ? "accent-light" : "ink"];
      pen.stroke();
    }
    pen.globalAlpha = 1;
  };

  const font = (node) => `${node.focus ? "600 15px" : node.kind === "concept" ? "500 12px" : "12px"} ${colours.font}`;

  const widthOf = (node, text) => {
    const key = `${node.focus}${node.kind}${text}`;
    if (!widths.has(key)) widths.set(key, pen.measureText(text).width);
    return widths.get(key);
  };

  const importance = (node, near) =>
    (node === hovered || node === chosen ? 1e6 : 0) +
    (near?.ids.has(node.id) ? 1e5 : 0) +
    (node.focus ? 1e4 : 0) +
    (node.kind === "concept" ? 1e3 + node.weight : 0);

  const drawNames = (spots, near) => {
    const taken = [];
    const { width, height } = size();
    const ordered = [...nodes].sort((one, other) => importance(other, near) - importance(one, near));
    pen.textAlign = "center";
    pen.lineJoin = "round";
    for (const node of ordered) {
      if (near && !near.ids.has(node.id)) continue;
      if (node.kind === "memory" && !near && view.zoom < 1.5 && !node.focus) continue;
      const { x, y } = spots.get(node.id);
      if (x < -50 || y < -20 || x > width + 50 || y > height + 20) continue;
      const whole = node === hovered || node === chosen || node.focus;
      const text = whole || node.label.length <= 28 ? node.label : `${node.label.slice(0, 27)}…`;
      pen.font = font(node);
      const half = widthOf(node, text) / 2 + 3;
      const middle = Math.min(Math.max(x, half + 2), Math.max(width - half - 2, half + 2));
      const base = y - radius(node) - 5;
      const spot = { left: middle - half, right: middle + half, top: base - LINE_PX + 3, bottom: base + 3 };
      const isFree = taken.every((each) => each.right < spot.left || each.left > spot.right || each.bottom < spot.top || each.top > spot.bottom);
      if (!isFree) continue;
      taken.push(spot);
      pen.lineWidth = 3;
      pen.strokeStyle = colours.sheet;
      pen.strokeText(text, middle, base);
      pen.fillStyle = colours[node.kind === "concept" ? "ink" : "soft"];
      pen.fillText(text, middle, base);
    }
  };

  const draw = () => {
    isDue = false;
    if (!view || !nodes.length) return;
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const { width, height } = size();
    if (canvas.width !== width * ratio || canvas.height !== height * ratio) {
      canvas.width = width * ratio;
      canvas.height = height * ratio;
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const spots = new Map(nodes.map((node) => [node.id, toScreen(node)]));
    const shown = chosen || hovered;
    const near = shown && { centre: shown.id, ids: around(shown) };
    drawEdges(spots, near);
    drawNodes(spots, near);
    drawNames(spots, near);
  };

  const redraw = () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(draw);
  };

  // What is pointed at

  const nodeAt = (x, y) => {
    let best = null;
    let least = NEAR_PX;
    for (const node of nodes) {
      const spot = toScreen(node);
      const distance = Math.hypot(spot.x - x, spot.y - y) - radius(node);
      if (distance < least) [best, least] = [node, distance];
    }
    return best;
  };

  const link = (href, text) => Object.assign(document.createElement("a"), { href, textContent: text });
  const line = (text) => Object.assign(document.createElement("p"), { className: "small soft", textContent: text });

  const pick = (node) => {
    chosen = node;
    picked.hidden = !node;
    redraw();
    if (!node) return;
    const about = document.createElement("p");
    about.className = "small";
    if (node.kind === "memory") about.append(link(`/ui/memory/${node.id.slice(1)}`, "Open"), " · ", link(`/ui/graph?memory=${node.id.slice(1)}`, "Centre here"));
    else about.append(`${node.weight} ${node.weight === 1 ? "memory" : "memories"} · `, link(`/ui/graph?focus=${encodeURIComponent(node.label)}`, "Centre here"));
    const ties = edges.filter((edge) => (edge.source === node.id || edge.target === node.id) && (edge.group === "tie" || edge.group === "link"));
    const lines = ties.slice(0, 8).map((edge) => {
      const other = byId.get(edge.source === node.id ? edge.target : edge.source);
      const held = edge.since || edge.until ? `, ${shownDay(edge.since) || "…"} – ${shownDay(edge.until) || "…"}` : "";
      return line(`${edge.source === node.id ? "" : "← "}${edge.kind} ${other.label}${held}${edge.open ? "" : " (no longer holds)"}`);
    });
    picked.replaceChildren(Object.assign(document.createElement("h2"), { textContent: node.label }), about, ...lines);
  };

  const zoomBy = (factor, x, y) => {
    const zoom = Math.min(Math.max(view.zoom * factor, 0.1), 6);
    const change = zoom / view.zoom;
    view = { zoom, x: x - (x - view.x) * change, y: y - (y - view.y) * change };
    redraw();
  };

  const spotOf = (event) => {
    const frame = canvas.getBoundingClientRect();
    return { x: event.clientX - frame.left, y: event.clientY - frame.top };
  };

  const pointers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, spotOf(event));
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!view) return;
    const now = spotOf(event);
    const before = pointers.get(event.pointerId);
    if (!before) {
      const over = nodeAt(now.x, now.y);
      canvas.classList.toggle("over", Boolean(over));
      if (over === hovered) return;
      hovered = over;
      return redraw();
    }
    const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, spot]) => spot);
    moved += Math.hypot(now.x - before.x, now.y - before.y);
    pointers.set(event.pointerId, now);
    if (other) {
      const factor = Math.hypot(now.x - other.x, now.y - other.y) / Math.max(Math.hypot(before.x - other.x, before.y - other.y), 1);
      return zoomBy(factor, other.x, other.y);
    }
    view = { ...view, x: view.x + now.x - before.x, y: view.y + now.y - before.y };
    redraw();
  });
  const release = (event) => {
    const now = pointers.get(event.pointerId);
    pointers.delete(event.pointerId);
    if (event.type === "pointerup" && now && view && moved < 5) pick(nodeAt(now.x, now.y));
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { x, y } = spotOf(event);
    if (view) zoomBy(Math.exp(-event.deltaY / 400), x, y);
  }, { passive: false });
  canvas.addEventListener("dblclick", (event) => {
    const { x, y } = spotOf(event);
    const node = view && nodeAt(x, y);
    if (node) location.assign(node.kind === "memory" ? `/ui/memory/${node.id.slice(1)}` : `/ui/graph?focus=${encodeURIComponent(node.label)}`);
  });
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => {
      if (!view) return;
      const { width, height } = size();
      if (button.dataset.zoom !== "fit") return zoomBy(Number(button.dataset.zoom), width / 2, height / 2);
      fit();
      redraw();
    });
  }

  // What is drawn

  const say = (text) => {
    told.textContent = text;
    told.hidden = !text;
  };

  // An entry of the list names its node, by pointer and by keyboard.
  const watch = (each) => {
    const isItsNode = (node) => node.id === each.dataset.node || (node.kind === "concept" && node.label === each.dataset.concept);
    const enter = () => ((hovered = nodes.find(isItsNode) || null), redraw());
    const leave = () => ((hovered = null), redraw());
    for (const [name, listener] of Object.entries({ mouseenter: enter, focus: enter, mouseleave: leave, blur: leave })) each.addEventListener(name, listener);
  };

  const listMemories = () => {
    const list = document.getElementById("drawn");
    const entries = nodes.filter((node) => node.kind === "memory").map((node) => {
      const entry = link(`/ui/memory/${node.id.slice(1)}`, node.label);
      entry.dataset.node = node.id;
      watch(entry);
      const item = document.createElement("li");
      item.append(entry);
      return item;
    });
    list?.replaceChildren(...entries);
  };

  const show = (found) => {
    nodes = found.nodes.map((node) => {
      if (!places.has(node.id)) places.set(node.id, { x: node.x, y: node.y });
      return { ...node, ...places.get(node.id) };
    });
    edges = found.edges;
    byId.clear();
    for (const node of nodes) byId.set(node.id, node);
    hovered = null;
    pick((chosen && byId.get(chosen.id)) || null);
    listMemories();
    if (!view && nodes.length) fit();
    redraw();
  };

  const address = () => {
    const at = months[Number(slider.value)];
    return box.dataset.source + (at ? `&at=${at}` : "");
  };

  let asked = 0;
  const load = async () => {
    const own = ++asked;
    try {
      const answer = await fetch(address(), { headers: { "HX-Request": "true" } });
      if (own !== asked) return;
      if (answer.status === 401) return location.reload();
      const found = answer.ok ? await answer.json() : { nodes: [], edges: [] };
      if (own !== asked) return;
      say(answer.ok ? "" : answer.status === 404 ? "Nothing of this was known at that time." : "The graph could not be read. Try again.");
      if (!answer.ok) pen.clearRect(0, 0, canvas.width, canvas.height);
      show(found);
      box.dataset.nodes = String(nodes.length);
      box.dataset.shown = months[Number(slider.value)] || "now";
    } catch {
      say("The server does not answer.");
    }
  };

  const tellTime = () => {
    const at = shownDay(months[Number(slider.value)]) || "now";
    document.getElementById("at-text").textContent = at;
    slider.setAttribute("aria-valuetext", at);
  };

  let pause;
  slider.addEventListener("input", () => {
    tellTime();
    clearTimeout(pause);
    pause = setTimeout(load, 120);
  });
  for (const each of document.querySelectorAll("[data-edge]")) each.addEventListener("change", redraw);
  document.querySelectorAll("[data-node], [data-concept]").forEach(watch);
  const recolour = () => (readColours(), redraw());
  document.addEventListener("theme", recolour);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  new ResizeObserver(redraw).observe(box);
  const given = months.indexOf(box.dataset.at);
  if (given >= 0) slider.value = String(given);
  readColours();
  tellTime();
  load();
})();
