package main

import (
	"context"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

type ownerView struct {
	Node        conclave.MemberID  `json:"node"`
	NodeName    string             `json:"nodeName"`
	Client      bool               `json:"client"`
	Alive       bool               `json:"alive"` // of a member, by the failure detector
	Label       string             `json:"label"`
	Session     conclave.SessionID `json:"session"`
	SessionName string             `json:"sessionName"`
	Since       *float64           `json:"since"`              // seconds; null: not known
	TTL         *float64           `json:"ttl"`                // seconds; null: none
	Remaining   *float64           `json:"remaining"`          // seconds; null: the session does not expire
	Renewed     *float64           `json:"renewed"`            // seconds ago; null: no process renews it
	EndsIn      float64            `json:"endsIn,omitempty"`   // seconds until the hold ends by its MaxHold
	Shared      bool               `json:"shared"`             // it holds the lock, or waits for it, in shared mode
	Set         int                `json:"set,omitempty"`      // names of the set that it holds or waits for as a whole
	Reserved    bool               `json:"reserved,omitempty"` // of a set that waits: no later request passes it
}

func ownerOf(o conclave.LockOwner) ownerView {
	v := ownerView{
		Node: o.Node, NodeName: o.NodeName, Client: o.Client, Alive: o.Alive, Label: o.Label, Session: o.Session, SessionName: o.SessionName,
		Since: seconds(o.Since), TTL: seconds(o.TTL), Remaining: seconds(o.Remaining), Renewed: seconds(o.Renewed), Shared: o.Shared, EndsIn: o.EndsIn.Seconds(),
		Set: o.Set, Reserved: o.Reserved,
	}
	if o.TTL == conclave.NoTTL {
		v.Remaining = nil
	}
	return v
}

type explanationView struct {
	Lock      string          `json:"lock"`
	Held      bool            `json:"held"`
	Holder    *ownerView      `json:"holder"`            // null if not held
	Shared    int             `json:"shared"`            // by how many holders it is held shared: holder is the first one then
	Holders   []ownerView     `json:"holders,omitempty"` // of those the first 1,024
	Holds     int             `json:"holds"`
	Fence     *conclave.Fence `json:"fence"` // null if not held
	Lingering bool            `json:"lingering"`
	LockDelay float64         `json:"lockDelay"` // seconds left
	Waiters   int             `json:"waiters"`
	Queue     []ownerView     `json:"queue"`             // the first 1,000
	Sets      int             `json:"sets,omitempty"`    // of the waiters, those that are sets
	SetWith   []string        `json:"setWith,omitempty"` // the first other names of the holder's set
	Cycle     []waitView      `json:"cycle"`
}

type waitView struct {
	Waiter   ownerView `json:"waiter"`
	Lock     string    `json:"lock"`
	Election bool      `json:"election"`
	Holder   ownerView `json:"holder"`
}

func cycleOf(c conclave.WaitCycle) []waitView {
	steps := []waitView{}
	for _, w := range c {
		steps = append(steps, waitView{ownerOf(w.Waiter), w.Lock, w.Election, ownerOf(w.Holder)})
	}
	return steps
}

func explanationOf(e conclave.Explanation) explanationView {
	v := explanationView{
		Lock: e.Lock, Held: e.Held, Holds: e.Holds, Lingering: e.Lingering, LockDelay: e.Delay.Seconds(), Waiters: e.Waiters,
		Shared: e.Shared, Sets: e.Sets, SetWith: e.SetWith, Queue: []ownerView{}, Cycle: cycleOf(e.Cycle),
	}
	for _, h := range e.Holders {
		v.Holders = append(v.Holders, ownerOf(h))
	}
	if e.Held {
		holder := ownerOf(e.Holder)
		v.Holder, v.Fence = &holder, &e.Fence
	}
	for _, w := range e.Queue {
		v.Queue = append(v.Queue, ownerOf(w))
	}
	return v
}

func (p *program) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain LOCK", Args: exactly("LOCK"), Short: "Show the holder of a lock, and the queue for it",
		Long: "Show which handle holds a lock, or which ones share it, since when and with which fence, how long its session lasts unless it is renewed, whether its member " +
			"is alive, which handles wait, in order, and whether the holder itself waits, in a cycle, for a session that waits for it.",
		ValidArgsFunction: p.completeLock,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.call(cmd.Context(), func(ctx context.Context, c groupClient) error {
				e, err := c.Explain(ctx, args[0])
				if err != nil {
					return err
				}
				var nested nestedSearch
				if mayBeNested(e) {
					nested = searchNested(ctx, c, e.Lock)
				}
				if cmd.Context().Err() != nil {
					return cmd.Context().Err()
				}
				return p.showExplanation(e, nested)
			})
		},
	}
}

// showExplanation prints what is known of a lock, also if the search for cycles has failed.
func (p *program) showExplanation(e conclave.Explanation, s nestedSearch) error {
	v, nested := explanationOf(e), s.of(e.Lock)
	if nested != nil {
		v.Cycle = cycleOf(nested.waits())
	}
	if note := s.note(); note != "" && nested == nil {
		p.tell(printable(inFlags("conclave: " + note)))
	}
	return p.one(v, func(w *tabwriter.Writer) { printExplanation(w, e, nested) })
}

// shownOwners of a queue, or of those that share a lock, are printed in a table.
const shownOwners = 50

func printExplanation(w *tabwriter.Writer, e conclave.Explanation, nested nestedCycle) {
	fmt.Fprintf(w, "lock:\t%s\n", name(e.Lock))
	switch {
	case e.Shared > 0:
		fmt.Fprintf(w, "state:\theld shared by %s, with fence %s\n", count(e.Shared, "holder"), e.Fence)
		if e.Delay > 0 {
			fmt.Fprintf(w, "lock-delay:\tof others that have shared it: no exclusive request is granted for %s more\n", span(e.Delay))
		}
	case e.Held:
		printHolder(w, e)
	case e.Delay > 0:
		fmt.Fprintf(w, "state:\tin the lock-delay of its last holder, for %s more\n", span(e.Delay))
	case slices.ContainsFunc(e.Queue, func(o conclave.LockOwner) bool { return o.Set > 0 }):
		fmt.Fprint(w, "state:\tnot held: a set waits for other locks as well\n")
	case e.Waiters > 0:
		fmt.Fprint(w, "state:\tbeing granted to the first waiter\n")
	default:
		fmt.Fprint(w, "state:\tfree, and no handle waits for it\n")
	}
	if len(e.Cycle) > 0 {
		waits := "the holder waits itself"
		if e.Shared > 1 {
			waits = "one of the holders waits itself"
		}
		fmt.Fprintf(w, "DEADLOCK?\t%s: %s\n", waits, name(e.Cycle.String()))
	}
	if nested != nil {
		fmt.Fprintf(w, "DEADLOCK?\tsessions wait for commands inside them: %s\n", name(nested.String()))
	}
	if e.Waiters > 0 {
		fmt.Fprintf(w, "waiters:\t%s\n", waitersOf(e.Waiters, e.Sets))
	}
	if e.Shared > 0 {
		printOwners(w, "\tHOLDER\tLABEL\tHELD-FOR\tLEASE-LEFT\tSESSION\n", e.Holders, e.Shared, leaseLeft)
	}
	if e.Waiters > 0 {
		printOwners(w, "\tWAITER\tLABEL\tWAITING\tMODE\tSESSION\n", e.Queue, e.Waiters, mode)
	}
}

// printOwners prints a table of the first owners of all; column is what it has besides their names, labels, times and sessions.
func printOwners(w *tabwriter.Writer, head string, first []conclave.LockOwner, all int, column func(conclave.LockOwner) string) {
	_ = w.Flush() // the columns above are others
	fmt.Fprint(w, "\n"+head)
	first = first[:min(len(first), shownOwners)]
	for i, o := range first {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", i+1, processOf(o), name(o.Label), span(o.Since), column(o), o.Session)
	}
	if more := all - len(first); more > 0 {
		fmt.Fprintf(w, "\tand %d more\n", more)
	}
}

func leaseLeft(o conclave.LockOwner) string {
	left := "does not expire"
	if o.TTL != conclave.NoTTL {
		left = span(o.Remaining)
	}
	if o.EndsIn > 0 {
		left += ", hold ends in " + span(o.EndsIn)
	}
	if o.Set > 0 {
		left += ", " + setOf(o)
	}
	return left
}

func mode(o conclave.LockOwner) string {
	mode := "exclusive"
	if o.Shared {
		mode = "shared"
	}
	if o.Set > 0 {
		mode += ", " + setOf(o)
	}
	return mode
}

// setOf is the size of an owner's set.
func setOf(o conclave.LockOwner) string {
	if o.Reserved {
		return fmt.Sprintf("set of %d, reserved", o.Set)
	}
	return fmt.Sprintf("set of %d", o.Set)
}

func printHolder(w *tabwriter.Writer, e conclave.Explanation) {
	o := e.Holder
	fmt.Fprintf(w, "state:\theld by %s for %s, with fence %s\n", processOf(o), span(o.Since), e.Fence)
	if o.Label != "" {
		fmt.Fprintf(w, "label:\t%s\n", name(o.Label))
	}
	if e.Lingering {
		fmt.Fprint(w, "lingering:\tits process keeps the lock between its handles' turns\n")
	}
	if o.EndsIn > 0 {
		fmt.Fprintf(w, "ends:\tin %s at the latest, by its MaxHold\n", span(o.EndsIn))
	}
	if o.Set > 0 {
		fmt.Fprintf(w, "set:\tof %s, held together: %s\n", count(o.Set, "lock"), heldWith(o.Set, e.SetWith))
	}
	if e.Holds > 1 {
		fmt.Fprintf(w, "holds:\t%d\n", e.Holds)
	}
	lease := fmt.Sprintf("%s left of %s unless renewed; renewed %s ago", span(o.Remaining), span(o.TTL), span(o.Renewed))
	switch {
	case o.TTL == conclave.NoTTL:
		lease = "does not expire"
	case o.Renewed < 0:
		lease = fmt.Sprintf("%s left of %s; no process renews it", span(o.Remaining), span(o.TTL))
	}
	fmt.Fprintf(w, "session:\t%s %s: %s\n", o.Session, name(o.SessionName), lease)
}

// processOf is the process of an owner, with what the failure detector holds of it.
func processOf(o conclave.LockOwner) string {
	switch {
	case o.Client && o.SessionName != "":
		return "client " + name(o.SessionName)
	case o.Client:
		return "client " + o.Node.String()
	case o.NodeName == "":
		return "member " + o.Node.String() + alive(o)
	}
	return "member " + name(o.NodeName) + alive(o)
}

func alive(o conclave.LockOwner) string {
	if o.Alive {
		return ""
	}
	return " (NOT ALIVE)"
}

func (p *program) cyclesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cycles", Args: exactly(), Short: "Find sessions that wait for each other in a cycle, a possible deadlock",
		Long: "Find sessions that wait for each other in a cycle, a possible deadlock. A command under conclave lock or elect that runs one of them in turn " +
			"is followed from its session to the outer one, of which CONCLAVE_SESSION has the ID there.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.call(cmd.Context(), func(ctx context.Context, c groupClient) error {
				cycles, err := c.WaitCycles(ctx)
				if err != nil {
					return err
				}
				return p.showCycles(cycles, searchNested(ctx, c, ""))
			})
		},
	}
}

// showCycles prints the cycles that the group has found, and those through commands inside sessions. Its error is that of the search
// for the latter: what was found before is printed.
func (p *program) showCycles(cycles []conclave.WaitCycle, nested nestedSearch) error {
	views := [][]waitView{}
	var lines []string
	for _, cycle := range cycles {
		views, lines = append(views, cycleOf(cycle)), append(lines, cycle.String())
	}
	for _, cycle := range nested.cycles {
		views, lines = append(views, cycleOf(cycle.waits())), append(lines, cycle.String())
	}
	if len(lines) == 0 && nested.err == nil {
		lines = append(lines, "none")
	}
	if nested.err == nil && nested.skipped > 0 {
		p.tell("conclave: " + nested.note())
	}
	err := p.one(views, func(w *tabwriter.Writer) {
		for _, line := range lines {
			fmt.Fprintln(w, name(line))
		}
	})
	if err == nil && nested.err != nil {
		err = fmt.Errorf("%w: not all commands inside sessions were searched", nested.err)
	}
	return err
}
