/** Where a request goes, read from its path. */
import { type Resource, resources } from "./kinds.ts";
import type { Stored } from "./objects.ts";
import { ApiFailure } from "./status.ts";

export interface Address {
  resource: Resource;
  namespace: string | undefined;
  /** Undefined: the collection. */
  name: string | undefined;
  sub: string | undefined;
  query: URLSearchParams;
}

export const keyOf = (namespace: string | undefined, name: string): string =>
  namespace === undefined ? name : `${namespace}/${name}`;

/** What a history calls a resource. */
export const tableOf = ({ plural, apiVersion }: Resource): string => `${plural}.${apiVersion}`;

const noSuchPath = () => new ApiFailure("NotFound", "the server could not find the requested resource");

export const readAddress = (path: string): Address => {
  const [route = "", search] = path.split("?");
  const [, root, ...rest] = route.split("/").map(decodeURIComponent);
  const apiVersion = root === "api" ? rest[0] : `${rest[0]}/${rest[1]}`;
  const parts = rest.slice(root === "api" ? 1 : 2);
  const inNamespace = parts[0] === "namespaces" && parts.length > 2;
  const [plural, name, sub, ...more] = inNamespace ? parts.slice(2) : parts;
  const resource = resources.find((known) => known.plural === plural && known.apiVersion === apiVersion);
  if (resource === undefined || more.length > 0) throw noSuchPath();
  if (sub !== undefined && (sub !== "status" || resource.plural === "leases")) throw noSuchPath();
  if (inNamespace !== resource.namespaced && (name !== undefined || inNamespace)) throw noSuchPath();
  const namespace = inNamespace ? parts[1] : undefined;
  return { resource, namespace, name, sub, query: new URLSearchParams(search) };
};

type Matches = (object: Stored) => boolean;

const term = (text: string): Matches => {
  const [, negated, key = "", operator, value] = /^(!?)([^=!]+?)(?:(==?|!=)(.*))?$/.exec(text) ?? [];
  const label = ({ metadata }: Stored) => metadata.labels?.[key];
  if (operator === undefined) return (object) => (label(object) !== undefined) === (negated === "");
  return (object) => (label(object) === value) === (operator !== "!=");
};

const field = (text: string): Matches => {
  const [key, value] = text.split("=").filter((part) => part !== "");
  if (key === "metadata.name") return ({ metadata }) => metadata.name === value;
  if (key === "metadata.namespace") return ({ metadata }) => metadata.namespace === value;
  throw new ApiFailure("BadRequest", `field label not supported: ${key}`);
};

const terms = (text: string | null, read: (term: string) => Matches): Matches[] =>
  (text ?? "")
    .split(",")
    .filter((part) => part !== "")
    .map(read);

/** Which objects a list or watch shows. */
export const selector = ({ namespace, name, query }: Address): Matches => {
  const all = [...terms(query.get("labelSelector"), term), ...terms(query.get("fieldSelector"), field)];
  return (object) =>
    (namespace === undefined || object.metadata.namespace === namespace) &&
    (name === undefined || object.metadata.name === name) &&
    all.every((matches) => matches(object));
};
