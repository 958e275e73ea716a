// Package conclavehttp serves a node's condition over HTTP, for probes and for people. It
// links nothing but the standard library, and its handlers ask no other member.
package conclavehttp
