/*
 * The protocol of Fenceline (docs/protocol.md) for one resource, for Spin.
 *
 * Replicas of the coordinator serve acquire, renew and release of a few attempts, each from a Lease that may be stale,
 * and each answer may get lost. The controller binds the Lease to its boundary and opens a closed one. A worker tries
 * every token that was ever answered. The world deletes, copies and restores. Time does not occur: a Lease may be
 * taken from its holder at any moment, a replica that takes no further step has crashed or is late, so what holds
 * here holds for every clock. An asserted line names its invariant.
 *
 * REMOVED names one rule that is then not followed. Bounds and faults come from outside: see README.md.
 */
#define credit_uid 1            /* credit counts only under the Lease's own uid */
#define reserve_cas 2           /* the sequence is raised by compare-and-set */
#define reserve_after_read 3    /* a block is reserved after the Lease was read */
#define commit_uid 4            /* a commit carries the uid */
#define commit_version 5        /* and the version that was read */
#define reread_fresh 6          /* after an unknown outcome the Lease itself is read, no cache */
#define reread_credit 7         /* and must have a valid credit */
#define reread_hash 8           /* and the hash that was compared */
#define reread_token 9          /* and its token is the one that counts */
#define advance_kept 10         /* told is the boundary that was compared, not the one of the cache by now */
#define keep_commit 11          /* a commit is not undone because the boundary did not answer */
#define advance_first 12        /* the first answer passes step 4 */
#define advance_repeat 13       /* the repeated attempt does */
#define advance_reread 14       /* the re-read does */
#define create_empty 15         /* a Lease is made without holder and credit */
#define hash_uid 16             /* the boundary's hash covers the Lease's uid */
#define switch_order 17         /* the target's mark is raised before the Lease is bound to it */
#define compare_commit 18       /* the hash is compared before a commit */
#define compare_repeat 19       /* and before a repeated acquire */
#define advance_after_commit 20 /* the boundary learns of a token after its commit */
#define advance_before_answer 21 /* and before its answer */
#define advance_strict 22       /* a mark yields to a higher token, or to its own attempt, alone */
#define never_lower 23          /* no advance lowers a mark */
#define renew_token 24          /* a renewal shows the Lease's token */
#define renew_credit 25         /* and the Lease's credit is valid */
#define release_match 26        /* a release shows attempt and token */
#define release_version 27      /* and carries the version that was read */
#define closed_refuses 28       /* a closed boundary refuses advances too */
#define reopen_read 29          /* the Lease is read after the closing was seen */
#define reopen_max 30           /* and opening lowers no mark */
#define effect_atomic 31        /* compare and effect are one step */
#define effect_token 32         /* an effect without a token is refused */
#ifndef REMOVED
#define REMOVED 0
#endif
#define rule(r) (REMOVED != r)

#define T 12 /* no token reaches this one */

typedef Lease {
  bool here; byte uid, holder;
  byte token, ceil, cuid; /* the credit, and the uid that it was written for */
  byte bound, buid        /* the boundary that it was guarded for, and the uid in that hash */
};
Lease L, kept, nothing;         /* the Lease; a copy that somebody kept: backup or snapshot */
byte current;                   /* set of processes whose version, as read, is still the one of the Lease */
byte uids, ceiling, keptCeiling; /* the sequence is its ceiling */
bool lost;                      /* the sequence was deleted, and is not open again */
byte wanted = 1, real = 1;      /* boundary of the spec; boundary that was guarded last */
byte mark[3], owner[3], closed[3]; /* per boundary: mark, whose, and the id of its closing */
byte keptMark, keptOwner, closings;
byte losses, requests, met;     /* how many there were; how many attempts took part */

/* What happened, for the invariants alone. */
byte tok[ATTEMPTS + 1];         /* the token that each attempt was last told */
byte grantee[T], named[T];      /* whom a token was answered to; set of attempts it was committed for */
byte top, highest, told[3];     /* highest token answered; committed; announced to each boundary */
bool restored, sequenceGone;

#define valid(l) (l.here && (l.cuid == l.uid || !rule(credit_uid)))
#define names(l, h) (l.holder == h && valid(l))
#define fits(l, b) (!BOUNDARY || (l.bound == b && (l.buid == l.uid || !rule(hash_uid))))
#define highestOf(x, y) ((x) > (y) -> (x) : (y))

inline effect() {
  assert(w >= top);        /* I9 */
  assert(w >= told[real])  /* I4 */
}

inline copy(to, from) {
  to.here = from.here; to.uid = from.uid; to.holder = from.holder; to.token = from.token;
  to.ceil = from.ceil; to.cuid = from.cuid; to.bound = from.bound; to.buid = from.buid
}

/* Reads the Lease. */
inline get() { copy(r, L); current = current | (1 << _pid) }

/* The Lease as the API server has it now, or as the cache of this replica still has it. */
inline look() { if :: get() :: skip fi }

/* An update of the version read as r. The API server takes one without a uid for a creation if there is none. */
inline put(newHolder, newToken, newCeiling, target, targetUid) {
  ok = (L.here && (L.uid == r.uid || !rule(commit_uid)) && ((current & (1 << _pid)) || !rule(commit_version))) ||
    (!L.here && !rule(commit_uid));
  if
  :: ok ->
    if :: !L.here -> uids++; L.uid = uids :: else fi;
    L.here = true; L.holder = newHolder; L.token = newToken; L.ceil = newCeiling; L.cuid = r.uid;
    L.bound = target; L.buid = targetUid;
    current = 0
  :: else
  fi
}

inline createEmpty() {
  if :: !L.here -> uids++; L.here = true; L.uid = uids; current = 0 :: else fi;
  get()
}

inline noteCommit() {
  assert(t > highest || restored || sequenceGone); /* I2, I8 */
  highest = highestOf(highest, t);
  named[t] = named[t] | (1 << h)
}

inline answered() {
  assert(!grantee[t] || grantee[t] == h); /* I1 */
  assert(t >= before);                    /* I2 */
  assert(named[t] & (1 << h));            /* I3 */
  grantee[t] = h; tok[h] = t; top = highestOf(top, t)
}

/* Does b take (t, h)? Strictly: a higher token, or the very same again. */
inline advance(b) {
  ok = !closed[b] && (t > mark[b] || (t == mark[b] && owner[b] == h) || !rule(advance_strict) || !rule(never_lower));
  ok = ok || (closed[b] && !rule(closed_refuses) && t > mark[b]);
  if
  :: ok ->
    if :: t > mark[b] || !rule(never_lower) -> mark[b] = t; owner[b] = h :: else fi;
    closed[b] = 0; /* only ever so by removing a rule */
    assert(named[t] & (1 << h)); /* I3 */
    told[b] = highestOf(told[b], t)
  :: else
  fi
}

/* The replica's boundary, read again where it is not the Lease's. */
inline compare() {
  if :: !fits(r, spec) -> spec = wanted :: else fi;
  b = spec; ok = fits(r, b)
}

active [REPLICAS] proctype Coordinator() {
  Lease r, old; /* as read now; in an earlier request, used only where a rule is removed */
  byte h, t, c, m, b, spec = 1, before; bool ok;

serve:
  atomic {
    requests < REQUESTS -> requests++;
    select (h : 1 .. highestOf(1, (met < ATTEMPTS -> met + 1 : met))); /* attempts are alike: by order of arrival */
    met = highestOf(met, h);
    before = top;
    if :: spec = wanted :: skip fi;
    if
    :: goto acquire
    :: KEEP && tok[h] -> t = tok[h]; goto renew
    :: KEEP && tok[h] -> t = tok[h]; goto release
    fi
  }

acquire: /* 1: read */
  atomic { if :: !rule(reserve_after_read) -> goto reserve :: else fi; look(); goto read }
read:
  atomic {
    if
    :: !r.here && rule(create_empty) -> createEmpty(); goto read
    :: !r.here && !rule(create_empty) && t == 0 -> goto reserve
    :: !r.here && !rule(create_empty) && t ->
      if
      :: !L.here -> r.uid = uids + 1; createEmpty(); L.holder = h; L.token = t; L.ceil = c; L.cuid = L.uid;
        L.bound = spec; L.buid = L.uid; b = spec; noteCommit(); get(); goto tell
      :: else -> get(); t = 0; goto read
      fi
    :: r.here && names(r, h) ->
      compare();
      if :: !ok && rule(compare_repeat) -> goto done :: else -> goto repeat fi
    :: r.here && !names(r, h) -> /* nobody, or somebody whose time is over */
      compare();
      if :: !ok && rule(compare_commit) -> goto done :: else fi
    fi;
    /* 2: choose */
    if
    :: !rule(reserve_after_read) && t && !(valid(r) && r.token < r.ceil)
    :: valid(r) && r.token < r.ceil -> t = r.token + 1; c = r.ceil
    :: rule(reserve_after_read) && !(valid(r) && r.token < r.ceil) -> goto reserve
    fi
  }
write: /* 3: commit */
  atomic {
    if :: !rule(advance_after_commit) -> advance(b) :: else fi;
    if
    :: put(h, t, c, r.bound, r.buid);
      if :: ok -> noteCommit() :: else fi;
      if
      :: ok -> get(); if :: rule(advance_first) -> goto tell :: else -> goto answer fi
      :: !ok && !m -> get(); t = 0; c = 0; goto read /* the block is thrown away */
      :: !ok && m -> goto reread
      :: losses < LOSSES -> losses++; goto reread
      fi
    :: losses < LOSSES -> losses++; goto reread /* never arrived */
    fi
  }
reread:
  atomic {
    if :: !rule(reread_fresh) && old.here -> copy(r, old) :: get() fi;
    if
    :: r.here && r.holder == h && (valid(r) || !rule(reread_credit)) ->
      if :: !fits(r, b) && rule(reread_hash) -> goto done :: else fi;
      if :: rule(reread_token) -> t = r.token :: else fi;
      if :: rule(advance_reread) -> goto tell :: else -> goto answer fi
    :: else ->
      if :: m -> goto done :: else -> t = 0; c = 0; goto read fi
    fi
  }
repeat:
  atomic {
    put(h, r.token, r.ceil, r.bound, r.buid);
    get();
    if
    :: !ok -> goto read
    :: ok -> t = r.token; if :: rule(advance_repeat) -> goto tell :: else -> goto answer fi
    fi
  }
reserve:
  if
  :: atomic { rule(reserve_cas) && !lost -> t = highestOf(ceiling, m) + 1; c = t + BLOCK - 1; c < T -> ceiling = c }
  :: atomic { !rule(reserve_cas) && !lost -> t = highestOf(ceiling, m) + 1; c = t + BLOCK - 1; c < T }; ceiling = c
  fi;
  if
  :: m || (r.here && rule(reserve_after_read)) -> goto write
  :: else -> atomic { look(); goto read }
  fi;

tell: /* 4: advance */
  atomic {
    if :: !rule(advance_before_answer) -> answered() :: else fi;
    if :: !BOUNDARY -> goto answer :: else fi;
    if :: !rule(advance_kept) -> if :: spec = wanted :: skip fi; b = spec :: else fi;
    if
    :: goto unknown /* never arrived */
    :: advance(b);
      if
      :: ok -> goto answer
      :: !ok && !closed[b] -> m = mark[b]; goto refused
      :: goto unknown /* or closed */
      fi
    fi
  }
refused:
  atomic {
    get();
    if
    :: !r.here || !names(r, h) || !fits(r, b) -> goto done /* lost */
    :: r.here && names(r, h) && fits(r, b) && r.token != t -> t = r.token; goto tell
    :: r.here && names(r, h) && fits(r, b) && r.token == t -> goto reserve /* the past was lost: above the mark */
    fi
  }
unknown: /* outcome_unknown: the caller asks again */
  atomic {
    if
    :: !rule(keep_commit) -> get(); if :: r.here && names(r, h) && r.token == t :: else -> goto done fi
    :: else -> goto done
    fi
  }
  atomic { put(0, t - 1, r.ceil, r.bound, r.buid); assert(!ok || grantee[t] != h); /* I6 */ goto done }
answer: /* 5 */
  atomic { answered(); goto done }

renew:
  atomic {
    look();
    if
    :: r.here && r.holder == h && (valid(r) || !rule(renew_credit)) && (r.token == t || !rule(renew_token))
    :: else -> goto done /* read fresh it may still be right; that is another request here */
    fi
  }
  atomic {
    m = (L.holder == h && L.token == t && L.cuid == L.uid);
    put(h, r.token, r.ceil, r.bound, r.buid);
    assert(!ok || restored || (m && t >= top)); /* I5 */
    goto done
  }
release:
  atomic {
    look();
    if
    :: r.here && ((names(r, h) && r.token == t) || !rule(release_match))
    :: else -> goto done
    fi
  }
  atomic {
    if :: !rule(release_version) && L.here -> get() :: else fi;
    m = (L.holder == h && L.token == t);
    put(0, r.token, r.ceil, r.bound, r.buid);
    assert(!ok || restored || m) /* I6 */
  }
done:
  atomic {
    h = 0; t = 0; c = 0; m = 0; b = 0; before = 0; ok = false;
    if :: !rule(reread_fresh) -> copy(old, r) :: else fi;
    if :: requests == REQUESTS -> copy(r, nothing); current = current & ~(1 << _pid) :: else fi;
    goto serve
  }
}

inline lent() { if :: fresh && h -> named[t] = named[t] | (1 << h); highest = highestOf(highest, t) :: else fi }
inline rebound() { real = b; lent() }

#if BOUNDARY
/* The leader's part: binds the Lease to the wanted boundary, and opens a closed one. */
active proctype Controller() {
  Lease r;
  byte h, t, c, b, id; bool ok, fresh;

work:
  atomic {
    b = wanted; id = closed[b];
    if
    :: !L.here -> createEmpty(); goto work
    :: L.here && !rule(reopen_read) && !(current & (1 << _pid)) -> get(); goto work /* before it sees a closing */
    :: L.here && id -> if :: rule(reopen_read) -> get() :: else fi
    :: L.here && !id && (L.bound != b || L.buid != L.uid) -> get()
    fi
  }
  atomic { /* credit of its own where there is none, reserved after that read; a holder gets a token of its own */
    h = r.holder; t = r.token; c = r.ceil;
    fresh = !valid(r) || (!id && mark[b] > t);
    if
    :: fresh && !lost ->
      c = highestOf(ceiling, mark[b]); t = (h -> c + 1 : c); c = c + BLOCK;
      if :: c >= T -> goto done :: else -> ceiling = c fi
    :: !fresh
    fi
  }
  if
  :: id -> goto open
  :: !id && !rule(switch_order) -> atomic { put(h, t, c, b, r.uid); if :: ok -> rebound() :: else -> goto done fi }
  :: !id && rule(switch_order)
  fi;
  atomic { /* the mark, to this version */
    if
    :: closed[b] || t < mark[b] || (t == mark[b] && t && owner[b] != h) -> goto done
    :: else -> mark[b] = t; owner[b] = h; told[b] = highestOf(told[b], t)
    fi
  }
  atomic { /* the hash, on condition of this version */
    if :: rule(switch_order) -> put(h, t, c, b, r.uid); if :: ok -> rebound() :: else fi :: else fi;
    goto done
  }
open:
  atomic { if :: fresh -> put(h, t, c, r.bound, r.buid); if :: ok -> lent() :: else -> goto done fi :: else fi }
  atomic {
    if
    :: closed[b] == id ->
      if :: t > mark[b] || !rule(reopen_max) -> mark[b] = t; owner[b] = h :: else fi;
      closed[b] = 0
    :: else
    fi
  }
done:
  atomic { h = 0; t = 0; c = 0; b = 0; id = 0; ok = false; fresh = false; goto work }
}
#endif

#if BOUNDARY
/* Whoever was told the mark's token writes, as often as it likes, at the boundary that was guarded: Hold, OnGrant. */
active proctype Worker() {
  byte w;
  do
  :: atomic {
      !closed[real] && (grantee[mark[real]] || (top && !rule(effect_token)));
      w = (rule(effect_token) -> mark[real] : 0);
      if :: rule(effect_atomic) -> effect() :: else fi
    }
    atomic { if :: !rule(effect_atomic) -> effect() :: else fi; w = 0 }
  od
}
#endif

/* What happens to clusters and databases. */
active proctype World() {
  byte deleted, switches; bool backup;
end:
  do
  :: atomic { deleted < DELETES && L.here -> deleted++; copy(L, nothing); current = 0 }
  :: atomic { (COPY || RESTORE) && !kept.here && L.here -> copy(kept, L); keptCeiling = ceiling }
  :: atomic { /* a backup tool: the content of old, and a uid of its own */
      COPY && kept.here && !L.here -> copy(L, kept); uids++; L.uid = uids; current = 0 }
  :: atomic { RESTORE && kept.here && !restored -> /* of etcd, and nobody notices */
      restored = true; copy(L, kept); ceiling = keptCeiling; current = 0 }
  :: atomic { SEQUENCE && !sequenceGone -> sequenceGone = true; lost = true }
  :: atomic { lost && (BOUNDARY || (L.here && valid(L))) -> lost = false; /* opened above what is known */
      ceiling = highestOf(mark[wanted], (L.here && valid(L) -> L.ceil : 0)) }
  :: atomic { switches < SWITCHES -> switches++; wanted = 3 - wanted }
  :: atomic { CLOSE && !RESTORE && !backup -> backup = true; keptMark = mark[1]; keptOwner = owner[1] }
  :: atomic { CLOSE && closings < CLOSE -> closings++; closed[1] = closings; /* a restart, or a copy that lags */
      if :: backup -> mark[1] = keptMark; owner[1] = keptOwner :: skip fi }
  od
}

