/**
 * For a process that stands beside every worker and does little: no optimizing compilers. What they would make of a loop
 * that runs every few seconds costs 20 MB. To be called before anything else is loaded.
 */
export const beFrugal = (): void => {
  const v8 = process.getBuiltinModule("node:v8");
  for (const flag of ["--no-opt", "--no-maglev"]) v8.setFlagsFromString(flag);
};
