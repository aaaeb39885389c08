/** Stands for a program that does guarded work: it would send its token with every write. */
console.log(`working with token ${process.env["FENCELINE_TOKEN"]} (pid ${process.pid})`);
setInterval(() => console.log(`… still working with token ${process.env["FENCELINE_TOKEN"]}`), 1000);
