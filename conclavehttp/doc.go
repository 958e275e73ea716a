// Package conclavehttp serves a node's condition over HTTP, for probes, and a console of its
// group, for people. It links nothing but the standard library. The handler of [Health] asks no other
// member; that of [Console] reads through the group.
package conclavehttp
