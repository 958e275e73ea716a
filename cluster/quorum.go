package cluster

// HasQuorum reports whether a majority of the voters is up, this member included, as far
// as is known here. It never blocks.
func (m *Member) HasQuorum() bool { return m.roster.snapshot().mayHaveQuorum(m.status.Load().Leader) }

// hasQuorum reports whether gossip shows a majority of the voters alive.
func (s *rosterSnapshot) hasQuorum() bool { return s.majority(alive, alive) }

// mayHaveQuorum reports whether a majority of the voters is up. Gossip shows that some time
// after the members have connected. Until then a voter that it has not seen counts as up if
// Raft has a leader (0: none) that gossip does not show dead.
func (s *rosterSnapshot) mayHaveQuorum(leader uint64) bool {
	if leader == 0 || s.liveness(leader) == dead {
		return s.hasQuorum()
	}
	return s.majority(alive, unseen)
}

// majority reports whether a majority of the voters has one of two states.
func (s *rosterSnapshot) majority(one, other liveness) bool {
	voters, up := 0, 0
	for _, m := range s.members {
		if m.voter {
			voters++
			if m.liveness == one || m.liveness == other {
				up++
			}
		}
	}
	return up > voters/2
}
