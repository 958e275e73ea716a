package machine

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// makeID turns a script's word into an ID; "zero" is what it says, and @word the incarnation
// of a client.
func makeID(word string) (id wire.ID) {
	if strings.HasPrefix(word, "@") {
		return wire.ClientIncarnation(wordKey(word))
	}
	if word != "zero" {
		copy(id[:], word)
	}
	return id
}

func printID(id wire.ID) string {
	if id.IsZero() {
		return "none"
	}
	return strings.TrimRight(string(id[:]), "\x00")
}

// printMember prints whose something is.
func printMember(member uint64, client bool) string {
	if client {
		return fmt.Sprintf("client %d", member)
	}
	return fmt.Sprintf("member %d", member)
}

// printResult prints what came of an entry: the outcomes and the sessions that ended in
// their order, then the changes of keys and of leaders in theirs.
func printResult(w io.Writer, r fact.Result) {
	r.InOrder(func(o fact.Outcome) {
		fmt.Fprintf(w, "%s.%d: %s", printID(o.Ticket.Incarnation), o.Ticket.Seq, printReply(o.Reply))
		if o.More {
			fmt.Fprint(w, ", more to come")
		}
		fmt.Fprintln(w)
	}, func(e fact.Ended) {
		what := "ended"
		if e.Unbound {
			what = "unbound"
		}
		fmt.Fprintf(w, "%s %s of %s\n", what, printID(e.Session), printID(e.Incarnation))
	})
	for _, c := range r.Recalls {
		fmt.Fprintf(w, "recall %s of %s/%d, bound to %s", c.Lock, printID(c.Session), c.Handle, printID(c.Incarnation))
		if c.Shared {
			fmt.Fprintf(w, ", share=%d", c.Share)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, printShardChanges(r.Shards), printKeyChanges(r.Keys), printLeaders(r.Leaders))
}

func printReply(r *wire.Reply) string {
	s := r.Code.String()
	if r.Fence != 0 {
		s += fmt.Sprintf(" fence=%d holds=%d", r.Fence, r.Holds)
	}
	if r.Share != 0 {
		s += fmt.Sprintf(" share=%d", r.Share)
	}
	if len(r.Slots) > 0 {
		s += " slots=" + printSlots(r.Slots)
	}
	if r.Block != 0 {
		s += fmt.Sprintf(" block=%d", r.Block)
	}
	if len(r.Trace) > 0 {
		s += fmt.Sprintf(" trace=%q", r.Trace)
	}
	if r.Allowed != 0 {
		s += fmt.Sprintf(" allowed=%v of %v", time.Duration(r.Allowed), time.Duration(r.Now))
	}
	if r.Delay != 0 {
		s += fmt.Sprintf(" delay=%v", time.Duration(r.Delay))
	}
	if r.Limit != 0 {
		s += fmt.Sprintf(" limit=%d", r.Limit)
	}
	if r.LockDelay != 0 {
		s += fmt.Sprintf(" lock-delay=%v", time.Duration(r.LockDelay))
	}
	for _, c := range r.Checks {
		s += fmt.Sprintf(" check=%s", c.Name)
		if c.Ttl != 0 {
			s += fmt.Sprintf(",ttl=%v,left=%v", time.Duration(c.Ttl), time.Duration(c.Remaining))
		}
	}
	if r.Position != 0 {
		s += fmt.Sprintf(" in place %d", r.Position)
	}
	if r.Holder != nil {
		s += printHolder(r.Holder)
	}
	s += printSet(r.Set) + printRun(r.Run)
	if c := r.Cycle; c != nil {
		s += fmt.Sprintf(" %d waits: %s", c.Length, printCycle(Cycle(r)))
	}
	if r.Op != 0 {
		s += fmt.Sprintf(" op=%d", r.Op)
	}
	for i, k := range r.Keys[:min(len(r.Keys), 9)] {
		s += strings.Repeat(";", min(i, 1)) + " " + printMeta(k)
	}
	if len(r.Keys) > 9 {
		s += fmt.Sprintf("; and so on, %d in all", len(r.Keys))
	}
	if r.Detail != "" {
		s += fmt.Sprintf(" (%s)", r.Detail)
	}
	return s
}

func printHolder(h *wire.Holder) string {
	s := " by " + printID(makeID(string(h.Session)))
	if h.Handle != 0 {
		s += fmt.Sprintf("/%d", h.Handle)
	}
	s += fmt.Sprintf(" of member %d", h.Member)
	if h.Fence != 0 {
		s += fmt.Sprintf(", fence=%d", h.Fence)
	}
	if h.Shared {
		s += ", shared"
	}
	if h.Waiting {
		s += ", which waits"
	}
	return s
}

func printAcquired(w io.Writer, got Acquired) {
	fmt.Fprintf(w, "{Waiting:%t Held:%t Fence:%d Holds:%d", got.Waiting, got.Held, got.Fence, got.Holds)
	if got.Share != 0 {
		fmt.Fprintf(w, " Share:%d", got.Share)
	}
	if len(got.Slots) > 0 {
		fmt.Fprintf(w, " Slots:%v", got.Slots)
	}
	if len(got.Set) > 0 {
		fmt.Fprintf(w, " Set:%v", got.Set)
	}
	if got.Allowed != 0 {
		fmt.Fprintf(w, " Allowed:%v Now:%v", time.Duration(got.Allowed), time.Duration(got.Now))
	}
	fmt.Fprintln(w, "}")
}

func printSlots(slots []uint32) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(slots), "[]"), " ", ",")
}

func printMeta(k *wire.KeyMeta) string {
	if k.ModifyIndex == 0 {
		return "-"
	}
	e := fact.Entry{
		Flags: k.Flags, CreateIndex: k.CreateIndex, ModifyIndex: k.ModifyIndex,
		LockIndex: k.LockIndex, Session: makeID(string(k.Session)), Fence: k.Fence,
	}
	return printFields(&e)
}

// printFields prints an entry's numbers, but for those that are zero.
func printFields(e *fact.Entry) string {
	s := fmt.Sprintf("create=%d modify=%d", e.CreateIndex, e.ModifyIndex)
	if e.Flags != 0 {
		s += fmt.Sprintf(" flags=%d", e.Flags)
	}
	if e.LockIndex != 0 {
		s += fmt.Sprintf(" lock=%d", e.LockIndex)
	}
	if !e.Session.IsZero() {
		s += " session=" + printID(e.Session)
	}
	if e.Fence != 0 {
		s += fmt.Sprintf(" fence=%d", e.Fence)
	}
	return s
}

func printEntry(e *fact.Entry) string {
	key, value := e.Key, fmt.Sprintf("%q", e.Value)
	if len(key) > 99 {
		key = fmt.Sprintf("of %d bytes", len(key))
	}
	if len(e.Value) > 99 {
		value = fmt.Sprintf("%d bytes", len(e.Value))
	}
	return fmt.Sprintf("key %s: %s %s", key, value, printFields(e))
}

func printKeyChanges(changes []fact.KeyChange) string {
	var s strings.Builder
	for _, c := range changes {
		if c.Deleted {
			fmt.Fprintf(&s, "at %d deleted ", c.Index)
		} else if c.Index != c.Entry.ModifyIndex {
			fmt.Fprintf(&s, "at %d and not its modify index ", c.Index)
		}
		fmt.Fprintln(&s, printEntry(c.Entry))
	}
	return s.String()
}

func printLeaders(changes []fact.LeaderChange) string {
	var s strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&s, "leader of %s: %s\n", c.Election, printLeader(c.Leader))
	}
	return s.String()
}

func printLeader(l *fact.Leader) string {
	if l == nil {
		return "none"
	}
	return fmt.Sprintf("%s of member %d, fence=%d %q", printID(l.Session), l.Member, l.Fence, l.Value)
}

// printKey prints a durable key: its kind, then what it is about.
func printKey(k string) string {
	switch k[0] {
	case memberKind:
		return fmt.Sprintf("M %d", k[len(k)-1])
	case ticketKind:
		return fmt.Sprintf("t %s.%d", strings.TrimRight(k[1:17], "\x00"), binary.BigEndian.Uint64([]byte(k[17:])))
	case waiterKind: // of a lock, or after e of an election, after S of a semaphore
		of, election := strings.CutPrefix(strings.ReplaceAll(k[1:len(k)-9], "\x00", "/"), string(electionKind))
		if of = strings.TrimPrefix(of, string(lockKind)); election {
			of = "e " + of
		}
		return fmt.Sprintf("w %s %d", of, binary.BigEndian.Uint64([]byte(k[len(k)-8:])))
	case 'j', 'J', 'r':
		return printJobKey(k)
	case 'a', 'b', 'f':
		return printShardKey(k)
	case shareKind:
		return fmt.Sprintf("h %s %d", k[1:len(k)-9], binary.BigEndian.Uint64([]byte(k[len(k)-8:])))
	case setKind, setWaiterKind, passedKind:
		return fmt.Sprintf("%c %d", k[0], binary.BigEndian.Uint64([]byte(k[1:])))
	case permitKind, slotKind:
		return fmt.Sprintf(k[:1]+" %s %d", k[1:len(k)-9], binary.BigEndian.Uint64([]byte(k[len(k)-8:])))
	case checkKind:
		return fmt.Sprintf("c %d %s", k[8], k[9:])
	}
	return strings.TrimRight(k[:1]+" "+k[1:], "\x00 ")
}

func printLock(w io.Writer, v LockView) {
	fmt.Fprintf(w, "%s:", v.Name)
	switch {
	case v.Held && v.Shared > 0:
		fmt.Fprintf(w, " shared by %d, fence=%d", v.Shared, v.Fence)
		for _, sh := range v.Holders {
			fmt.Fprintf(w, "; %s/%d of %s, share=%d holds=%d", printID(sh.Session), sh.Handle, printMember(sh.Member, sh.Client), sh.Number, sh.Holds)
			fmt.Fprint(w, printNames(sh.Set))
		}
	case v.Held:
		fmt.Fprintf(w, " held by %s/%d of %s, fence=%d holds=%d", printID(v.Session), v.Handle, printMember(v.Member, v.Client), v.Fence, v.Holds)
		fmt.Fprint(w, printNames(v.Set))
	default:
		fmt.Fprintf(w, " delayed for %v", time.Duration(v.Delay))
	}
	if v.Label != "" {
		fmt.Fprintf(w, " %q", v.Label)
	}
	if v.Lingering {
		fmt.Fprint(w, " lingering")
	}
	if v.EndsIn != 0 {
		fmt.Fprintf(w, ", ends in %v", time.Duration(v.EndsIn))
	}
	if len(v.With) > 0 {
		fmt.Fprintf(w, ", with %s", strings.Join(v.With, " "))
	}
	fmt.Fprintf(w, ", %d waiting", v.Waiters)
	if v.Sets > 0 {
		fmt.Fprintf(w, ", sets=%d", v.Sets)
	}
	if v.Reserved {
		fmt.Fprint(w, " reserved")
	}
	fmt.Fprintln(w)
}

func printExplain(w io.Writer, v ExplainView) {
	printLock(w, v.LockView)
	if v.Held {
		fmt.Fprintf(w, "  by %s\n", printOwner(v.Owner))
	}
	for _, o := range v.Queue {
		fmt.Fprintf(w, "  then %s\n", printOwner(o))
	}
	if len(v.Cycle) > 0 {
		fmt.Fprintf(w, "  cycle %s\n", printCycle(v.Cycle))
	}
}

// printCycle prints which handle waits for which lock of which handle.
func printCycle(cycle []WaitView) string {
	var steps []string
	for _, v := range cycle {
		steps = append(steps, fmt.Sprintf("%s/%d waits for %v %s of %s/%d", printID(v.Waiter.Session), v.Waiter.Handle,
			strings.ToLower(v.Space.String()), v.Name, printID(v.Holder.Session), v.Holder.Handle))
	}
	return strings.Join(steps, ", ")
}

func printOwner(v OwnerView) string {
	s := fmt.Sprintf("%s/%d %q of %s", printID(v.Session), v.Handle, v.Name, printMember(v.Member, v.Client))
	if v.Shared {
		s += " shared"
	}
	s += printNames(v.Set)
	if v.Reserved {
		s += " reserved"
	}
	if v.Label != "" {
		s += fmt.Sprintf(" label=%q", v.Label)
	}
	if v.Since >= 0 {
		s += fmt.Sprintf(" since %v", time.Duration(v.Since))
	}
	if v.EndsIn != 0 {
		s += fmt.Sprintf(" ends in %v", time.Duration(v.EndsIn))
	}
	if v.TTL != 0 {
		s += fmt.Sprintf(" ttl=%v left=%v", time.Duration(v.TTL), time.Duration(v.Remaining))
	}
	if v.Renewed < 0 {
		return s + " unbound"
	}
	return s + fmt.Sprintf(" renewed %v ago", time.Duration(v.Renewed))
}

func printSession(w io.Writer, v SessionView) {
	fmt.Fprintf(w, "%s %q of %s, %s, ttl=%v delay=%v left=%v created=%d", printID(v.ID), v.Name, printID(v.Incarnation),
		printMember(v.Member, v.Client), time.Duration(v.TTL), time.Duration(v.LockDelay), time.Duration(v.Remaining), v.CreateIndex)
	if v.Behavior != wire.Behavior_RELEASE {
		fmt.Fprintf(w, " %v", v.Behavior)
	}
	if len(v.Checks) > 0 {
		fmt.Fprintf(w, " checks=%s", strings.Join(v.Checks, ","))
	}
	fmt.Fprintln(w)
}

func printSemaphore(w io.Writer, name string, v SemaphoreView) {
	fmt.Fprintf(w, "%s: %d of %d available, %d waiting", name, v.Available, v.Limit, v.Waiters)
	if v.Delay != 0 {
		fmt.Fprintf(w, ", next after %v", time.Duration(v.Delay))
	}
	for _, p := range v.Holders {
		fmt.Fprintf(w, "; %s of %s has %d, fence=%d", printID(p.Session), printMember(p.Member, p.Client), p.Permits, p.Fence)
		if len(p.Slots) > 0 {
			fmt.Fprint(w, ", slots=", printSlots(p.Slots))
		}
		if p.EndsIn != 0 {
			fmt.Fprintf(w, ", ends in %v", time.Duration(p.EndsIn))
		}
	}
	fmt.Fprintln(w)
}
