package machine

import (
	"fmt"
	"strings"

	"github.com/conclave-go/conclave/internal/wire"
)

// parseShards reads
//
//	join x 8 s/1 capacity=2 settle=5s
//	leave x s/1
//	release-shards x s/1 0=7 3=9 lost
//	resize-shards x 12
//
// where x is the set and 8 the count. The capacity is 1 and settle 30s unless they are there. A release names shards with
// their fences.
func parseShards(a *arguments, c *wire.Command) {
	switch a.words[0] {
	case "join":
		op := &wire.JoinShards{Set: a.name(1), Count: a.count(2), Capacity: 1, Settle: a.duration("settle", 30e9)}
		if _, ok := a.value("capacity"); ok {
			op.Capacity = uint32(a.number("capacity"))
		}
		op.Session, op.Handle = a.owner(3)
		c.Op = &wire.Command_JoinShards{JoinShards: op}
	case "leave":
		op := &wire.LeaveShards{Set: a.name(1)}
		op.Session, op.Handle = a.owner(2)
		c.Op = &wire.Command_LeaveShards{LeaveShards: op}
	case "release-shards":
		op := &wire.ReleaseShards{Set: a.name(1), Lost: a.flag("lost")}
		op.Session, op.Handle = a.owner(2)
		for _, word := range a.words[min(3, len(a.words)):] {
			if shard, fence, ok := strings.Cut(word, "="); ok {
				op.Shards = append(op.Shards, uint32((&arguments{words: []string{"n=" + shard}}).number("n")))
				op.Fences = append(op.Fences, (&arguments{words: []string{"n=" + fence}}).number("n"))
			} else if word == "unmatched" {
				op.Fences = append(op.Fences, 1)
			}
		}
		c.Op = &wire.Command_ReleaseShards{ReleaseShards: op}
	case "resize-shards":
		c.Op = &wire.Command_ResizeShards{ResizeShards: &wire.ResizeShards{Set: a.name(1), Count: a.count(2)}}
	}
}

// count reads a number that has no name.
func (a *arguments) count(i int) uint32 {
	var n uint32
	if _, err := fmt.Sscan(a.at(i), &n); err != nil {
		a.err = err
	}
	return n
}
