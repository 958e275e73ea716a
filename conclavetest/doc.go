// Package conclavetest runs a group of conclave members inside a test, with real
// disks and real connections on loopback, and injects faults: it kills and restarts
// members, and partitions and heals the network.
//
//	group := conclavetest.Start(t, 3)
//	lock := group.Node(0).FencedLock("invoices")
//	…
//	group.Partition([]int{0}) // isolates the holder
//	<-lock.Lost()             // which detects the loss by its own clock
//
// Members create further groups as they do elsewhere; [Group.LeaderOf] is the leader of one.
//
// When the test ends the group is closed, and the test fails if a goroutine of it
// remains. Heartbeats, elections and the session TTL of ten seconds are short; see
// [Configure].
//
// Mistakes of the test, such as an invalid index, and waits that time out end the test
// with Fatal. Therefore the methods of a [Group], except Node and Nodes, must be called
// on the test's own goroutine.
package conclavetest
