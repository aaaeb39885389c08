/** Leader election for controllers: one leads at a time, with a token that is higher than that of every leader before. */
import { type AcquireOptions, type Client, type Holding, HoldLost, withHolding } from "./holding.ts";

export interface LeadOptions extends Pick<AcquireOptions, "label"> {
  /** Ends the campaign, or the work of the leader; the right is then given back. */
  signal: AbortSignal;
}

const isAbort = (error: unknown, { reason }: AbortSignal): boolean =>
  error === reason || (error instanceof Error && error.name === "AbortError");

/**
 * Campaigns for `resource` for as long as it takes and runs `work` as its leader. On loss the signal that `work` got is
 * aborted; once `work` has ended, the next campaign begins, with a new attempt and so a higher token: two calls of `work`
 * never overlap, and what it throws after the loss is taken as a consequence.
 *
 * Resolves when `signal` is aborted and the right was given back, or when `work` resolved as the leader: then the right is
 * given back, too. Rejects with what `work` threw as the leader, with HoldRefused, and with HoldUnreachable where only a
 * change of address, certificates or files can help: end the process then, and let it be started again.
 */
export const lead = async (
  client: Client,
  resource: string,
  work: (holding: Holding, signal: AbortSignal) => Promise<void>,
  { signal, label }: LeadOptions,
): Promise<void> => {
  while (!signal.aborted) {
    try {
      return await withHolding(client, resource, work, {
        signal,
        contactMs: Infinity,
        ...(label === undefined ? {} : { label }),
      });
    } catch (error) {
      if (error instanceof HoldLost && error.resource === resource) continue;
      if (signal.aborted && isAbort(error, signal)) return;
      throw error;
    }
  }
};
