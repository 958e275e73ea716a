package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/conclave-go/conclave"
)

// lockKey is the key that lists the holders.
const lockKey = prefix + "/.lock"

// slots is the value of the lock key, in the format of the guide.
type slots struct {
	Limit   int
	Holders map[string]bool // by session ID
}

// view is the state that a contender has read, without dead holders.
type view struct {
	slots
	modified uint64 // ModifyIndex of the lock key; 0 if there is none
	index    uint64 // the view is at least as new as this index
}

// viewOf makes a view of the entries under the prefix. It leaves out the dead
// holders, whose contender key is deleted or not held, and returns them.
func viewOf(entries []conclave.Entry, index uint64) (v view, dead []string, err error) {
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
		return v, nil, fmt.Errorf("invalid limit: want %d, as other contenders use, got %d", v.Limit, limit)
	}
	for holder := range v.Holders {
		if !alive[holder] {
			dead = append(dead, holder)
			delete(v.Holders, holder)
		}
	}
	slices.Sort(dead)
	return v, dead, nil
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
