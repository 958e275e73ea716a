// Package conclavetest runs a whole group of conclave members inside a test, on
// loopback, with real disks and real connections, and lets the test harm it:
// kill members, restart them, cut them off from each other, heal the network.
//
//	group := conclavetest.Start(t, 3)
//	lock := group.Node(0).FencedLock("invoices")
//	…
//	group.Partition([]int{0}) // the holder is cut off
//	<-lock.Lost()             // and learns of it by its own clock
//
// Everything is closed when the test ends, and the test fails if a goroutine of
// the group is left then. The settings are fast ones: short heartbeats and
// elections, sessions that end after two seconds of silence; see [Configure].
//
// Faults that the test itself makes, such as a wrong index, and waits that come
// to nothing end the test with Fatal. So the methods of a [Group] belong on the
// test's own goroutine; only Node and Nodes may be called on any.
package conclavetest
