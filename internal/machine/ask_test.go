package machine

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// ask answers a script's question.
func ask(w io.Writer, m *Machine, q []string) {
	switch q[0] {
	case "lock":
		if v := lockOf(m, q[1]); v != nil {
			printLock(w, *v)
		} else {
			fmt.Fprintf(w, "%s: idle\n", q[1])
		}
	case "locks":
		for _, v := range Ask[[]LockView](m, LocksQuery{Prefix: strings.Join(q[1:], ""), Limit: 3}) {
			printLock(w, v)
		}
	case "sessions":
		for _, v := range allSessions(m) {
			if one := sessionOf(m, v.ID); one == nil || !reflect.DeepEqual(*one, v) {
				fmt.Fprintln(w, "SessionQuery and SessionsQuery differ")
			}
			printSession(w, v)
		}
	case "semaphore":
		if v := semaphoreOf(m, q[1]); v != nil {
			printSemaphore(w, q[1], *v)
		} else {
			fmt.Fprintf(w, "%s: unused\n", q[1])
		}
	case "leader":
		fmt.Fprintf(w, "leader of %s: %s\n", q[1], printLeader(leaderOf(m, q[1])))
	case "acquired":
		printAcquired(w, m.Acquisition(must(ticketFrom(q[1]))))
	case "known":
		_, _, known := m.Registration(makeID(q[1]))
		fmt.Fprintln(w, known)
	case "deadline":
		at, ok := m.NextDeadline()
		fmt.Fprintln(w, time.Duration(at), ok)
	case "checks":
		askChecks(w, m)
	case "gossip":
		for _, v := range m.Liveness() {
			fmt.Fprintf(w, "member %d boot %d silent=%v", v.Member, v.Boot, v.Silent)
			if v.Crashed {
				fmt.Fprint(w, " crashed")
			}
			fmt.Fprintln(w)
		}
	case "removed":
		fmt.Fprintln(w, m.Removed())
	case "members":
		for _, r := range m.Members() {
			fmt.Fprintf(w, "member %d name=%q at=%q key=%d bytes ephemeral=%v registered=%v silent=%v since=%v\n",
				r.ID, r.Name, r.Advertise, len(r.Key), r.Ephemeral, r.Registered, r.Silent, time.Duration(r.Since))
		}
	case "config":
		c := m.GroupConfig()
		fmt.Fprintf(w, "voters %d replace after %v remove after %v\n", c.Voters, time.Duration(c.ReplaceAfter), time.Duration(c.RemoveAfter))
	case "keys":
		for _, k := range slices.Sorted(maps.Keys(dump(m))) {
			fmt.Fprintln(w, printKey(k))
		}
	default:
		askWhy(w, m, q)
	}
}

func askWhy(w io.Writer, m *Machine, q []string) {
	switch q[0] {
	case "explain":
		if v := Ask[*ExplainView](m, ExplainQuery{Name: q[1], Limit: 3}); v != nil {
			printExplain(w, *v)
		} else {
			fmt.Fprintf(w, "%s: idle\n", q[1])
		}
	case "job":
		if v := Ask[*JobView](m, JobQuery{q[1]}); v != nil {
			printJob(w, *v)
		} else {
			fmt.Fprintf(w, "%s: nothing retained\n", q[1])
		}
	case "jobs":
		for _, v := range Ask[[]JobView](m, JobsQuery{}) {
			printJob(w, v)
		}
	case "shards":
		if v := Ask[*ShardsView](m, ShardsQuery{q[1]}); v != nil {
			printShards(w, *v)
		} else {
			fmt.Fprintf(w, "%s: no workers\n", q[1])
		}
	case "shard-sets":
		printShardSets(w, m)
	case "former":
		for _, n := range slices.Sorted(maps.Keys(dump(m))) {
			if n[0] == slotKind {
				st := new(wire.SlotState)
				_ = proto.Unmarshal(dump(m)[n], st)
				fmt.Fprintf(w, "%s of %s in position %d\n", printKey(n), st.Session, st.Position)
			}
		}
	case "counts":
		c := m.Counts()
		fmt.Fprintf(w, "%d clients, %d sessions\n", c.Clients, c.Sessions)
	case "cycles":
		for _, c := range allCycles(m) {
			fmt.Fprintln(w, printCycle(c))
		}
	default:
		askEntries(w, m, q)
	}
}

// allCycles returns what all pages list.
func allCycles(m *Machine) (all [][]WaitView) {
	for after := (wire.Ticket{}); ; {
		page := Ask[WaitCyclesView](m, WaitCyclesQuery{after})
		if all = append(all, page.Cycles...); page.Done {
			return all
		}
		after = page.Next
	}
}

func askEntries(w io.Writer, m *Machine, q []string) {
	switch q[0] {
	case "key":
		if e := keyOf(m, q[1]); e != nil {
			fmt.Fprintln(w, printEntry(e))
		} else {
			fmt.Fprintf(w, "no key %s\n", q[1])
		}
	case "entries":
		for _, e := range keysOf(m, strings.Join(q[1:], "")) {
			fmt.Fprintln(w, printEntry(e))
		}
	case "changes":
		fmt.Fprintln(w, changesOf(m))
	default:
		fmt.Fprintln(w, "no such question")
	}
}

func askChecks(w io.Writer, m *Machine) {
	d := dump(m)
	for _, k := range slices.Sorted(maps.Keys(d)) {
		if k[0] != checkKind {
			continue
		}
		c := new(wire.CheckRecord)
		if err := proto.Unmarshal(d[k], c); err != nil {
			fmt.Fprintln(w, err)
		}
		fmt.Fprintf(w, "%s of member %d: %v ttl=%v refreshed at %v\n", k[9:], k[8], c.State, time.Duration(c.Ttl), time.Duration(c.Refreshed))
	}
}
