"use strict";
// Make the tables of an element sortable: descending, ascending, original order.
const sortTables = (() => {
  const SCALES = {
    ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, k: 1e3, M: 1e6,
    G: 1e9, T: 1e12, "M/s": 1e6, "G/s": 1e9, uJ: 1e-6, mJ: 1e-3, kJ: 1e3, mW: 1e-3, kW: 1e3,
  };
  const key = (text) => {
    const found = /^[<>~\u2248\u00b1]?\s*([+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)\s*([A-Za-z\u00b5/]*)/.exec(text.replaceAll("\u00a0", " "));
    if (!found) return text === "\u2014" || text === "" ? null : text.toLowerCase();
    return Number(found[1].replaceAll(",", "")) * (SCALES[found[2]] ?? SCALES[found[2].replace(/(MACs|FLOPs?)$/, "")] ?? 1);
  };
  const order = (a, b) => {
    if (a === null || b === null) return 0;
    if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
    return typeof a === "number" ? -1 : 1;
  };
  const NEXT = { none: "descending", descending: "ascending", ascending: "none" };
  return (root) => root.querySelectorAll("table.figures").forEach((table) => {
    const body = table.tBodies[0];
    const original = [...body.rows];
    const heads = [...[...table.tHead.rows].at(-1).cells];
    // Lists of names and values mix kinds of values in a column, which have no order.
    if (original.length < 5 || heads.filter((head) => head.classList.contains("right")).length < 2) return;
    heads.forEach((head, column) => {
      if (!head.textContent) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const way = NEXT[head.getAttribute("aria-sort")];
        heads.forEach((each) => each.hasAttribute("aria-sort") && each.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", way);
        const text = (cell) => cell.querySelector("time")?.dateTime ?? cell.textContent.trim();
        const rows = original.map((row) => [key(text(row.cells[column])), row]);
        const sign = way === "ascending" ? 1 : -1;
        // Missing values come last in both orders.
        if (way !== "none") rows.sort(([a], [b]) => (a === null) - (b === null) || sign * order(a, b));
        body.append(...rows.map(([, row]) => row));
      });
    });
  });
})();
sortTables(document);
// On paper a table cannot scroll: one that is too wide is continued below, with the columns that are left.
const fitTables = (() => {
  const without = (table, columns) => {
    const copy = table.cloneNode(true);
    copy.classList.remove("unfit");
    copy.classList.add("fitted");
    [...copy.rows].forEach((row) => [...row.cells].forEach((cell, at) => columns.includes(at) || cell.remove()));
    return copy;
  };
  const parts = (table, room) => {
    const heads = [...table.tHead.rows[0].cells];
    const widths = heads.map((head) => Math.ceil(head.getBoundingClientRect().width));
    const first = heads.findIndex((head) => head.textContent.trim());
    // What names a row stands in each part: columns without a heading, and the first with one if it has words.
    const keys = heads.map((_, at) => at).slice(0, first + (first && heads[first].classList.contains("right") ? 0 : 1));
    const taken = keys.reduce((sum, at) => sum + widths[at], 0);
    const found = [];
    let left = 0;
    const empty = (at) => [...table.rows].every((row) => !row.cells[at].textContent.trim());
    for (let at = keys.length; at < heads.length; at += 1) {
      if (empty(at)) continue; // it takes what room is left
      if (!found.length || left < widths[at]) {
        found.push([...keys]);
        left = room - taken;
      }
      found.at(-1).push(at);
      left -= widths[at];
    }
    return found;
  };
  return (root, on) => {
    root.querySelectorAll("table.fitted").forEach((table) => table.remove());
    root.querySelectorAll("table.unfit").forEach((table) => table.classList.remove("unfit"));
    if (!on) return;
    root.querySelectorAll(".scroll > table").forEach((table) => {
      const room = table.parentElement.clientWidth;
      const plain = table.tHead && ![...table.rows].some((row) => row.cells.length !== table.rows[0].cells.length);
      if (!plain || !room || table.offsetWidth <= room) return;
      const copies = parts(table, room).map((columns) => without(table, columns));
      copies.slice(1).forEach((copy) => copy.caption?.append(" (continued)"));
      table.after(...copies);
      table.classList.add("unfit");
    });
  };
})();
