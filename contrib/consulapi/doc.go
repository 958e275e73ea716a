// Package consulapi serves part of Consul's HTTP API from a conclave node, so that a program
// that uses Consul for sessions, locks and keys keeps its client. It is written from Consul's
// public documentation (https://developer.hashicorp.com/consul/api-docs) and links nothing
// but the standard library and package conclave.
//
// # What is served
//
//	/v1/kv/KEY                       GET (recurse, keys, separator, raw), PUT (flags, cas, acquire, release), DELETE (recurse, cas)
//	/v1/txn                          PUT, the verbs for keys
//	/v1/session/create, destroy/ID, renew/ID, info/ID, node/NODE, list
//	/v1/status/leader, peers
//	/v1/agent/self, members, checks, services
//	/v1/agent/check/register, deregister/ID, pass/ID, warn/ID, fail/ID, update/ID
//	/v1/catalog/datacenters, nodes, node/NODE, services
//	/v1/health/node/NODE, state/STATE, checks/SERVICE
//	/v1/event/list
//
// There are no services and no events: lists of them are empty.
//
// Other paths are 404. A query parameter or a JSON field that an endpoint does not know, or
// that asks for what is not served (peer, near, filter, hash, another namespace or partition than default, ...), is
// refused with the status 400 and a message that names it. It is never ignored. A JSON field that has its
// zero value asks for nothing and is accepted.
//
// # Where it differs from Consul
//
// Reads are linearizable by default, and ?consistent is the same. ?stale reads the node's own state, and with ?max_stale only if this
// node knows a leader and its last contact with it is no longer ago than that. A write blocks until it is on the disks of a majority.
//
// X-Consul-Index of a key is its ModifyIndex. That of a list of keys, and of a key that does not
// exist, is the index of the last change of any key, and not of the keys that are read; it is
// never 0. A blocking query waits all the same for a change of the keys it reads. One with an index from the future returns at once, but with ?stale it
// waits. A blocking query of sessions, checks or nodes returns when any of them has changed, as
// this node sees them; one of a single session, when that session has ended. Agent and status endpoints
// never block, as in Consul.
//
// Options.Group has the keys, sessions and checks of a further group served in place of those of the default group. A check is
// registered in that group, and only sessions of it can depend on the check. Agents that are to share keys need the same group.
//
// A node's name is that of its member. A member without a name, or with the name of
// another, or that is no longer in the group, has its member ID as name. The check serfHealth is
// the built-in check "gossip".
//
// A session is held for twice its TTL, as by Consul's servers, but for 24 h at most. Its TTL is shown as half of
// that, in seconds: "60s" for "1m". A LockDelay above one minute counts as one minute. Lists of sessions, checks and nodes are not older than without ?stale. The limits are conclave's:
// keys of 1 to 512 bytes of UTF-8 without NUL, and 16,384 keys in one recursive deletion.
//
// A transaction may read keys that it has written, and reads are of the same point in time
// as its writes. A get-tree goes with other reads only, and a check-session must precede the
// writes of its key; what is not so is refused with 400. A failed transaction reports one
// error, the first that was found. A transaction that Options.Authorize refuses gets the status 403.
//
// Checks are TTL checks of the own node. Their names, notes and outputs are kept in memory, as in
// a Consul agent without a data directory: after a restart of the process a client registers its checks
// again. Registering a check that exists keeps its status. A new check that is to be critical, as is
// the default, is passing for the moment between two commands; a session that comes to depend on
// it in between ends with the second.
package consulapi
