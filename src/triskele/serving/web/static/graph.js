"use strict";
(() => {
  const box = document.getElementById("graph");
  const slider = document.getElementById("at");
  const picked = document.getElementById("picked");
  const months = slider.dataset.months.split(" ").filter(Boolean);
  let drawing = null;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  const look = () => [
    { selector: "node", style: { label: "data(label)", "font-size": 11, color: colour("ink"), "font-family": "system-ui, sans-serif", "text-wrap": "ellipsis", "text-max-width": 150, "min-zoomed-font-size": 7, "text-margin-y": -4, "text-outline-color": colour("sheet"), "text-outline-width": 2 } },
    { selector: "node[kind='concept']", style: { "background-color": colour("accent"), width: "mapData(weight, 1, 40, 12, 34)", height: "mapData(weight, 1, 40, 12, 34)", "font-weight": 600, "font-size": 14 } },
    { selector: "node[kind='memory']", style: { shape: "round-rectangle", "background-color": colour("soft"), width: 10, height: 10, color: colour("soft"), "font-size": 10, "min-zoomed-font-size": 14 } },
    { selector: "node[focus=1]", style: { "border-width": 4, "border-color": colour("accent-light"), "font-size": 20, color: colour("ink") } },
    { selector: "edge", style: { width: 1, "line-color": colour("line-strong"), opacity: 0.7, "curve-style": "haystack" } },
    { selector: "edge[kind='subject']", style: { width: 2, opacity: 1, "line-color": colour("accent-mid") } },
    { selector: "edge[kind='supersedes'], edge[kind='resolved-by'], edge[kind='part-of'], edge[kind='see-also']", style: { width: 2, "line-color": colour("ink"), "curve-style": "bezier", "target-arrow-shape": "triangle", "target-arrow-color": colour("ink"), label: "data(kind)", "font-size": 9, color: colour("soft"), "min-zoomed-font-size": 8 } },
    { selector: "edge[open=0]", style: { "line-style": "dashed", opacity: 0.6 } },
    { selector: ".faded", style: { opacity: 0.15 } },
    { selector: ":selected", style: { "background-color": colour("ink") } },
  ];

  const address = () => {
    const chosen = months[Number(slider.value)];
    return box.dataset.source + (chosen ? `&at=${chosen}` : "");
  };

  const told = (text) => {
    const line = Object.assign(document.createElement("p"), { textContent: text, className: "soft loading" });
    drawing?.destroy();
    drawing = null;
    box.replaceChildren(line);
  };

  const link = (href, text) => Object.assign(document.createElement("a"), { href, textContent: text });

  const pick = (node) => {
    const { label, kind, id, weight } = node.data();
    const around = node.closedNeighborhood();
    drawing.elements().addClass("faded");
    around.removeClass("faded");
    const title = Object.assign(document.createElement("h2"), { textContent: label });
    const about = document.createElement("p");
    about.className = "small";
    const ties = node.connectedEdges("[until != ''], [since != '']").map((edge) => edge.data());
    if (kind === "memory") about.append(link(`/ui/memory/${id.slice(1)}`, "Open"), " · ", link(`/ui/graph?memory=${id.slice(1)}`, "Centre here"));
    else about.append(`${weight} ${weight === 1 ? "memory" : "memories"} · `, link(`/ui/graph?focus=${encodeURIComponent(label)}`, "Centre here"));
    picked.replaceChildren(title, about);
    for (const tie of ties.slice(0, 8)) {
      const line = document.createElement("p");
      line.className = "small soft";
      line.textContent = `${tie.kind}: ${tie.since || "…"} – ${tie.until || "…"}`;
      picked.append(line);
    }
    picked.hidden = false;
  };

  const draw = (elements) => {
    const before = drawing;
    const zoom = before && { zoom: before.zoom(), pan: before.pan() };
    before?.destroy();
    box.replaceChildren();
    drawing = cytoscape({ container: box, elements, layout: { name: "preset" }, style: look(), minZoom: 0.15, maxZoom: 3, textureOnViewport: true, pixelRatio: "auto" });
    if (zoom) drawing.viewport(zoom);
    else drawing.fit(undefined, 30);
    drawing.on("tap", "node", (event) => pick(event.target));
    drawing.on("tap", (event) => {
      if (event.target !== drawing) return;
      drawing.elements().removeClass("faded");
      picked.hidden = true;
    });
    drawing.on("dbltap", "node", (event) => {
      const { kind, id, label } = event.target.data();
      location.assign(kind === "memory" ? `/ui/memory/${id.slice(1)}` : `/ui/graph?focus=${encodeURIComponent(label)}`);
    });
    box.dataset.nodes = String(drawing.nodes().length);
    box.dataset.shown = months[Number(slider.value)] || "now";
  };

  let asked = 0;
  const load = async () => {
    const own = ++asked;
    try {
      const answer = await fetch(address(), { headers: { "HX-Request": "true" } });
      if (own !== asked) return;
      if (answer.status === 401) return location.reload();
      if (!answer.ok) return told("Nothing of this was known at that time.");
      draw((await answer.json()).elements);
    } catch {
      told("The server does not answer.");
    }
  };

  const say = () => {
    const chosen = months[Number(slider.value)] || "now";
    document.getElementById("at-text").textContent = chosen;
    slider.setAttribute("aria-valuetext", chosen);
  };

  let pause;
  slider.addEventListener("input", () => {
    say();
    clearTimeout(pause);
    pause = setTimeout(load, 120);
  });

  for (const each of document.querySelectorAll("[data-node]")) {
    const node = () => drawing?.getElementById(each.dataset.node);
    each.addEventListener("mouseenter", () => node()?.select());
    each.addEventListener("mouseleave", () => node()?.unselect());
  }

  document.addEventListener("theme", () => drawing?.style(look()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawing?.style(look()));
  const given = months.indexOf(box.dataset.at);
  if (given >= 0) slider.value = String(given);
  say();
  load();
})();
