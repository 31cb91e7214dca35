"""The look of a page: dark on light, system fonts, one column; prints, and fits a telephone."""

from __future__ import annotations

CSS = """
:root { --ink: #1d2126; --quiet: #626a73; --line: #dcdfe3; --wash: #f5f6f7; --accent: #24527a; color-scheme: light; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: #fff; color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .35rem; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; margin: 0 0 .6rem; }
h3 { font-size: .95rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
p { margin: 0 0 .7rem; }
section { margin-top: 2.6rem; padding-top: 1.3rem; border-top: 1px solid var(--line); }
.unfinished { border: 2px solid #a33; border-radius: .4rem; padding: 1rem 1.2rem; background: #fdf3f2; }
.caution { border-left: 4px solid #b36b00; padding: .4rem .8rem; background: #fff6e6; }
.lead, .note, .small { color: var(--quiet); }
.lead { font-size: 1.05rem; }
.note { max-width: 52rem; }
.small { font-size: .82rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .32rem .9rem .32rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--quiet); font-weight: 600; border-bottom-color: #b9bfc6; }
th:last-child, td:last-child { padding-right: 0; }
.name { display: block; min-width: 15rem; overflow-wrap: anywhere; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .18rem 1rem; margin: 0; font-size: .9rem; }
dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .8rem; margin: 0 0 1.2rem; }
.tile { background: var(--wash); border-radius: .4rem; padding: .7rem .9rem; }
.tile b { display: block; font-size: 1.45rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.tile span { color: var(--quiet); font-size: .85rem; }
.bar { display: block; min-width: 7rem; height: .55rem; margin-top: .45rem; background: var(--wash); }
.bar span { display: block; height: 100%; background: var(--accent); }
.stack { display: flex; }
.bar.stack .uncertain { background: #9db8cf; }
.bar.stack .absent { background: #d3d9df; }
.wide + .wide { margin-top: 1.2rem; }
.wide + p { margin-top: .7rem; }
.wide + h3, .small + h3 { margin-top: 1.2rem; }
.image { width: 100%; display: block; background: #000; border-radius: .25rem; }
.sheet { width: 100%; display: block; border: 1px solid var(--line); border-radius: .25rem; }
.example { display: grid; grid-template-columns: 14rem 1fr; gap: 0 1.6rem; padding: 1.3rem 0;
  border-top: 1px solid var(--line); }
.example:first-of-type { border-top: 0; padding-top: .3rem; }
.example figure { margin: 0; }
.example figcaption { margin-top: .4rem; }
.truth { margin: 0 0 .9rem; padding: 0; list-style: none; display: flex; flex-wrap: wrap; gap: .3rem; }
.truth li { background: #e8eef4; color: #173a59; border-radius: .25rem; padding: .08rem .5rem; font-size: .84rem; }
.reports { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: 1rem 1.4rem; }
.report { border-left: 3px solid var(--line); padding-left: .8rem; font-size: .92rem; overflow-wrap: anywhere; }
.report.reference { border-left-color: var(--accent); }
.report p { white-space: pre-line; }
.scale { display: block; position: relative; min-width: 5.5rem; height: 1rem; margin-top: .2rem;
  background: linear-gradient(var(--line), var(--line)) center / 100% 1px no-repeat; }
.scale span, .scale i, .scale b { position: absolute; display: block; }
.scale span { top: .32rem; height: .36rem; background: #9db8cf; }
.scale b { top: .1rem; width: 3px; height: .8rem; margin-left: -1.5px; background: var(--accent); }
.scale i { top: 0; width: 2px; height: 1rem; margin-left: -1px; background: #b4541c; }
.figure { font-variant-numeric: tabular-nums; white-space: nowrap; }
.figure .later { font-size: .82rem; margin-left: .25rem; }
details { margin-top: 1rem; }
details + h3 { margin-top: 1.8rem; }
summary { cursor: pointer; color: var(--accent); }
.marked { padding: 1rem 0; border-top: 1px solid var(--line); }
mark { background: #fbe7c6; color: inherit; border-radius: .15rem; padding: 0 .1rem; }
mark.grave { background: #f3c3b4; }
sup { font-size: .68rem; color: #8f2f12; margin-left: .1rem; }
.faults { margin: .7rem 0 0; padding-left: 1.4rem; font-size: .88rem; color: var(--quiet); }
.faults b { font-weight: 600; color: var(--ink); }
.faults .grave { color: #8f2f12; }
.bad { color: #8f2f12; font-weight: 600; }
.here { color: #1d6b3c; font-weight: 600; }
.later { color: var(--quiet); }
.edge { padding-left: .9rem; border-left: 1px solid var(--line); }
.number .small { overflow-wrap: normal; font-weight: 400; }
.dense table { font-size: .82rem; }
.dense th, .dense td { padding-right: .45rem; }
.dense thead .number { white-space: normal; vertical-align: bottom; }
.dense .small { font-size: .76rem; }
.threat { background: var(--wash); border-left: 4px solid var(--accent); padding: .7rem .9rem; }
.alarm { background: #fdeae4; border: 2px solid #a8320c; border-radius: .3rem; padding: .6rem .9rem; color: #6f1f05; }
.alarm p:last-child { margin-bottom: 0; }
div.alarm { margin-bottom: .7rem; }
.doubt { color: #7a5200; }
.chapter { margin-top: 2rem; }
.chapter > h3 { font-size: 1.05rem; margin-bottom: .5rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr)); gap: 1rem 1.4rem; }
.plots svg { width: 100%; height: auto; border: 1px solid var(--line); border-radius: .25rem; }
.plots + p, .dense + p, details + p { margin-top: .6rem; }
.shade { display: block; padding: 0 .35rem; border-radius: .15rem; }
.trio { display: grid; grid-template-columns: repeat(3, 1fr); gap: .8rem; margin: .3rem 0 .9rem; max-width: 52rem; }
.trio figure { margin: 0; }
.trio figcaption { margin-top: .25rem; }
sup { white-space: nowrap; }
mark.lost { background: #f3c3b4; text-decoration: line-through; }
mark.new { background: #cfe3f5; text-decoration: underline; }
mark.changed { background: #fbe7c6; text-decoration: underline dotted; }
dl + p { margin-top: .5rem; }
.plots + h3 { margin-top: 1.2rem; }
.plots.lone { max-width: 40rem; }
.dense + .plots { margin-top: 1.2rem; }
.chapter + p { margin-top: .7rem; }
.verdict { display: inline-block; min-width: 8.5rem; }
.victim + .victim { margin-top: 2.6rem; padding-top: 1.3rem; border-top: 1px solid var(--line); }
div.threat { margin-bottom: .7rem; }
.threat .last { margin-bottom: 0; }
.bought { font-size: 1.1rem; margin: 1rem 0 .6rem; }
.bought .small { display: inline-block; margin-top: .2rem; }
.plane svg { width: 100%; height: auto; }
.moved { display: grid; grid-template-columns: minmax(18rem, 5fr) 7fr; gap: 1rem 1.4rem; }
.pair { display: grid; grid-template-columns: 1fr auto 1fr; gap: .6rem; margin-bottom: .9rem; }
.pair figure { margin: 0; }
.pair .arrow { align-self: center; font-size: 1.4rem; color: var(--quiet); }
.moved .reports { grid-template-columns: repeat(auto-fit, minmax(12rem, 1fr)); }
.crisp { image-rendering: pixelated; }
.badge { display: inline-block; border-radius: .25rem; padding: .05rem .55rem; font-weight: 600; color: #fff; }
.badge.low { background: #1d6b3c; }
.badge.medium { background: #7a5200; }
.badge.high { background: #a8320c; }
.badge.critical { background: #6f1f05; }
.badge.unknown { background: #626a73; }
.review { background: var(--wash); border-radius: .4rem; padding: .9rem 1.1rem; margin-bottom: 1.2rem; }
.review p { margin: .7rem 0 0; }
.review dl { gap: .45rem 1rem; }
.runs { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 1.6rem 2rem; }
footer { margin-top: 3rem; color: var(--quiet); font-size: .85rem; }
@media (max-width: 42rem) {
  main { padding: 1.4rem 1rem 3rem; }
  h1 { font-size: 1.5rem; }
  .example { grid-template-columns: 1fr; gap: .9rem; }
  .example figure { max-width: 18rem; }
  .moved { grid-template-columns: 1fr; }
  .review dl { grid-template-columns: 1fr; gap: .1rem; }
  .review dd { margin-bottom: .5rem; }
  .bar { min-width: 4rem; }
}
@media print {
  body { font-size: 10.5pt; }
  main { max-width: none; padding: 0; }
  .example, .tile, .report, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .bar span, .image, .truth li, .scale, .scale span, .scale i, .scale b, .shade, .alarm, .badge, mark {
    -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
"""
