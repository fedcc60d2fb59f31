"use strict";
// Convert charts to ECharts options: one function per kind of chart.
const charts = (() => {
  const { digits, shown, unit, titled, finite } = units;
  const { FONT, SYMBOLS, DASHES, isCloud, base, grid, axis, across, upwards, ranged, merged, rule, band, labels } = axes;

  const SHORT = 8; // most characters of a name beside a plot
  const LABEL = 24; // most characters of the name of a point
  const shortened = (name) => (name.length > LABEL ? `\u2026${name.slice(1 - LABEL)}` : name);
  // One thing has one colour in every chart where its data say so.
  const coloured = (colours, one, place, cloud) => (cloud ? colours.list[6] : colours.list[(one.tint ?? place) % colours.list.length]);

  const plot = (picture, colours, width, hidden) => {
    const shownSeries = picture.series.map((one, place) => ({ ...one, place })).filter((one) => !hidden.has(one.place));
    const [xAxis, yAxis] = picture.axes;
    const [xSize, ySize] = [xAxis?.size ?? 1, yAxis?.size ?? 1];
    const series = [];
    picture.bands.forEach((one) => series.push(band(colours, one, xSize)));
    shownSeries.forEach((one) => {
      const cloud = isCloud(one);
      const colour = coloured(colours, one, one.place, cloud);
      const hollow = new Set(one.hollow);
      // Step lines have ends of levels, not points.
      const steps = one.joined && one.x.some((x, at) => at && x === one.x[at - 1]);
      const many = steps || one.x.length > 60;
      series.push({
        type: one.joined ? "line" : "scatter",
        name: one.name,
        data: one.x.map((x, at) => ({
          value: [x === null ? null : x / xSize, one.y[at] === null ? null : one.y[at] / ySize],
          name: one.labels ? one.labels[at] : "",
          itemStyle: hollow.has(at) ? { color: colours.back, borderColor: colour, borderWidth: 2 } : undefined,
          raw: [x, one.y[at], one.low ? one.low[at] : null, one.high ? one.high[at] : null],
        })),
        color: colour,
        symbol: cloud ? "circle" : SYMBOLS[one.place % SYMBOLS.length],
        symbolSize: one.joined && many ? 0 : cloud ? 5 : one.marked ? 9 : 7,
        showSymbol: !(one.joined && many),
        step: picture.stacked ? "end" : false,
        stack: picture.stacked ? "all" : undefined,
        areaStyle: picture.stacked ? { opacity: 0.55 } : undefined,
        lineStyle: {
          width: picture.stacked ? 0.5 : one.marked ? 2.5 : many ? 1 : 1.75,
          type: picture.stacked || one.marked ? "solid" : DASHES[one.place % DASHES.length],
        },
        itemStyle: { opacity: cloud ? 0.45 : 1 },
        emphasis: { disabled: one.x.length > 400 },
        z: one.marked ? 5 : cloud ? 2 : 3,
        tooltip: {
          formatter: ({ data }) =>
            [
              one.name,
              data.name,
              `${picture.x.label}: ${shown(picture.x, data.raw[0])}`,
              `${picture.y.label}: ${shown(picture.y, data.raw[1])}` +
                (data.raw[2] === null ? "" : ` (${shown(picture.y, data.raw[2])} to ${shown(picture.y, data.raw[3])})`),
            ]
              .filter((line, at, all) => line && all.indexOf(line) === at)
              .join("\n"),
        },
      });
      if (one.low && one.low.length) {
        series.push({
          type: "custom",
          silent: true,
          z: 2,
          data: one.x.map((x, at) => [x / xSize, one.low[at] === null ? NaN : one.low[at] / ySize, one.high[at] === null ? NaN : one.high[at] / ySize]),
          encode: { x: 0, y: [1, 2] },
          clip: true, // an end may lie beyond the edge
          renderItem: (params, api) => {
            const low = api.coord([api.value(0), api.value(1)]);
            const high = api.coord([api.value(0), api.value(2)]);
            if (!Number.isFinite(low[1]) || !Number.isFinite(high[1])) return null;
            return { type: "line", shape: { x1: low[0], y1: low[1], x2: high[0], y2: high[1] }, style: { stroke: colour, lineWidth: 1.5, opacity: 0.7 } };
          },
        });
      }
    });
    const named = shownSeries.flatMap((one) =>
      one.x.slice(0, one.named ?? 0).map((x, at) => ({ at: [x / xSize, one.y[at] / ySize], text: shortened(one.labels[at].split(", ")[0]) })),
    );
    if (named.length) {
      const placed = (one) => one.x.map((x, at) => [x / xSize, one.y[at] / ySize]);
      const [lines, points] = [shownSeries.filter((one) => one.joined), shownSeries.filter((one) => !one.joined)];
      series.push(labels(colours, named, points.flatMap(placed), lines.map(placed)));
    }
    const rows = {};
    // A short name stands beside the plot, where no line runs through it.
    const isBeside = (one) => !one.vertical && !one.beyond && one.name.length <= SHORT;
    const right = Math.max(grid.right, ...picture.rules.filter(isBeside).map((one) => 10 + 7 * one.name.length));
    picture.rules.forEach((one) => {
      const stacked = one.vertical || one.beyond ? `${one.vertical} ${one.beyond}` : "";
      const row = stacked ? ((rows[stacked] = (rows[stacked] ?? -1) + 1) % 6) : 0;
      series.push(rule(colours, { ...one, row, beside: isBeside(one) }, one.vertical ? xSize : ySize, one.vertical, colours.text));
    });
    return {
      ...base(colours, picture.description),
      grid: { ...grid, right },
      xAxis: merged(across(colours, xAxis?.title ?? picture.x.label), ranged(picture.x, xAxis)),
      yAxis: merged(upwards(colours, yAxis?.title ?? picture.y.label), ranged(picture.y, yAxis)),
      series,
    };
  };

  const GAP = 0.5; // between the bars and what lies beyond them, in bars
  const bins = (picture, colours) => {
    const total = picture.counts.reduce((sum, n) => sum + n, picture.beyond);
    const count = picture.counts.length;
    const place = (value) => {
      if (picture.beyond && value >= picture.edges[count] && value <= picture.reach) return count + GAP + 0.5;
      const at = picture.edges.findIndex((edge, i) => i < count && value >= edge && value < picture.edges[i + 1]);
      return at < 0 ? null : at + (value - picture.edges[at]) / (picture.edges[at + 1] - picture.edges[at]);
    };
    const marks = picture.marks.map((one) => ({ ...one, at: place(one.at) })).filter((one) => one.at !== null);
    marks.sort((a, b) => a.at - b.at);
    // What lies beyond the last edge stands apart, as its bar is of no width.
    const bars = picture.counts.map((n, at) => [at, at + 1, n]);
    if (picture.beyond) bars.push([count + GAP, count + GAP + 1, picture.beyond]);
    const end = picture.beyond ? count + GAP + 1 : count;
    const after = picture.labels[picture.labels.length - 1];
    const ticks = [...picture.labels.keys()].filter((at) => at <= count);
    const customValues = picture.beyond ? [...ticks.slice(0, -1), count, count + GAP + 0.5] : ticks;
    const named = (at) => (at > count ? `> ${after}` : picture.labels[at] ?? "");
    return {
      ...base(colours, picture.description),
      grid: { ...grid, right: 24 },
      xAxis: across(colours, picture.scale.label, {
        type: "value",
        min: 0,
        max: end,
        axisTick: { show: true, customValues, lineStyle: { color: colours.line } },
        axisLabel: { color: colours.soft, fontSize: 11, hideOverlap: true, customValues, formatter: named },
      }),
      yAxis: upwards(colours, picture.counted, { type: "value", minInterval: 1 }),
      series: [
        {
          type: "custom",
          encode: { x: [0, 1], y: 2 },
          data: bars,
          renderItem: (params, api) => {
            const [x0, y0] = api.coord([api.value(0), api.value(2)]);
            const [x1, y1] = api.coord([api.value(1), 0]);
            const height = api.value(2) ? Math.max(y1 - y0, 1.5) : 0;
            const beyond = params.dataIndex === count;
            const style = beyond ? { fill: colours.shade, stroke: colours.list[0], lineWidth: 1, lineDash: [3, 2] } : { fill: colours.list[0] };
            return { type: "rect", shape: { x: x0 + 1, y: y1 - height, width: Math.max(1, x1 - x0 - 2), height }, style };
          },
          tooltip: {
            formatter: ({ dataIndex: at }) => {
              const within = at < count ? `${picture.labels[at]} to ${picture.labels[at + 1]}` : `above ${after}, up to ${shown(picture.scale, picture.reach)}`;
              return `${within}\n${digits(bars[at][2])} ${picture.counted}, ${digits((100 * bars[at][2]) / total)}%`;
            },
          },
        },
        ...marks.map((one, row) => rule(colours, { ...one, row }, 1, true, colours.text)),
      ],
    };
  };

  const stack = (picture, colours, width, hidden) => {
    const sums = picture.bars.map((_, bar) =>
      picture.parts.reduce((sum, part) => sum + (part.x.includes(bar) ? part.y[part.x.indexOf(bar)] : 0), 0),
    );
    const [size, suffix] = unit(picture.scale, sums);
    return {
      ...base(colours, picture.description),
      height: 64 + 30 * picture.bars.length,
      grid: { ...grid, top: 8 },
      xAxis: across(colours, titled(picture.scale, suffix), {
        type: "value",
        splitLine: { show: true, lineStyle: { color: colours.shade } },
        axisLabel: { color: colours.soft, fontSize: 11, hideOverlap: true, formatter: digits },
      }),
      yAxis: axis(colours, {
        type: "category",
        inverse: true,
        data: picture.bars,
        axisLabel: { color: colours.text, fontSize: 12, width: width < 500 ? 120 : 220, overflow: "truncate", interval: 0 },
      }),
      series: picture.parts
        .map((part, place) => ({
          type: "bar",
          stack: "all",
          name: part.name,
          color: coloured(colours, part, place),
          barMaxWidth: 20,
          itemStyle: { borderColor: colours.back, borderWidth: 0.5 },
          data: picture.bars.map((_, bar) => {
            const at = part.x.indexOf(bar);
            return at < 0 ? null : part.y[at] / size;
          }),
          tooltip: {
            formatter: ({ dataIndex: bar }) => {
              const value = part.y[part.x.indexOf(bar)];
              return `${picture.bars[bar]}\n${part.name}: ${shown(picture.scale, value)}, ${digits((100 * value) / sums[bar])}%`;
            },
          },
        }))
        .filter((_, place) => !hidden.has(place)),
    };
  };

  const tree = (picture, colours, width, hidden, redraw, focus) => {
    const cells = [];
    const walk = (node, depth, from, path) => {
      cells.push({ node, depth, from, to: from + node.value, path });
      let at = from;
      node.children.forEach((child) => {
        walk(child, depth + 1, at, [...path, child.name]);
        at += child.value;
      });
    };
    walk(picture.root, 0, 0, [picture.root.name]);
    const depth = Math.max(...cells.map((cell) => cell.depth)) + 1;
    const at = focus.node ?? cells[0];
    const [size, suffix] = unit(picture.scale, [picture.root.value]);
    const own = (node) => Math.max(0, node.value - node.children.reduce((sum, child) => sum + child.value, 0));
    const most = Math.max(...cells.map((cell) => own(cell.node))) || 1;
    return {
      ...base(colours, picture.description),
      height: 58 + 28 * depth,
      grid: { ...grid, top: 4, right: 12 },
      xAxis: across(colours, titled(picture.scale, suffix), {
        type: "value",
        min: at.from / size,
        max: at.to / size,
        axisLabel: { color: colours.soft, fontSize: 11, hideOverlap: true, showMaxLabel: true, formatter: digits },
      }),
      yAxis: { type: "value", min: 0, max: depth, inverse: true, show: false },
      series: [
        {
          type: "custom",
          clip: true,
          encode: { x: [0, 1], y: 2 },
          data: cells.map((cell) => [cell.from / size, cell.to / size, cell.depth]),
          renderItem: (params, api) => {
            const cell = cells[params.dataIndex];
            const box = params.coordSys;
            const [x0, y0] = api.coord([api.value(0), cell.depth]);
            const [x1, y1] = api.coord([api.value(1), cell.depth + 1]);
            const left = Math.max(x0, box.x);
            const right = Math.min(x1, box.x + box.width);
            if (right - left < 0.4) return null;
            const inside = right - left;
            return {
              type: "rect",
              shape: { x: left, y: y0, width: Math.max(0.5, inside - 1), height: y1 - y0 - 1 },
              style: { fill: colours.list[0], opacity: 0.14 + 0.5 * Math.sqrt(own(cell.node) / most) },
              textContent: inside < 26 ? undefined : {
                style: { text: cell.node.name, fill: colours.text, fontSize: 11, fontFamily: FONT, width: inside - 10, overflow: "truncate", ellipsis: "\u2026" },
              },
              textConfig: { position: "insideLeft", distance: 5 },
            };
          },
          tooltip: {
            formatter: ({ dataIndex }) => {
              const { node, path } = cells[dataIndex];
              const part = (100 * node.value) / picture.root.value;
              return [path.slice(1).join(" \u203a ") || node.name, node.detail, `${shown(picture.scale, node.value)}, ${digits(part)}% of the whole`,
                node.children.length ? `of its own: ${shown(picture.scale, own(node))}` : ""].filter(Boolean).join("\n");
            },
          },
        },
      ],
      clicked: ({ dataIndex }) => {
        focus.node = focus.node && cells[dataIndex].from === focus.node.from && cells[dataIndex].to === focus.node.to ? undefined : cells[dataIndex];
        redraw();
      },
    };
  };

  const OUTCOMES = { better: "good", worse: "bad", same: "soft", undecided: "doubt" };
  // Candidate ticks of the change axis, in order of preference.
  const CHANGES = [0, -0.5, 1, -0.9, 9, -0.99, 99, 999, -0.2, 0.25, -0.8, 4, -0.3, 0.5, -0.1, 0.1, 0.2, -0.05, 0.05, -0.02, 0.02, -0.01, 0.01];
  const forest = (picture, colours, width) => {
    // On a logarithmic axis, half is as far from no change as double.
    const log = (value) => Math.log(Math.max(1 + value, 1e-4));
    const logs = finite(picture.effects.flatMap((one) => [one.value, one.low, one.high, one.smallest, -one.smallest])).map(log);
    const [least, most] = [Math.min(...logs, -0.01), Math.max(...logs, 0.01)];
    const room = 0.05 * (most - least);
    const [from, to] = [least - room, most + room];
    const narrow = width < 500;
    const apart = (to - from) / (narrow ? 5 : 10);
    const customValues = CHANGES.reduce((kept, change) => {
      const at = log(change);
      return at >= from && at <= to && kept.every((other) => Math.abs(other - at) >= apart) ? [...kept, at] : kept;
    }, []);
    const ratio = (at) => {
      const change = Math.exp(at) - 1;
      return change >= 1.5 ? `\u00d7${digits(Number((1 + change).toPrecision(3)))}` : `${change > 1e-9 ? "+" : ""}${digits(Number((100 * change).toFixed(2)) || 0)}%`;
    };
    return {
      ...base(colours, picture.description),
      height: 70 + 26 * picture.effects.length,
      grid: { ...grid, top: 8 },
      xAxis: across(colours, "change from the baseline, by its ratio", {
        type: "value",
        min: from,
        max: to,
        axisTick: { customValues },
        splitLine: { show: true, lineStyle: { color: colours.shade } },
        axisLabel: { color: colours.soft, fontSize: 11, hideOverlap: true, customValues, formatter: ratio },
      }),
      yAxis: axis(colours, {
        type: "category",
        inverse: true,
        data: picture.effects.map((one) => one.name),
        axisLabel: { color: colours.text, fontSize: 12, width: narrow ? 110 : 240, overflow: "truncate", interval: 0 },
      }),
      series: [
        {
          type: "custom",
          encode: { x: 1, y: 0 },
          data: picture.effects.map((one, at) => [at, log(one.value)]),
          renderItem: (params, api) => {
            const one = picture.effects[params.dataIndex];
            const at = (value) => api.coord([log(value), params.dataIndex])[0];
            const { x, width: wide } = params.coordSys;
            const y = api.coord([0, params.dataIndex])[1];
            const half = api.size([0, 1])[1] / 2;
            const colour = colours[OUTCOMES[one.outcome] ?? "soft"];
            const low = one.low === null ? x : Math.max(x, at(one.low));
            const high = one.high === null ? x + wide : Math.min(x + wide, at(one.high));
            const inside = { x: at(-one.smallest), width: at(one.smallest) - at(-one.smallest) };
            return {
              type: "group",
              children: [
                { type: "rect", silent: true, shape: { ...inside, y: y - half, height: 2 * half }, style: { fill: colours.shade } },
                { type: "line", shape: { x1: at(0), x2: at(0), y1: y - half, y2: y + half }, style: { stroke: colours.line } },
                { type: "line", shape: { x1: low, x2: high, y1: y, y2: y }, style: { stroke: colour, lineWidth: 2 } },
                one.outcome === "undecided"
                  ? { type: "circle", shape: { cx: at(one.value), cy: y, r: 4.5 }, style: { fill: colours.back, stroke: colour, lineWidth: 2 } }
                  : { type: "rect", shape: { x: at(one.value) - 4.5, y: y - 4.5, width: 9, height: 9 }, style: { fill: colour } },
              ],
            };
          },
          tooltip: {
            formatter: ({ dataIndex }) => {
              const one = picture.effects[dataIndex];
              const percent = (v) => (v === null ? "?" : `${v > 0 ? "+" : ""}${digits(100 * v)}%`);
              return `${one.name}: ${one.outcome}\n${percent(one.value)} (${percent(one.low)} to ${percent(one.high)})`;
            },
          },
        },
      ],
    };
  };

  const parallel = (picture, colours, width) => {
    const tall = width < 560;
    const named = (scale, at) => picture.axes[at]?.title ?? scale.label;
    const place = (scale, at, value) => {
      if (value === null) return "-";
      return scale.categories ? scale.categories[value] ?? "-" : value / picture.axes[at].size;
    };
    const rows = picture.names.map((name, line) => ({
      name,
      value: picture.scales.map((scale, at) => place(scale, at, picture.values[at][line])),
      lineStyle: line >= picture.names.length - picture.marked ? { color: colours.list[1], width: 3, opacity: 1 } : {},
    }));
    const faint = Math.max(0.05, Math.min(0.6, 25 / rows.length));
    const aligned = (dim, name) => { // a long name would be cut at the edge
      if (dim === 0 && name.length > 11) return { align: "left", width: room * 0.7 };
      return dim === picture.scales.length - 1 && name.length > 17 ? { align: "right", width: room * 0.7 } : {};
    };
    const room = (tall ? 120 : width / picture.scales.length) - 8;
    return {
      ...base(colours, picture.description),
      height: tall ? 70 * picture.scales.length + 40 : 360,
      parallel: tall
        ? { layout: "vertical", left: 24, right: 30, top: 34, bottom: 26 }
        : { left: 34, right: 56, top: 54, bottom: 24 },
      parallelAxis: picture.scales.map((scale, dim) => ({
        dim,
        name: named(scale, dim),
        nameLocation: tall ? "start" : "end",
        nameGap: tall ? 0 : 14,
        nameTextStyle: { color: colours.text, fontSize: 12, textBorderColor: colours.back, textBorderWidth: 3, width: room, overflow: tall ? "none" : "break", ...(tall ? { align: "left", verticalAlign: "bottom", padding: [0, 0, 12, 0] } : aligned(dim, named(scale, dim))) },
        axisLine: { lineStyle: { color: colours.line } },
        axisTick: { show: false },
        z: 10,
        ...merged(
          { axisLabel: { color: colours.text, fontSize: 11, hideOverlap: true, textBorderColor: colours.back, textBorderWidth: 3 } },
          ranged(scale, picture.axes[dim]),
        ),
      })),
      series: [
        {
          type: "parallel",
          data: rows,
          lineStyle: { color: colours.list[0], width: 1, opacity: faint },
          smooth: false,
          progressive: 0,
          emphasis: { disabled: true },
        },
      ],
    };
  };

  const waterfall = (picture, colours, width) => {
    const steps = picture.steps;
    const ends = finite(steps.flatMap((one) => [one.begin, one.end]));
    const [size, suffix] = unit(picture.scale, ends);
    const [low, high] = [Math.min(0, ...ends) / size, Math.max(0, ...ends) / size];
    const narrow = width < 500;
    const fill = { sum: colours.text, rest: colours.line, part: colours.list[0], less: colours.list[1] };
    return {
      ...base(colours, picture.description),
      height: 64 + 28 * steps.length,
      grid: { ...grid, top: 8 },
      xAxis: across(colours, titled(picture.scale, suffix), {
        type: "value",
        min: low,
        max: high + (high - low) * (narrow ? 0.3 : 0.14),
        splitLine: { show: true, lineStyle: { color: colours.shade } },
        axisLabel: { color: colours.soft, fontSize: 11, hideOverlap: true, showMaxLabel: false, showMinLabel: low === 0, formatter: digits },
      }),
      yAxis: axis(colours, {
        type: "category",
        inverse: true,
        data: steps.map((one) => one.name),
        axisLabel: { color: colours.text, fontSize: 12, width: narrow ? 120 : 240, overflow: "truncate", interval: 0 },
      }),
      series: [
        {
          type: "custom",
          encode: { x: [1, 2], y: 0 },
          data: steps.map((one, row) => [row, one.begin / size, one.end / size]),
          renderItem: (params, api) => {
            const row = params.dataIndex;
            const one = steps[row];
            const at = (value) => api.coord([value / size, row])[0];
            const y = api.coord([0, row])[1];
            const step = api.size([0, 1])[1];
            const [left, right] = [Math.min(at(one.begin), at(one.end)), Math.max(at(one.begin), at(one.end))];
            const unknown = one.text[0] === "unknown";
            const whisker = one.low !== null && one.high !== null && one.kind !== "sum";
            const ends = whisker ? [one.low, one.high].map((value) => Math.min(at(high * size), Math.max(at(low * size), at(value)))) : [left, right];
            const children = [
              { type: "rect", shape: { x: left, y: y - step * 0.32, width: Math.max(unknown ? 0 : 1.5, right - left), height: step * 0.64 }, style: { fill: fill[one.kind === "part" && one.end < one.begin ? "less" : one.kind] } },
              {
                type: "text", silent: true,
                style: { x: Math.max(right, ends[1]) + 6, y, text: one.text[0], fill: unknown ? colours.soft : colours.text, fontSize: 11, fontFamily: FONT, align: "left", verticalAlign: "middle", fontWeight: one.kind === "sum" ? "bold" : "normal", stroke: colours.back, lineWidth: 3 },
              },
            ];
            if (row + 1 < steps.length)
              children.push({ type: "line", silent: true, shape: { x1: at(one.end), x2: at(one.end), y1: y + step * 0.32, y2: y + step * 0.68 }, style: { stroke: colours.soft, lineWidth: 1 } });
            if (whisker)
              children.push({ type: "line", silent: true, z2: 5, shape: { x1: ends[0], x2: ends[1], y1: y + step * 0.2, y2: y + step * 0.2 }, style: { stroke: colours.text, lineWidth: 1.5, opacity: 0.6 } });
            return { type: "group", children };
          },
          tooltip: { formatter: ({ dataIndex }) => [steps[dataIndex].name, steps[dataIndex].text.filter(Boolean).join(", ")].join("\n") },
        },
      ],
    };
  };

  return { coloured, plot, bins, stack, tree, forest, parallel, waterfall };
})();
