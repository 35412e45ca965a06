// JupyterLab loads this as an extension, built by hand: pages open beside the lesson whose link was
// clicked, and a page that has outlived the server says so.
(() => {
  const activate = app => {
    app.commands.commandExecuted.connect((_, { id, args, result }) => {
      if (id !== "rendermime:handle-local-link" || !args.path?.endsWith(".md")) return;
      const lesson = app.shell.currentWidget;
      result.then(() => {
        const pages = [...app.shell.widgets("main")].filter(page => page.context?.path.endsWith(".md"));
        const opened = pages.find(page => page.context.path === args.path);
        const other = pages.find(page => page !== opened && page !== lesson);
        if (!opened || opened === lesson || innerWidth < 1000) return; // no room for two
        app.shell.add(opened, "main", { mode: other ? "tab-after" : "split-right", ref: (other ?? lesson).id });
        app.shell.activateById(opened.id);
        if (!args.id) opened.context.revert(); // the file may have changed: the progress does
      });
    });

    let lost = false;
    app.serviceManager.connectionFailure.connect(() => (lost = true));
    app.serviceManager.sessions.runningChanged.connect(() => {
      if (!lost) return;
      lost = false;
      const message = "JupyterLab was restarted: save what you changed, then reload this page (F5).";
      app.commands.execute("apputils:notify", { message, type: "warning", options: { autoClose: false } });
    });
  };
  const plugin = { id: "cuda-graphs-course:beside-the-lesson", autoStart: true, activate };
  (window._JUPYTERLAB ??= {})["cuda-graphs-course"] = { init: () => {}, get: async () => () => plugin };
})();
