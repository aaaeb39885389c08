/** The long run: more of everything that takes time. */
export const isLong = process.env["FENCELINE_LONG"] === "1";
