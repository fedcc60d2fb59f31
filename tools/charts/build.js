// Writes the script, its licences and their digests to where the package keeps them: npm ci && npm run build
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const out = new URL("../../src/modeldyno/reports/page/", import.meta.url);
const at = (name) => new URL(name, out);

const { outputFiles } = await build({
  entryPoints: ["charts.js"],
  bundle: true,
  charset: "ascii",
  define: { "process.env.NODE_ENV": '"production"', __DEV__: "false" },
  format: "iife",
  globalName: "echarts",
  legalComments: "none",
  minify: true,
  target: "es2020",
  write: false,
});
const notice = "/*! Apache ECharts, ZRender, tslib: see echarts.LICENSE */\n";
// Inside of <script>, nothing may look like its end or like a comment of HTML.
const script = notice + outputFiles[0].text.replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
const licences = ["echarts", "zrender", "tslib"]
  .map((name) => {
    const from = `node_modules/${name}/`;
    const { version } = JSON.parse(readFileSync(`${from}package.json`));
    const text = name === "tslib" ? "LICENSE.txt" : "LICENSE";
    const notices = name === "echarts" ? readFileSync(`${from}NOTICE`, "utf8") : "";
    return `${name} ${version}\n\n${notices}${readFileSync(from + text, "utf8")}`;
  })
  .join(`\n${"-".repeat(80)}\n\n`);
writeFileSync(at("echarts.js"), script);
writeFileSync(at("echarts.LICENSE"), licences);
writeFileSync(at("echarts.sha256"), createHash("sha256").update(script).digest("hex") + "  echarts.js\n");
console.log(`${script.length} bytes`);
