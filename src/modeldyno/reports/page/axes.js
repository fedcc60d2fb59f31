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
  // Round ticks of a logarithmic axis: 1, 2 and 5, or powers of ten if those are too many.
  const rounded = (low, high) => {
    const steps = high / low > 2e3 ? [1] : high / low > 30 ? [1, 3] : high / low > 4 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 8];
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
      steps.forEach((step) => found.push(Number((step * 10 ** power).toPrecision(6))));
    }
    return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  };
  const ranged = (scale, values, size, tight) => {
    if (scale.categories) return { type: "category", data: scale.categories };
    const label = { formatter: (v) => digits(v) };
    if (scale.logarithmic) {
      const some = values.filter((v) => v > 0).map((v) => v / size);
      const [low, high] = [Math.min(...some), Math.max(...some)];
      const logBase = high / low <= 512 && some.every((v) => Number.isInteger(Math.log2(v))) ? 2 : 10;
      if (logBase === 10) {
        const room = Math.min(1.25, (high / low) ** 0.1);
        const customValues = rounded(low / room, high * room);
        return { type: "log", logBase, min: low / room, max: high * room, axisTick: { customValues }, axisLabel: { ...label, customValues } };
      }
      const power = (v, round) => logBase ** round(Math.log(v) / Math.log(logBase) + (round === Math.floor ? 1e-9 : -1e-9));
      return { type: "log", logBase, min: power(low, Math.floor), max: power(high, Math.ceil), axisLabel: label };
    }
    const [low, high] = [Math.min(...values), Math.max(...values)];
    if (tight) {
      const ends = { min: low / size, max: high / size };
      return { type: "value", ...ends, axisLabel: { ...label, showMinLabel: low === 0, showMaxLabel: false } };
    }
    return { type: "value", scale: low > 0.6 * high || low < 0, axisLabel: label };
  };
  const merged = (one, other) => ({ ...one, ...other, axisLabel: { ...one.axisLabel, ...other.axisLabel } });

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
      if (vertical ? place < x - 1 || place > x + width + 1 : place < y - 1 || place > y + height + 1) return null;
      const right = place > x + width / 2;
      const line = vertical
        ? { x1: place, x2: place, y1: y, y2: y + height }
        : { x1: x, x2: x + width, y1: place, y2: place };
      const text = vertical
        ? { x: place + (right ? -5 : 5), y: y + 2 + 14 * (one.row || 0), align: right ? "right" : "left", verticalAlign: "top" }
        : one.beside
          ? { x: x + width + 5, y: place, align: "left", verticalAlign: "middle" }
          : { x: x + width - 2, y: place - 3, align: "right", verticalAlign: place - y < 16 ? "top" : "bottom" };
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
            style: { x: Math.max(from, x) + 5, y: y + 4, text: one.name, fill: colours.soft, fontSize: 11, fontFamily: FONT },
          },
        ],
      };
    },
  });

  return { FONT, SYMBOLS, DASHES, state, isCloud, base, grid, axis, across, upwards, ranged, merged, rule, band };
})();
