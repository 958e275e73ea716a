package roster

// HasQuorum reports whether gossip shows a majority of the voters alive.
func (s *Snapshot) HasQuorum() bool { return s.majority(Alive, Alive) }

// MayHaveQuorum reports whether a majority of the voters is up. Gossip shows that some time
// after the members have connected. Until then a voter that it has not seen counts as up if
// Raft has a leader (0: none) that gossip does not show dead.
func (s *Snapshot) MayHaveQuorum(leader uint64) bool {
	if leader == 0 || s.liveness(leader) == dead {
		return s.HasQuorum()
	}
	return s.majority(Alive, Unseen)
}

// majority reports whether a majority of the voters has one of two states.
func (s *Snapshot) majority(one, other Liveness) bool {
	voters, up := 0, 0
	for _, m := range s.Members {
		if m.Voter {
			voters++
			if m.Liveness == one || m.Liveness == other {
				up++
			}
		}
	}
	return up > voters/2
}
