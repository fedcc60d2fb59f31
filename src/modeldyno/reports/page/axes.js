"use strict";
// Shared by all charts: distinct colours, axes, reference lines and bands.
const axes = (() => {
  const { digits } = units;
  const SYMBOLS = ["circle", "triangle", "rect", "diamond", "emptyCircle", "emptyTriangle", "emptyRect"];
  const DASHES = ["solid", "dashed", "dotted", [8, 3, 2, 3], [2, 2], [12, 4], [6, 2, 2, 2, 2, 2]];

  const FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif";

  // Patterns in addition to colours, for bars; on by a button, or if the system prefers more contrast.
  const state = { patterns: matchMedia("(prefers-contrast: more)").matches };
  // Many unconnected points are drawn as a faint cloud.
  const isCloud = (one) => !one.joined && !one.marked && one.x.length > 40;

  const base = (colours, description) => ({
    animation: false,
    aria: { enabled: true, label: { description }, decal: { show: state.patterns } },
    color: colours.list,
    backgroundColor: "transparent",
    textStyle: { fontFamily: FONT, color: colours.text },
    tooltip: {
      renderMode: "richText",
      trigger: "item",
      confine: true,
      backgroundColor: colours.back,
      borderColor: colours.line,
      borderWidth: 1,
      padding: [6, 9],
      textStyle: { color: colours.text, fontSize: 12, lineHeight: 17 },
    },
  });
  const grid = { left: 4, right: 16, top: 10, bottom: 8, outerBoundsMode: "same", outerBoundsContain: "all" };
  const axis = (colours, more) => ({
    axisLine: { show: true, onZero: false, lineStyle: { color: colours.line } },
    axisTick: { show: false },
    axisLabel: { color: colours.soft, fontSize: 11, hideOverlap: true },
    splitLine: { show: false },
    nameTextStyle: { color: colours.soft, fontSize: 12 },
    ...more,
  });
  const across = (colours, name, more) =>
    axis(colours, { name, nameLocation: "middle", nameGap: 26, ...more });
  const upwards = (colours, name, more) =>
    axis(colours, {
      name,
      nameLocation: "middle",
      nameRotate: 90,
      nameGap: 14,
      axisLine: { show: false },
      splitLine: { show: true, lineStyle: { color: colours.shade } },
      ...more,
      nameTextStyle: { color: colours.soft, fontSize: 12 },
    });
  // Where an axis begins and ends, and its ticks, are those of the page's data: base/report/axes.py.
  const ranged = (scale, drawn) => {
    if (scale.categories) return { type: "category", data: scale.categories };
    const customValues = drawn.ticks.map(([at]) => at);
    const near = (value, at) => Math.abs(value - at) <= 1e-6 * (Math.abs(at) || drawn.high - drawn.low);
    const formatter = (value) => drawn.ticks.find(([at]) => near(value, at))?.[1] ?? "";
    return {
      type: drawn.logarithmic ? "log" : "value", min: drawn.low, max: drawn.high,
      axisTick: { show: false, customValues }, axisLabel: { formatter, customValues },
    };
  };
  const merged = (one, other) => ({ ...one, ...other, axisLabel: { ...one.axisLabel, ...other.axisLabel } });

  // An arrow at the edge, for a reference that lies beyond it.
  const edge = (colours, one, vertical, box) => {
    const up = one.beyond > 0;
    const arrow = vertical ? (up ? "\u2192" : "\u2190") : up ? "\u2191" : "\u2193";
    const place = vertical
      ? { x: up ? box.x + box.width - 2 : box.x + 2, y: box.y + 2 + 14 * (one.row || 0), align: up ? "right" : "left", verticalAlign: "top" }
      : { x: box.x + box.width - 2, y: up ? box.y + 2 + 14 * (one.row || 0) : box.y + box.height - 2 - 14 * (one.row || 0), align: "right", verticalAlign: up ? "top" : "bottom" };
    const text = vertical && !up ? `${arrow} ${one.name}` : `${one.name} ${arrow}`;
    return { type: "text", style: { ...place, text, fill: colours.text, fontSize: 11, fontFamily: FONT, stroke: colours.back, lineWidth: 3 } };
  };

  // A reference line across the chart, with its name kept inside.
  const rule = (colours, one, size, vertical, colour) => ({
    type: "custom",
    silent: true,
    z: 6,
    encode: vertical ? { x: 0, y: [] } : { x: [], y: 0 },
    data: [[one.at / size]],
    renderItem: (params, api) => {
      const { x, y, width, height } = params.coordSys;
      const place = vertical ? api.coord([api.value(0), 0])[0] : api.coord([0, api.value(0)])[1];
      if (one.beyond) return edge(colours, one, vertical, { x, y, width, height });
      if (vertical ? place < x - 1 || place > x + width + 1 : place < y - 1 || place > y + height + 1) return null;
      const right = place > x + width / 2;
      const line = vertical
        ? { x1: place, x2: place, y1: y, y2: y + height }
        : { x1: x, x2: x + width, y1: place, y2: place };
      const text = vertical
        ? { x: place + (right ? -5 : 5), y: y + 2 + 14 * (one.row || 0), align: right ? "right" : "left", verticalAlign: "top" }
        : one.beside
          ? { x: x + width + 5, y: place, align: "left", verticalAlign: "middle" }
          : { ...(one.left ? { x: x + 4, align: "left" } : { x: x + width - 2, align: "right" }), y: place - 3, verticalAlign: place - y < 16 ? "top" : "bottom" };
      return {
        type: "group",
        children: [
          { type: "line", shape: line, style: { stroke: colour, lineWidth: 1.25, lineDash: [5, 4] } },
          {
            type: "text",
            style: { ...text, text: one.name, fill: colour, fontSize: 11, fontFamily: FONT, stroke: colours.back, lineWidth: 3 },
          },
        ],
      };
    },
  });
  const band = (colours, one, size) => ({
    type: "custom",
    silent: true,
    z: 0,
    encode: { x: [0, 1], y: [] },
    data: [[one.low / size, one.high / size]],
    renderItem: (params, api) => {
      const { x, y, width, height } = params.coordSys;
      const from = Math.max(x, api.coord([api.value(0), 0])[0]);
      const to = Math.min(x + width, api.coord([api.value(1), 0])[0]);
      return {
        type: "group",
        children: [
          { type: "rect", shape: { x: from, y, width: Math.max(1, to - from), height }, style: { fill: colours.shade } },
          {
            type: "text",
            style: {
              ...(from > x + width / 2 ? { x: to - 5, align: "right" } : { x: from + 5, align: "left" }),
              y: y + 4, text: one.name, fill: colours.soft, fontSize: 11, fontFamily: FONT, stroke: colours.back, lineWidth: 2,
            },
          },
        ],
      };
    },
  });

  // Names of points, each where it covers no other and no point, with a line to its point.
  const PLACES = [[8, -14], [8, 18], [-8, -14], [-8, 18], [16, -30], [-16, -30], [16, 34], [-16, 34], [24, -48], [-24, -48], [24, 52], [-24, 52]];
  const labels = (colours, named, points, lines) => ({
    type: "custom",
    silent: true,
    z: 7,
    encode: { x: [], y: [] },
    data: [[0]],
    renderItem: (params, api) => {
      const box = params.coordSys;
      const dots = points.map((one) => api.coord(one)).map(([x, y]) => [x - 5, y - 5, x + 5, y + 5]);
      lines.forEach((line) => {
        const places = line.map((one) => api.coord(one));
        places.slice(1).forEach(([x, y], at) => {
          const [fromX, fromY] = places[at];
          for (let part = 0; part < 1; part += 1 / 40) {
            const [midX, midY] = [fromX + part * (x - fromX), fromY + part * (y - fromY)];
            dots.push([midX - 3, midY - 3, midX + 3, midY + 3]);
          }
        });
      });
      const taken = [];
      const area = (a, b) => Math.max(0, Math.min(a[2], b[2]) - Math.max(a[0], b[0])) * Math.max(0, Math.min(a[3], b[3]) - Math.max(a[1], b[1]));
      const children = named.flatMap(({ at, text }) => {
        const [x, y] = api.coord(at);
        const wide = 6.3 * text.length;
        const rated = PLACES.map(([dx, dy], rank) => {
          const left = dx > 0 ? x + dx : x + dx - wide;
          const middle = y + dy;
          const own = [left, middle - 7, left + wide, middle + 7];
          const out = Math.max(0, box.x - own[0], own[2] - box.x - box.width, box.y - own[1], own[3] - box.y - box.height);
          const cost = 100 * out + rank + 5 * taken.reduce((sum, other) => sum + area(own, other), 0) + dots.reduce((sum, other) => sum + area(own, other), 0);
          return { cost, own, dx, middle };
        });
        const best = rated.reduce((one, other) => (other.cost < one.cost ? other : one));
        taken.push(best.own);
        const end = best.dx > 0 ? best.own[0] - 2 : best.own[2] + 2;
        return [
          { type: "line", shape: { x1: x, y1: y, x2: end, y2: best.middle }, style: { stroke: colours.soft, lineWidth: 1 } },
          { type: "text", style: { x: best.own[0], y: best.middle, text, align: "left", verticalAlign: "middle", fill: colours.text, fontSize: 11, fontFamily: FONT, stroke: colours.back, lineWidth: 3 } },
        ];
      });
      return { type: "group", children };
    },
  });

  return { FONT, SYMBOLS, DASHES, state, isCloud, base, grid, axis, across, upwards, ranged, merged, rule, band, labels };
})();
