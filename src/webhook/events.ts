import type { FencedResource } from "../api/fencedresource.ts";
import { apiVersion } from "../api/names.ts";
import type { EventRecorder } from "../kube/events.ts";
import type { Ref } from "../kube/types.ts";
import type { RouteDeps } from "./route.ts";

/** Tells a refusal on the resources that the pod asked for, as far as there are any: there is no pod to tell it on. */
export const makeRefusalEvents =
  (deps: {
    resources: { get(ref: Ref): FencedResource | undefined };
    events: EventRecorder;
  }): RouteDeps["onRefused"] =>
  ({ namespace, pod, message, resources }) => {
    for (const name of resources) {
      const uid = deps.resources.get({ namespace, name })?.metadata.uid;
      if (uid === undefined) continue;
      deps.events.record({
        regarding: { apiVersion, kind: "FencedResource", namespace, name, uid },
        reason: "InjectionRefused",
        note: `pod ${pod === "" ? "without a name yet" : pod} was refused: ${message}`,
      });
    }
  };
