// Package consultest runs Consul's own clients against package consulapi: HashiCorp's client for Go,
// npm's for JavaScript, and the curl commands of Consul's guides. It is a module of its own, so that no
// program that uses the library links a client.
//
// Each test starts members in this process, and a handler on loopback for each of them. Tests whose
// client is not installed (node and npm, curl) are skipped. HashiCorp's own tests of its client run as they
// are; the program of folder standin is what they start as consul.
package consultest
