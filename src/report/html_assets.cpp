// The report's style and script, inlined into every file so that it needs nothing but itself.
#include "report/html_text.h"

namespace vox {

const char* report_style() {
  return R"css(
:root{color-scheme:light dark;--bg:#faf9f7;--card:#fff;--ink:#1d2126;--soft:#667080;--line:#e5e3de;--grid:#edebe6;
--s0:#1666b8;--s1:#d2520f;--s2:#2c8a4b;--s3:#9a45b8;--s4:#a87f00;--s5:#0d8390;--s6:#c22c62;--s7:#5a6270;
--good:#2c8a4b;--bad:#c0341d;--warn:#a06a00}
@media(prefers-color-scheme:dark){:root{--bg:#14171b;--card:#1c2026;--ink:#e4e7eb;--soft:#98a2b0;--line:#2e343c;--grid:#282d35;
--s0:#62a8f2;--s1:#ff8f5c;--s2:#6ccb86;--s3:#d292ea;--s4:#dfb93f;--s5:#4fc4d0;--s6:#f2719c;--s7:#a8b0bc;
--good:#6ccb86;--bad:#ff7d66;--warn:#e3b341}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",Arial,sans-serif;
font-variant-numeric:tabular-nums;-webkit-text-size-adjust:100%}
main{max-width:1360px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:1.55rem;line-height:1.25;margin:0;font-weight:650;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:34px 0 12px;font-weight:650}
h3{font-size:.92rem;margin:0;font-weight:600}
p{margin:4px 0}.soft{color:var(--soft)}
code,pre{font:13px/1.5 ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
header{display:flex;flex-wrap:wrap;gap:6px 14px;align-items:baseline}
header p{flex-basis:100%}
.state{font-size:.8rem;font-weight:600;padding:1px 10px;border-radius:99px;border:1px solid currentColor}
.finished{color:var(--good)}.failed{color:var(--bad)}.stopped,.running{color:var(--warn)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(136px,1fr));gap:10px;margin-top:18px}
.tile,.plot,.card{background:var(--card);border:1px solid var(--line);border-radius:10px}
.tile{padding:10px 14px}.tile b{display:block;font-size:1.15rem;font-weight:600;line-height:1.3;white-space:nowrap}
.tile span{color:var(--soft);font-size:.8rem}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:14px}
.plot{padding:12px 14px 8px;margin:0;min-width:0}
.plot svg{display:block;width:100%;height:auto;overflow:visible}
.plot text{font-size:11px;fill:var(--soft);font-family:inherit}
.grid{stroke:var(--grid);stroke-width:1}.axis{stroke:var(--line);stroke-width:1}
.curve{fill:none;stroke-width:1.7;stroke-linejoin:round;stroke-linecap:round}
.raw{stroke-width:1;opacity:.28}.dashed{stroke-dasharray:5 3}
.cursor{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 3;visibility:hidden}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;margin:4px 0 6px;padding:0;list-style:none;font-size:.82rem;min-height:1.5em}
.legend i{display:inline-block;width:14px;height:3px;border-radius:2px;margin-right:6px;vertical-align:middle}
.legend i.box{height:10px;width:10px}.legend i.dash{background:none!important;border-top:2px dashed;height:0;width:18px}
.legend b{font-weight:600;margin-left:5px}
.note{font-size:.8rem;color:var(--soft)}
.bar{display:flex;height:26px;border-radius:6px;overflow:hidden;background:var(--grid);margin:2px 0 6px}.bar div{min-width:1px}
.waterfall{display:block;width:100%;min-width:560px;max-width:980px;height:auto;margin:8px 0}.waterfall text{font-size:12px;fill:var(--ink);font-family:inherit}
.waterfall .value{fill:var(--soft)}.card h3{margin-top:10px}.wide{min-width:640px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.88rem}
th,td{text-align:left;padding:5px 16px 5px 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
tr:last-child td,tr:last-child th{border-bottom:0}
th{color:var(--soft);font-weight:500;white-space:nowrap}td.when{white-space:nowrap}td.whole{overflow-wrap:normal}td.n,th.n{text-align:right;white-space:nowrap}
.card{padding:12px 16px}.card+.card{margin-top:12px}.strip .card{margin-top:0}
details summary{cursor:pointer;color:var(--soft);padding:4px 0}pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:6px 0}
.strip{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr));gap:14px}
.case{margin:0}.case figcaption{font-size:.84rem;margin-bottom:6px}
.panels{display:grid;grid-template-columns:repeat(3,1fr);gap:6px}
.panel{position:relative;font-size:.76rem;color:var(--soft)}
.panel div{position:relative;line-height:0;border-radius:6px;overflow:hidden;background:#000}
.panel img{width:100%;height:auto;image-rendering:pixelated}
.panel img.over{position:absolute;inset:0;height:100%;opacity:var(--overlay,1)}
.slider{font-size:.84rem;color:var(--soft);display:none;align-items:center;gap:8px;margin-bottom:10px}.js .slider{display:flex}
ul.warnings{margin:0;padding-left:1.1em}ul.warnings li{overflow-wrap:anywhere;margin:3px 0}
@media(max-width:560px){main{padding:18px 12px 40px}.tiles{grid-template-columns:repeat(2,1fr)}.plot{padding:10px 10px 6px}
th,td{padding-right:10px}.plot text{font-size:12px}}
@media print{.plot,.card{break-inside:avoid}}
)css";
}

const char* report_script() {
  return R"js(
document.documentElement.classList.add('js');
(function(){
function number(v){var a=Math.abs(v);if(v===0)return'0';if(a>=1e6||a<1e-3)return v.toExponential(2);
return a>=1000?v.toFixed(0):a>=100?v.toFixed(1):a>=10?v.toFixed(2):a>=1?v.toFixed(3):v.toFixed(4)}
function points(path){return path.getAttribute('d').split(/[ML]/).filter(function(s){return s.trim()}).map(function(s){
return s.trim().split(/[ ,]+/).map(Number)})}
document.querySelectorAll('figure.plot svg[data-axes]').forEach(function(svg){
var axes=JSON.parse(svg.getAttribute('data-axes')),figure=svg.parentNode,cursor=svg.querySelector('.cursor');
var curves=[].map.call(svg.querySelectorAll('path[data-key]'),function(path){return{key:path.getAttribute('data-key'),points:points(path)}});
var labels={};[].forEach.call(figure.querySelectorAll('.legend [data-value]'),function(b){labels[b.getAttribute('data-value')]={node:b,rest:b.textContent}});
var place=figure.querySelector('.where');
function value(y){var t=(axes.bottom-y)/(axes.bottom-axes.top),v=axes.low+t*(axes.high-axes.low);return axes.log?Math.pow(10,v):v}
function leave(){cursor.style.visibility='hidden';place.textContent='step';for(var k in labels)labels[k].node.textContent=labels[k].rest}
svg.addEventListener('pointermove',function(event){
var frame=svg.getBoundingClientRect(),x=(event.clientX-frame.left)*axes.width/frame.width,best=null;
curves.forEach(function(curve){var near=null;curve.points.forEach(function(p){if(near===null||Math.abs(p[0]-x)<Math.abs(near[0]-x))near=p});
if(near===null)return;if(best===null||Math.abs(near[0]-x)<Math.abs(best-x))best=near[0];
if(labels[curve.key])labels[curve.key].node.textContent=number(value(near[1]))});
if(best===null)return;
cursor.setAttribute('x1',best);cursor.setAttribute('x2',best);cursor.style.visibility='visible';
place.textContent='step '+Math.round(axes.first+(best-axes.left)/(axes.right-axes.left)*(axes.last-axes.first))});
svg.addEventListener('pointerleave',leave)});
var slider=document.getElementById('overlay');
if(slider)slider.addEventListener('input',function(){document.documentElement.style.setProperty('--overlay',slider.value)});
})();
)js";
}

}  // namespace vox
