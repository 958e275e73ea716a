package machine

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/conclave-go/conclave/internal/fact"
)

// printShardChanges prints what has changed about shards, in its order.
func printShardChanges(changes []fact.ShardChange) string {
	var s strings.Builder
	for _, c := range changes {
		switch {
		case c.All:
			fmt.Fprintf(&s, "shards of %s changed\n", c.Set)
		case c.Fence == 0:
			fmt.Fprintf(&s, "shard %d of %s is free\n", c.Shard, c.Set)
		default:
			fmt.Fprintf(&s, "shard %d of %s for %s/%d, fence=%d", c.Shard, c.Set, printID(c.Session), c.Handle, c.Fence)
			if c.Moving {
				fmt.Fprint(&s, ", to move")
			}
			fmt.Fprintln(&s)
		}
	}
	return s.String()
}

// printShards prints a set of shards with its workers and shards.
func printShards(w io.Writer, v ShardsView) {
	fmt.Fprintf(w, "%s: %d shards", v.Name, v.Count)
	if v.Next != 0 {
		fmt.Fprintf(w, ", to be %d", v.Next)
	}
	fmt.Fprintf(w, " since %d: %d owned, %d moving, %d waiting\n", v.Generation, v.Owned, v.Moving, v.Waiting)
	for _, of := range v.Workers {
		fmt.Fprintf(w, "  worker %d %q %s/%d of %s, capacity=%d:", of.Number, of.Name, printID(of.Session), of.Handle, printMember(of.Member, of.Client), of.Capacity)
		for i, sh := range v.Shards {
			if sh.Worker == of.Number {
				fmt.Fprintf(w, " %d%s", i, printShard(sh))
			}
		}
		if of.Leaving {
			fmt.Fprint(w, ", leaving")
		}
		if !of.Live {
			fmt.Fprintf(w, ", ended, waits for %v", time.Duration(of.Remaining))
		}
		fmt.Fprintln(w)
	}
}

// printShard prints the fence of a claimed shard, and an arrow if it is to move.
func printShard(sh ShardView) (s string) {
	if s = "-"; sh.Fence != 0 {
		s = fmt.Sprintf("=%d", sh.Fence)
	}
	if sh.Moving {
		s += ">"
	}
	return s
}

func printShardSets(w io.Writer, m *Machine) {
	for _, v := range allShardSets(m) {
		printShards(w, v)
	}
}

// allShardSets returns all sets of shards, with their workers and shards.
func allShardSets(m *Machine) (all []ShardsView) {
	for after := ""; ; {
		page := Ask[[]ShardsView](m, ShardSetsQuery{After: after})
		if len(page) == 0 {
			return all
		}
		for _, v := range page {
			all = append(all, *Ask[*ShardsView](m, ShardsQuery{v.Name}))
		}
		after = page[len(page)-1].Name
	}
}

// printShardKey prints the durable key of a set of shards, of a worker or of a shard.
func printShardKey(k string) string {
	if set, number, ok := strings.Cut(k[1:], "\x00"); ok {
		return fmt.Sprintf("%c %s %d", k[0], set, binary.BigEndian.Uint64([]byte(number)))
	}
	return k[:1] + " " + k[1:]
}
