// Package client is one process's side of the protocol between a process and its
// group. It submits commands and matches outcomes to them, keeps the leases of the
// process renewed, knows by the local clock how long each hold can be trusted, and
// buffers the changes that the log reports.
//
// Client talks to the group through [Group], which a member in the same process
// implements. Group has values only, no closures over the state machine, so a
// process that is not a member can implement it over a connection.
//
// The package reports what happened as facts: a [Fault] carries a kind and, for a
// refusal, the reply of the state machine. Package conclave turns them into its
// errors.
package client
