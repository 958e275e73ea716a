package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/conclave-go/conclave"
)

// lockKey is the one key that says who holds a slot.
const lockKey = prefix + "/.lock"

// slots is the value of the lock key, as in the guide.
type slots struct {
	Limit   int
	Holders map[string]bool // by session
}

// view is what there was when a contender looked, without the holders that are
// dead.
type view struct {
	slots
	modified uint64 // modify index of the lock key; 0 if there is none
	index    uint64 // that everything that was seen is at least as new as
}

// viewOf makes a view of the entries under the prefix. pruned are the holders
// that it leaves out, since their contender key is gone or held by nobody.
func viewOf(entries []conclave.Entry, index uint64) (v view, pruned []string, err error) {
	v = view{slots: slots{Limit: limit, Holders: make(map[string]bool)}, index: index}
	alive := make(map[string]bool)
	for _, e := range entries {
		if e.Session != (conclave.SessionID{}) {
			alive[e.Session.String()] = true
		}
		if e.Key != lockKey {
			continue
		}
		v.modified = e.ModifyIndex
		if err := json.Unmarshal(e.Value, &v.slots); err != nil {
			return v, nil, fmt.Errorf("%s: %w", lockKey, err)
		}
	}
	if v.Limit != limit {
		return v, nil, fmt.Errorf("the others have a limit of %d, and we of %d: agree on one", v.Limit, limit)
	}
	for holder := range v.Holders {
		if !alive[holder] {
			pruned = append(pruned, holder)
			delete(v.Holders, holder)
		}
	}
	slices.Sort(pruned)
	return v, pruned, nil
}

func (v view) free() int { return v.Limit - len(v.Holders) }

func (v view) with(holder string) view {
	v.Holders = maps.Clone(v.Holders)
	v.Holders[holder] = true
	return v
}

func (v view) without(holder string) view {
	v.Holders = maps.Clone(v.Holders)
	delete(v.Holders, holder)
	return v
}

func (v view) text() ([]byte, error) { return json.Marshal(v.slots) }
