package raftlog

import "go.etcd.io/raft/v3/raftpb"

// disk is the half of the log that the storage goroutine keeps: what is written
// so far, as far as it takes to write on.
type disk struct {
	hard        *raftpb.HardState
	applied     Applied
	truncated   mark
	marks       []mark // of the entries after truncated
	generation  uint64 // of the valid state
	generations uint64 // the largest ever given out
	synced      uint64 // number of the last synced write
	watermark   *watermark
	failed      error // a Write has failed: what is on disk is not known any more
}

// empty reports whether there is no log of any group, and no promise to one.
func (d *disk) empty() bool {
	return d.hard == nil && d.applied == Applied{} && d.last() == mark{}
}

func (d *disk) last() mark {
	if len(d.marks) == 0 {
		return d.truncated
	}
	return d.marks[len(d.marks)-1]
}

// at returns the mark of an entry that is kept, or of the truncated one.
func (d *disk) at(index uint64) (mark, bool) {
	switch {
	case index == d.truncated.index:
		return d.truncated, true
	case index < d.truncated.index || index > d.last().index:
		return mark{}, false
	}
	return d.marks[index-d.truncated.index-1], true
}
