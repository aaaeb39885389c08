/** A pod that waits is told who has the resource, and since when: `kubectl describe pod` shows no probe's body. */
import type { FencedResource } from "../api/fencedresource.ts";
import { apiVersion } from "../api/names.ts";
import { grantedToken } from "../core/lease.ts";
import type { EventRecorder } from "../kube/events.ts";
import type { ResourceName } from "../kube/leases.ts";
import type { Book } from "./book.ts";
import type { AcquireCall } from "./coordinator.ts";

const since = (time: string | undefined): string =>
  time === undefined ? "" : ` since ${time.replace(/\.\d+(?=Z$)/, "")}`;

/** Records an event on the waiting pod and on the resource. For callers that are no pods it does nothing. */
export const makeWaitingEvents =
  ({
    book,
    events,
    resources,
  }: {
    book: Book;
    events: EventRecorder;
    resources: { get(ref: ResourceName): FencedResource | undefined };
  }) =>
  ({ resource, caller, note }: AcquireCall): void => {
    const { namespace, name } = resource;
    const [kind, uid] = caller.identity.split(":");
    if (kind !== "pod" || uid === undefined || note?.pod === undefined) return;
    const lease = book.get(resource)?.lease;
    const { holder, note: holderNote } = lease?.view ?? {};
    const who =
      lease === undefined || holder === undefined
        ? "it is about to be granted to another attempt, or is not free yet"
        : `${holderNote?.label ?? holderNote?.pod ?? holder} (token ${grantedToken(lease.view)}) has it${since(lease.object.spec.acquireTime)}`;
    events.record({
      regarding: {
        apiVersion,
        kind: "FencedResource",
        namespace,
        name,
        uid: resources.get(resource)?.metadata.uid,
      },
      pod: { apiVersion: "v1", kind: "Pod", namespace, name: note.pod, uid },
      reason: "Waiting",
      note: `${note.label ?? note.pod} waits for ${namespace}/${name}: ${who}`,
    });
  };
