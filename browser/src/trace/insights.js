// Runs the insight models of the Performance panel over the trace in `parts`, gzip in pieces.
(async () => {
  const i18n = await import("devtools://devtools/bundled/core/i18n/i18n.js");
  // Without a locale every model is an error.
  i18n.DevToolsLocale.DevToolsLocale.instance({
    create: true,
    data: { navigatorLanguage: "en-US", settingLanguage: "en-US", lookupClosestDevToolsLocale: () => "en-US" },
  });
  await i18n.i18n.fetchAndRegisterLocaleData("en-US");
  const { TraceModel } = await import("devtools://devtools/bundled/models/trace/trace.js");
  const unpacked = new Blob(parts).stream().pipeThrough(new DecompressionStream("gzip"));
  const trace = await new Response(unpacked).json();
  const model = TraceModel.Model.createWithAllHandlers();
  await model.parse(trace.traceEvents, { metadata: trace.metadata ?? {} });
  const sets = [...(model.parsedTrace(0)?.insights?.values() ?? [])];
  // The last load is the one that the metrics are of.
  const set = sets.filter((set) => set.navigation).at(-1) ?? sets.at(-1);
  return Object.entries(set?.model ?? {})
    .filter(([, insight]) => insight.state && insight.state !== "pass")
    .map(([id, insight]) => ({
      id,
      title: String(insight.title),
      description: String(insight.description),
      state: String(insight.state),
      savingsMs: Math.max(0, ...Object.values(insight.metricSavings ?? {}).filter(Number.isFinite)) || null,
      wastedBytes: insight.wastedBytes || null,
    }));
})()
