// The parts of Observable Plot that charts.js draws with; the bundle leaves out everything else.
export {axisX, axisY, barX, dot, gridX, gridY, line, link, plot, pointer, rect, ruleX, ruleY, stackX, text, tip} from "@observablehq/plot";
