/** Stands for a program that does guarded work: it would send its token with every write. */
console.log(`working with token ${process.env["FENCELINE_TOKEN"]}`);
setInterval(() => console.log(`… still working with token ${process.env["FENCELINE_TOKEN"]}`), 1000);
