//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
)

// part is one name of a set, with what is known of it.
type part struct {
	Name   string `json:"name"`
	Shared bool   `json:"shared,omitempty"`
	Fence  uint64 `json:"fence,omitempty"` // 0: before the grant, or lost before it was read
}

// sharedForm is the operation on a single lock that one on a set is for its shared names.
var sharedForm = map[string]string{opLock: opRLock, opTry: opTryRLock, opUnlock: opRUnlock, opCheck: opRCheck, opExtend: opExtend}

func isSet(op *operation) bool { return len(op.Parts) > 0 }

// singles returns the operations with each one on a set as one on each of its names, at the same time: a hold of a set is
// one of each name. Refused ones are left out, since they do not tell for each name whether it was taken.
func singles(ops []*operation) []*operation {
	var all []*operation
	for _, op := range ops {
		switch {
		case !isSet(op):
			all = append(all, op)
		case op.result == resultRefused:
		default:
			for i := range op.Parts {
				all = append(all, singleOf(op, i))
			}
		}
	}
	return all
}

func singleOf(set *operation, i int) *operation {
	op, p := *set, set.Parts[i]
	op.whole, op.Parts, op.parts = set, nil, nil
	op.Name, op.Fence, op.fence = p.Name, p.Fence, 0
	if i < len(set.parts) {
		op.fence = set.parts[i].Fence
	}
	if p.Shared {
		op.Op = sharedForm[set.Op]
	}
	if op.result == resultOK && op.fence == 0 && (acquires(&op) || grantsShared(&op)) {
		op.result = resultUnknown // lost before its fence was read
	}
	return &op
}

// beginners are the acquisitions of sets, each of which may have begun several shared phases with one fence.
type beginners []*operation

func beginnersOf(ops []*operation) (sets beginners) {
	for _, op := range ops {
		if op.whole != nil && acquires(op.whole) && (len(sets) == 0 || sets[len(sets)-1] != op.whole) {
			sets = append(sets, op.whole)
		}
	}
	return sets
}

// use is a hold of one name as far as its fence may be that of others.
type use struct {
	name, hold string
	joined     bool  // it may have joined a shared phase
	at         int64 // when it had its fence
}

func useOf(grant *operation) use {
	return use{grant.Name, grant.Hold, grant.Op == opRLock || grant.Op == opTryRLock, grant.returned}
}

// gave reports whether one grant of a set may be why two holds have this fence: each is of the set, or has joined a phase that
// the set began. A set whose fence is not known may have had it; so may one with a larger fence, since an earlier grant may
// have been lost without its process learning of it.
func (sets beginners) gave(fence uint64, a, b use) bool {
	return slices.ContainsFunc(sets, func(s *operation) bool {
		return (s.fence == 0 || s.fence >= fence) && s.Time < min(a.at, b.at) && began(s, a) && began(s, b)
	})
}

// began reports whether a hold is of a set, or may have joined a phase that the set began.
func began(set *operation, u use) bool {
	return u.hold == set.Hold || u.joined && slices.ContainsFunc(set.Parts, func(p part) bool { return p.Shared && p.Name == u.name })
}

// describeParts lists the names of a set for people.
func describeParts(parts []part) string {
	var all []string
	for _, p := range parts {
		text := p.Name
		if p.Shared {
			text += " shared"
		}
		if p.Fence != 0 {
			text += fmt.Sprintf(" fence %d", p.Fence)
		}
		all = append(all, text)
	}
	return "{" + strings.Join(all, ", ") + "}"
}
