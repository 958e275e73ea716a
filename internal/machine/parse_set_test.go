package machine

import (
	"slices"
	"strings"

	"github.com/conclave-go/conclave/internal/wire"
)

// parseSet reads
//
//	lockset s/1 x y shared=z,u wait label=me max-hold=1s refuse-deadlock
//	unlockset s fence=7 trace=t
//
// where x and y are names to hold exclusively.
func parseSet(a *arguments, c *wire.Command) {
	switch a.words[0] {
	case "lockset":
		op := &wire.LockSet{Wait: a.flag("wait"), Label: a.label(), MaxHold: a.duration("max-hold", 0), RefuseDeadlock: a.flag("refuse-deadlock")}
		op.Session, op.Handle = a.owner(1)
		flags := []string{"wait", "refuse-deadlock"}
		for i, word := range a.words {
			if i > 1 && !slices.Contains(flags, word) && !strings.Contains(word, "=") {
				op.Names = append(op.Names, a.name(i))
			}
		}
		op.Names = repeated(op.Names, a.number("times"))
		if v, ok := a.value("shared"); ok {
			one := &arguments{words: strings.Split(v, ",")}
			for i := range one.words {
				op.Shared = append(op.Shared, one.name(i))
			}
		}
		c.Op = &wire.Command_LockSet{LockSet: op}
	case "unlockset":
		op := &wire.UnlockSet{Fence: a.number("fence"), Trace: a.text("trace")}
		op.Session, _ = a.owner(1)
		c.Op = &wire.Command_UnlockSet{UnlockSet: op}
	}
}

// repeated returns so many names made of the last one, with longer and longer ends; 0: the names as they are.
func repeated(names []string, times uint64) []string {
	for i := 1; i < int(times); i++ {
		names = append(names, names[len(names)-1]+"'")
	}
	return names
}
