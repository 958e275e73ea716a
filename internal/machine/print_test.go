package machine

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// makeID turns a script's word into an ID; "zero" is what it says.
func makeID(word string) (id wire.ID) {
	if word != "zero" {
		copy(id[:], word)
	}
	return id
}

func printID(id wire.ID) string { return strings.TrimRight(string(id[:]), "\x00") }

func printResult(w io.Writer, r wire.Result) {
	for _, o := range r.Outcomes {
		fmt.Fprintf(w, "%s.%d: %s", printID(o.Ticket.Incarnation), o.Ticket.Seq, printReply(o.Reply))
		if o.More {
			fmt.Fprint(w, ", more to come")
		}
		fmt.Fprintln(w)
	}
	for _, e := range r.Ended {
		fmt.Fprintf(w, "ended %s of %s\n", printID(e.Session), printID(e.Incarnation))
	}
}

func printReply(r *wire.Reply) string {
	s := r.Code.String()
	if r.Fence != 0 {
		s += fmt.Sprintf(" fence=%d holds=%d", r.Fence, r.Holds)
	}
	if r.Delay != 0 {
		s += fmt.Sprintf(" delay=%v", time.Duration(r.Delay))
	}
	if r.Detail != "" {
		s += fmt.Sprintf(" (%s)", r.Detail)
	}
	return s
}

// ask answers a script's question.
func ask(w io.Writer, m *Machine, q []string) {
	switch q[0] {
	case "lock":
		if v, ok := m.Lock(q[1]); ok {
			printLock(w, v)
		} else {
			fmt.Fprintf(w, "%s: idle\n", q[1])
		}
	case "locks":
		for _, v := range m.Locks(strings.Join(q[1:], ""), 3) {
			printLock(w, v)
		}
	case "sessions":
		for _, v := range m.Sessions() {
			if one, ok := m.Session(v.ID); !ok || !reflect.DeepEqual(one, v) {
				fmt.Fprintln(w, "Session and Sessions differ")
			}
			fmt.Fprintf(w, "%s %q of %s, member %d, ttl=%v delay=%v left=%v created=%d\n", printID(v.ID), v.Name, printID(v.Incarnation),
				v.Member, time.Duration(v.TTL), time.Duration(v.LockDelay), time.Duration(v.Remaining), v.CreateIndex)
		}
	case "acquired":
		who, seq, _ := strings.Cut(q[2], ".")
		t := wire.Ticket{Incarnation: makeID(who), Seq: must(strconv.ParseUint(seq, 10, 64))}
		fmt.Fprintf(w, "%+v\n", m.Acquisition(wire.Space_LOCK, q[1], t))
	case "known":
		fmt.Fprintln(w, m.Incarnation(makeID(q[1])))
	case "deadline":
		at, ok := m.NextDeadline()
		fmt.Fprintln(w, time.Duration(at), ok)
	case "keys":
		for _, k := range slices.Sorted(maps.Keys(dump(m))) {
			fmt.Fprintln(w, printKey(k))
		}
	default:
		fmt.Fprintln(w, "no such question")
	}
}

// printKey prints a durable key: its kind, then what it is about.
func printKey(k string) string {
	switch k[0] {
	case memoryKind:
		return fmt.Sprintf("M %d", k[len(k)-1])
	case ticketKind:
		return fmt.Sprintf("t %s.%d", strings.TrimRight(k[1:17], "\x00"), binary.BigEndian.Uint64([]byte(k[17:])))
	case waiterKind:
		return fmt.Sprintf("w %s %d", k[1:len(k)-9], binary.BigEndian.Uint64([]byte(k[len(k)-8:])))
	}
	return strings.TrimRight(k[:1]+" "+k[1:], "\x00 ")
}

func printLock(w io.Writer, v LockView) {
	fmt.Fprintf(w, "%s:", v.Name)
	if v.Held {
		fmt.Fprintf(w, " held by %s/%d of member %d, fence=%d holds=%d", printID(v.Session), v.Handle, v.Member, v.Fence, v.Holds)
	} else {
		fmt.Fprintf(w, " delayed for %v", time.Duration(v.Delay))
	}
	fmt.Fprintf(w, ", %d waiting\n", v.Waiters)
}
