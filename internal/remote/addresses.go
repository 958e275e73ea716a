package remote

import (
	"math/rand/v2"
	"net"
	"slices"
)

// addresses are those at which members may be found. The loop owns it.
type addresses struct {
	members []string // as a member has stated them last
	former  []string // stated before that, the latest first: the member may know less than another one
}

const (
	// maxStated bounds the addresses that a member states, and maxAddress each of them: a DNS
	// name and a port.
	maxStated  = 256
	maxAddress = 260
	// maxFormer bounds the addresses that are kept of what was stated before.
	maxFormer = 16
)

// learn notes the addresses that a member states.
func (a *addresses) learn(stated []string) {
	var members []string
	for _, addr := range stated[:min(maxStated, len(stated))] {
		if _, _, err := net.SplitHostPort(addr); err == nil && len(addr) <= maxAddress && !slices.Contains(members, addr) {
			members = append(members, addr)
		}
	}
	if len(members) == 0 {
		return // a member that does not know its group yet
	}
	former := a.former
	for _, addr := range a.members {
		if !slices.Contains(members, addr) {
			former = slices.Insert(slices.DeleteFunc(former, func(f string) bool { return f == addr }), 0, addr)
		}
	}
	former = slices.DeleteFunc(former, func(f string) bool { return slices.Contains(members, f) })
	a.members, a.former = members, former[:min(maxFormer, len(former))]
}

// inOrder returns the addresses in the order in which they are tried. Those of the members and
// those that were configured alternate, each in random order: the configured ones may be out of
// date, and the members' own may not be reachable from here.
func (a *addresses) inOrder(configured []string) (all []string) {
	members, configured := slices.Clone(a.members), slices.Clone(configured)
	for _, list := range [][]string{members, configured} {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	add := func(addr string) {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	for i := range max(len(members), len(configured)) {
		if i < len(members) {
			add(members[i])
		}
		if i < len(configured) {
			add(configured[i])
		}
	}
	for _, addr := range a.former {
		add(addr)
	}
	return all
}
