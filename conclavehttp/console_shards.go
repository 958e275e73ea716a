package conclavehttp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/conclave-go/conclave"
)

// shardSet is a set of shards, with who has which.
type shardSet struct {
	conclave.ShardsInfo
	Map         []shardWorker
	MoreWorkers int    // that are not listed
	Free        string // shards that neither have an owner nor wait for one
}

// shardWorker is a worker of a set, with what it has.
type shardWorker struct {
	conclave.ShardWorkerInfo
	Has, Moves string // shards that it works on, and those of them that are to move
	Waits      string // shards that wait for one of its name
}

const (
	maxWorkers = 16 // of a set that are listed
	maxRanges  = 16 // of shards that are listed together
)

// listShards lists sets of shards; of a process or session those that it works on.
func (a *answerData) listShards(ctx context.Context, group *conclave.Group, q query, r *reading) {
	var failed error
	_, a.Next, a.Err = firstRows(r, group.ShardSets(ctx, q.prefix, conclave.After(q.after)), func(s conclave.ShardsInfo) string { return s.Name },
		func(s *conclave.ShardsInfo) bool {
			set, err := readShards(ctx, group, s.Name, a.of)
			failed = errors.Join(failed, err)
			if r.looked += len(s.Workers) + s.Count; err != nil || set == nil {
				return false
			}
			a.ShardSets = append(a.ShardSets, *set)
			return true
		})
	if a.Err == nil {
		a.Err = failed
	}
}

// readShards reads a set; nil: there is none any more, or none of its workers is listed.
func readShards(ctx context.Context, group *conclave.Group, name string, of ownership) (*shardSet, error) {
	info, err := group.Shards(name, 1).Info(ctx)
	if err != nil || info.Count == 0 {
		return nil, err
	}
	var owners []conclave.ShardOwner
	for o, err := range group.Shards(name, info.Count).Owners(ctx) {
		switch {
		case errors.Is(err, conclave.ErrLimitMismatch): // the count has changed meanwhile: the next reading shows it
		case err != nil:
			return nil, err
		default:
			owners = append(owners, o)
		}
	}
	return mapOf(info, owners, of), nil
}

// mapOf returns a set with who has which of its shards, or nil if none of its workers is listed.
func mapOf(info conclave.ShardsInfo, owners []conclave.ShardOwner, of ownership) *shardSet {
	has, moves, waits := make(map[uint64][]int), make(map[uint64][]int), make(map[uint64][]int) // by number of the worker
	var free []int
	for _, o := range owners {
		switch {
		case o.Fence == 0 && o.Worker != 0:
			waits[o.Worker] = append(waits[o.Worker], o.Shard)
		case o.Fence == 0:
			free = append(free, o.Shard)
		case o.Moving:
			moves[o.Worker] = append(moves[o.Worker], o.Shard)
			fallthrough
		default:
			has[o.Worker] = append(has[o.Worker], o.Shard)
		}
	}
	set := &shardSet{ShardsInfo: info, Free: ranges(free)}
	workers := slices.DeleteFunc(slices.Clone(info.Workers), func(w conclave.ShardWorkerInfo) bool { return !of.has(w.Node, w.Session) })
	if len(workers) == 0 && !of.all() {
		return nil
	}
	for _, w := range workers[:min(len(workers), maxWorkers)] {
		set.Map = append(set.Map, shardWorker{w, ranges(has[w.Number]), ranges(moves[w.Number]), ranges(waits[w.Number])})
	}
	set.MoreWorkers = len(workers) - len(set.Map)
	return set
}

// ranges returns ascending numbers, in short, such as "0–3, 7".
func ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		if len(parts) == maxRanges {
			parts = append(parts, "…")
			break
		}
		end := i + 1
		for end < len(numbers) && numbers[end] == numbers[end-1]+1 {
			end++
		}
		if part := fmt.Sprint(numbers[i]); end == i+1 {
			parts = append(parts, part)
		} else {
			parts = append(parts, fmt.Sprintf("%s–%d", part, numbers[end-1]))
		}
		i = end
	}
	return strings.Join(parts, ", ")
}
