// What reports draw with, and nothing else of ECharts.
import { BarChart, CustomChart, LineChart, ParallelChart, ScatterChart } from "echarts/charts";
import { AriaComponent, GridComponent, ParallelComponent, TooltipComponent } from "echarts/components";
import { init, use } from "echarts/core";
import { SVGRenderer } from "echarts/renderers";

use([
  AriaComponent,
  BarChart,
  CustomChart,
  GridComponent,
  LineChart,
  ParallelChart,
  ParallelComponent,
  ScatterChart,
  SVGRenderer,
  TooltipComponent,
]);

export { init };
