package sim

// shardCounts counts what happened to shards and their workers.
type shardCounts struct {
	joined, mismatched       int // joins; of these, those that were refused for their count
	returned, claimed        int // of those that joined: in the place of one that had ended; of one that an earlier process had left
	left, outdated, resized  int // workers that left; that found the count changed; changes of a count
	lost, settled            int // workers whose session ended; whose shards went to others after that, for want of one of their name
	granted, kept            int // shards; of these, those that went to the next worker in the place of theirs
	recalled, released       int
	abandoned                int // of the released, those under a lock-delay
	begun, unbegun, late     int // works; shards that were released before a work began; views that showed fences whose work had ended
	refused                  int // writes of owners that were not the last
	calmed, added, addedMany int // times that a set was quiet again; since then only one worker had joined; one to one, with more shards than move at a time
}

func (c *shardCounts) add(o shardCounts) {
	c.joined += o.joined
	c.mismatched += o.mismatched
	c.returned += o.returned
	c.claimed += o.claimed
	c.left += o.left
	c.outdated += o.outdated
	c.resized += o.resized
	c.lost += o.lost
	c.settled += o.settled
	c.granted += o.granted
	c.kept += o.kept
	c.recalled += o.recalled
	c.released += o.released
	c.abandoned += o.abandoned
	c.begun += o.begun
	c.unbegun += o.unbegun
	c.late += o.late
	c.refused += o.refused
	c.calmed += o.calmed
	c.added += o.added
	c.addedMany += o.addedMany
}

// occurred reports whether there was some of each that is not rare.
func (c shardCounts) occurred() bool {
	return c.joined > 0 && c.returned > 0 && c.left > 0 && c.lost > 0 && c.settled > 0 && c.granted > 0 && c.kept > 0 && c.recalled > 0 &&
		c.released > 0 && c.begun > 0 && c.calmed > 0
}

// allOccurred reports whether there was some of each.
func (c shardCounts) allOccurred() bool {
	return c.occurred() && c.mismatched > 0 && c.claimed > 0 && c.outdated > 0 && c.resized > 0 && c.abandoned > 0 &&
		c.unbegun > 0 && c.late > 0 && c.refused > 0 && c.added > 0 && c.addedMany > 0
}
