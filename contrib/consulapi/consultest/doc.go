// Package consultest runs Consul's own clients against package consulapi: HashiCorp's client for Go,
// npm's for JavaScript, programs that are built on such clients, and the curl commands of Consul's
// guides. It is a module of its own, so that no program that uses the library links a client.
//
// Each test starts members in this process, and a handler on loopback for each of them. Tests whose
// client is not installed, and cannot be, are skipped. HashiCorp's own tests of its client run as they
// are; the program of folder standin is what they start as consul.
package consultest
