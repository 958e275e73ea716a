package conclave

// Election is a handle to an election of the group: of all who campaign one
// leads, and everybody can see who, with the value that the leader has
// proclaimed.
type Election struct {
	lock *FencedLock // in the name space of elections; its node, name and bad are the election's
}
