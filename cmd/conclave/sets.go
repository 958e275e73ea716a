package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/conclave-go/conclave"
)

// What the tables show of sets: several locks that are held, or waited for, as a whole.

// waitersOf is how many requests wait for a lock, and how many of them are sets.
func waitersOf(waiters, sets int) string {
	if sets == 0 {
		return fmt.Sprint(waiters)
	}
	return fmt.Sprintf("%d (%s)", waiters, count(sets, "set"))
}

// setsOf is which sets a lock is held and reserved for; "-": none. sets is how many of the holders that share it, of which
// there are shared, have one.
func setsOf(shared, sets, set int, with []string, reserved string) string {
	var parts []string
	switch held := heldWith(set, with); {
	case shared > 1 && sets > 0 && held != "":
		parts = append(parts, fmt.Sprintf("%s among the holders, the first %s", count(sets, "set"), held))
	case shared > 1 && sets > 0:
		parts = append(parts, fmt.Sprintf("%s among the holders", count(sets, "set")))
	case held != "":
		parts = append(parts, "held "+held)
	}
	if reserved != "" {
		parts = append(parts, reserved)
	}
	return cmp.Or(strings.Join(parts, "; "), "-")
}

// heldWith is the other names of a holder's set, of which with is the first ones; "": it has none.
func heldWith(set int, with []string) string {
	switch {
	case set == 0:
		return ""
	case len(with) == 0: // also if the member that was asked does not list them
		return fmt.Sprintf("as a set of %d", set)
	}
	var shown []string
	for _, other := range with {
		shown = append(shown, name(other))
	}
	text := "with " + strings.Join(shown, ", ")
	if more := set - 1 - len(with); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// reservingSet returns the oldest waiter that a lock is reserved for; nil: there is none.
func reservingSet(queue []conclave.LockOwner) *conclave.LockOwner {
	if i := slices.IndexFunc(queue, func(o conclave.LockOwner) bool { return o.Reserved }); i >= 0 {
		return &queue[i]
	}
	return nil
}

// reservation names the set that a lock is reserved for; "": it is not.
func reservation(queue []conclave.LockOwner) string {
	o := reservingSet(queue)
	if o == nil {
		return ""
	}
	text := fmt.Sprintf("reserved for a set of %d of %s", o.Set, processOf(*o))
	if o.Label != "" {
		text += ", label " + name(o.Label)
	}
	return text
}
