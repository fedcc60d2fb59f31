"use strict";
// Draws the charts of a report when they come into view, and redraws them for print and dark mode.
// The page can be read without it: tables, sentences and histograms are static.
(() => {
  const { names, columns, pictures } = JSON.parse(document.getElementById("pictures").textContent);
  const { state, isCloud, SYMBOLS, DASHES } = axes;
  const drawn = new Map();
  // Names and columns of numbers are stored once and referred to by index.
  const named = (column) => columns[column].map((at) => names[at]);
  pictures.forEach((picture) => {
    [...(picture.series ?? []), ...(picture.parts ?? [])].forEach((one) => {
      ["x", "y", "low", "high"].forEach((part) => part in one && (one[part] = columns[one[part]]));
      if ("labels" in one) one.labels = named(one.labels);
    });
    if (picture.kind === "parallel") {
      picture.names = named(picture.names);
      picture.values = picture.values.map((column) => columns[column]);
    }
  });
  let printing = false;

  const ink = () => {
    const style = getComputedStyle(document.body);
    const get = (name) => style.getPropertyValue(`--${name}`).trim();
    const list = ["c1", "c2", "c3", "c4", "c5", "c6", "c7"].map(get);
    return { list, text: get("text"), soft: get("soft"), line: get("line"), back: get("back"), good: get("good"),
      bad: get("bad"), doubt: get("doubt"), shade: get("shade") };
  };
  // --- drawing -----------------------------------------------------------------------------------

  const PRINTED = 660;
  const HEIGHT = { screen: 300, paper: 220 }; // of a chart without rows
  const hiddenOf = new Map();
  const focusOf = new Map();

  // The library is large: it is loaded when the first chart comes into view, and read in the page before.
  let waiting = null;
  const withLibrary = (run) => {
    if (window.echarts) return run();
    if (waiting) return waiting.push(run);
    waiting = [run];
    const [inside, script] = [document.getElementById("library"), document.createElement("script")];
    const loaded = () => {
      script.remove();
      if (inside || printing) waiting.splice(0).forEach((one) => one());
      else setTimeout(drawWaiting);
    };
    // One after the other: what somebody does meanwhile is answered between two of them.
    const drawWaiting = () => {
      waiting.shift()?.();
      if (waiting.length) setTimeout(drawWaiting);
    };
    if (inside) script.textContent = inside.textContent;
    else script.src = document.getElementById("pictures").dataset.library;
    if (!inside) script.addEventListener("load", loaded);
    document.head.append(script); // a script with its text in it has run by now
    if (inside) loaded();
  };

  const draw = (figure) => withLibrary(() => drawNow(figure));
  const drawNow = (figure) => {
    const number = Number(figure.dataset.picture);
    const picture = pictures[number];
    const place = figure.querySelector(".chart");
    const width = printing ? PRINTED : place.clientWidth;
    if (!width) return;
    if (!hiddenOf.has(number)) hiddenOf.set(number, new Set());
    if (!focusOf.has(number)) focusOf.set(number, {});
    const colours = ink();
    const { height = printing ? HEIGHT.paper : HEIGHT.screen, clicked, ...option } = charts[picture.kind](
      picture, colours, width, hiddenOf.get(number), () => draw(figure), focusOf.get(number),
    );
    drawn.get(figure)?.dispose();
    place.replaceChildren();
    place.style.height = `${height}px`;
    const chart = echarts.init(place, null, { renderer: "svg", width, height });
    chart.setOption(option);
    if (clicked) chart.on("click", clicked);
    place.removeAttribute("role"); // the figure describes the chart in words
    place.setAttribute("aria-hidden", "true");
    figure.classList.add("drawn");
    drawn.set(figure, chart);
    legend(figure, picture, colours, number);
    performance.mark("drawn");
  };

  const svg = (tag, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
    return element;
  };
  const SHAPES = {
    circle: ["circle", { cx: 11, cy: 6, r: 3.5 }],
    triangle: ["path", { d: "M11 2 L15 9.5 L7 9.5 Z" }],
    rect: ["rect", { x: 7.5, y: 2.5, width: 7, height: 7 }],
    diamond: ["path", { d: "M11 1.5 L15.5 6 L11 10.5 L6.5 6 Z" }],
  };
  const swatch = (picture, one, place, colour) => {
    const drawing = svg("svg", { viewBox: "0 0 22 12", width: 22, height: 12, "aria-hidden": "true" });
    if (picture.kind === "stack" || picture.stacked) {
      drawing.append(svg("rect", { x: 5, y: 1, width: 12, height: 10, fill: colour, opacity: picture.stacked ? 0.55 : 1 }));
      return drawing;
    }
    const cloud = isCloud(one);
    const dash = one.marked ? "solid" : DASHES[place % DASHES.length];
    const dashes = { solid: "", dashed: "6 3", dotted: "2 2" }[dash] ?? dash.join(" ");
    if (one.joined)
      drawing.append(svg("line", { x1: 0, x2: 22, y1: 6, y2: 6, stroke: colour, "stroke-width": one.marked ? 2.5 : 1.75, "stroke-dasharray": dashes }));
    const name = cloud ? "circle" : SYMBOLS[place % SYMBOLS.length];
    const empty = name.startsWith("empty");
    const [tag, shape] = SHAPES[empty ? name.slice(5).toLowerCase() : name];
    if (!one.joined || one.x.length <= 60)
      drawing.append(svg(tag, { ...shape, fill: empty ? "none" : colour, stroke: colour, opacity: cloud ? 0.6 : 1 }));
    return drawing;
  };
  const legend = (figure, picture, colours, number) => {
    figure.querySelector(".legend")?.remove();
    const series = picture.kind === "plot" ? picture.series : picture.kind === "stack" ? picture.parts : [];
    if (series.length < 2) return;
    const list = document.createElement("ul");
    list.className = "legend";
    series.forEach((one, place) => {
      const cloud = picture.kind === "plot" && isCloud(one);
      const colour = charts.coloured(colours, one, place, cloud);
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", String(!hiddenOf.get(number).has(place)));
      button.append(swatch(picture, one, place, colour), one.name);
      button.addEventListener("click", () => {
        const hidden = hiddenOf.get(number);
        hidden.has(place) ? hidden.delete(place) : hidden.add(place);
        draw(figure);
        figure.querySelectorAll(".legend button")[place].focus();
      });
      const item = document.createElement("li");
      item.append(button);
      list.append(item);
    });
    figure.querySelector(".chart").before(list);
  };

  const figures = [...document.querySelectorAll("figure[data-picture]")];
  const all = () => figures.forEach(draw);
  const again = () => figures.filter((figure) => drawn.has(figure)).forEach(draw);
  const inPage = document.getElementById("library") !== null;
  const watcher = new IntersectionObserver(
    (entries) => entries.filter((one) => one.isIntersecting && !drawn.has(one.target)).forEach((one) => draw(one.target)),
    { rootMargin: inPage ? "300px" : "0px" },
  );
  figures.forEach((figure) => watcher.observe(figure));
  // The others follow while the browser is idle, so that a copy or screenshot of the page has all of them: at once
  // if the library is in the page, else when somebody is there, as a phone is busy with it for a while.
  const idle = window.requestIdleCallback ?? ((run) => setTimeout(run, 50));
  const drawNext = (at) => {
    if (at >= figures.length) return;
    if (!drawn.has(figures[at])) draw(figures[at]);
    idle(() => drawNext(at + 1), { timeout: 500 });
  };
  const drawOthers = () => idle(() => drawNext(0), { timeout: 500 });
  const SIGNS = ["pointermove", "pointerdown", "keydown", "wheel", "touchstart", "scroll"];
  const onSign = () => {
    SIGNS.forEach((sign) => removeEventListener(sign, onSign));
    drawOthers();
  };
  if (inPage) drawOthers();
  else SIGNS.forEach((sign) => addEventListener(sign, onSign, { passive: true }));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width || printing) return;
    width = innerWidth;
    requestAnimationFrame(again);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  const print = (on) => {
    if (printing === on) return;
    printing = on;
    document.body.classList.toggle("printing", on); // light colours, whatever the screen has
    fitTables(document, on);
    all();
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  matchMedia("print").addEventListener("change", (event) => print(event.matches));
  if (matchMedia("print").matches) print(true);

  if (figures.length) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "patterns";
    button.textContent = "Patterns";
    button.title = "Fill bars with patterns as well as colours";
    const showState = () => button.setAttribute("aria-pressed", String(state.patterns));
    showState();
    button.addEventListener("click", () => {
      state.patterns = !state.patterns;
      showState();
      again();
    });
    if (pictures.some((one) => one.kind === "stack")) document.querySelector("nav[aria-label=Contents]")?.append(button);
  }
})();
