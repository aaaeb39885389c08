/** Where a database is and who asks. Read by us, so that a tenant's text cannot name files, sockets or options. */
export interface DatabaseAddress {
  host: string;
  port: number;
  database: string;
  user: string;
  password: string;
  sslmode: SslMode;
  /** Certificates to trust, PEM; undefined for those of the platform. */
  ca: string | undefined;
}

const sslModes = ["disable", "require", "verify-ca", "verify-full"] as const;
type SslMode = (typeof sslModes)[number];

const isSslMode = (text: string): text is SslMode => sslModes.some((mode) => mode === text);

export type ParsedAddress = { ok: true; address: DatabaseAddress } | { ok: false; message: string };

const wrong = (message: string): ParsedAddress => ({ ok: false, message: `database URL: ${message}` });

const controls = /\p{Cc}/u;

/**
 * Reads `postgres://user:password@host:port/database?sslmode=…`. Without sslmode it is `verify-full`: a fence behind a
 * connection that anybody can redirect is none. The message names what is wrong, and never quotes the text.
 */
export const parseDatabaseUrl = (text: string, ca?: string): ParsedAddress => {
  let url: URL;
  let parts: string[];
  try {
    url = new URL(text.trim());
    parts = [url.hostname, url.username, url.password, url.pathname.slice(1)].map(decodeURIComponent);
  } catch {
    return wrong("it cannot be read: write postgres://user:password@host:5432/database");
  }
  const [host = "", user = "", password = "", database = ""] = parts;
  if (url.protocol !== "postgres:" && url.protocol !== "postgresql:")
    return wrong("it must begin with postgres://");
  if (host === "") return wrong("it names no host");
  // A path would be a socket file of this machine, a comma a list of hosts.
  if (/[/,@\\]/.test(host)) return wrong("the host must be one name or address");
  if (user === "") return wrong("it names no user");
  if (database === "" || database.includes("/")) return wrong("it must name one database");
  if (parts.some((part) => controls.test(part))) return wrong("it contains control characters");
  for (const name of url.searchParams.keys())
    if (name !== "sslmode") return wrong("sslmode is the only parameter that may be given");
  const modes = url.searchParams.getAll("sslmode");
  const sslmode = modes[0] ?? "verify-full";
  if (modes.length > 1 || !isSslMode(sslmode)) return wrong(`sslmode must be one of ${sslModes.join(", ")}`);
  return {
    ok: true,
    address: {
      host: host.replace(/^\[(.*)\]$/, "$1"),
      port: url.port === "" ? 5432 : Number(url.port),
      database,
      user,
      password,
      sslmode,
      ca,
    },
  };
};
