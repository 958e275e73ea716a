package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conclave-go/conclave"
)

// The listings read pages, so a time limit would end those of large groups: --timeout is for reaching the
// group.

func limitFlag(flags *pflag.FlagSet, limit *int) {
	flags.IntVar(limit, "limit", 1000, "how many to show at most; 0: all")
}

func prefixOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// listing is a command that lists what begins with a prefix; with a flag --stale also without a quorum.
func (p *program) listing(use, short, long string, list func(ctx context.Context, c groupClient, prefix string, limit int) error) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: use + " [PREFIX]", Args: between(0, "PREFIX"), Short: short, Long: long,
		RunE: func(cmd *cobra.Command, args []string) error {
			stale, _ := cmd.Flags().GetBool("stale") // false without the flag
			return p.reading(cmd.Context(), stale, func(c groupClient) error {
				return list(cmd.Context(), c, prefixOf(args), limit)
			})
		},
	}
	limitFlag(cmd.Flags(), &limit)
	return cmd
}

type lockView struct {
	Name     string              `json:"name"`
	Held     bool                `json:"held"`
	Fence    *conclave.Fence     `json:"fence,omitempty"`
	Node     *conclave.MemberID  `json:"node,omitempty"`
	NodeName string              `json:"nodeName,omitempty"`
	Client   bool                `json:"client,omitempty"` // node is one
	Session  *conclave.SessionID `json:"session,omitempty"`
	// SessionName is that of the holder: of a client, the name of its process.
	SessionName string   `json:"sessionName,omitempty"`
	Label       string   `json:"label,omitempty"`
	Holds       int      `json:"holds,omitempty"`
	Since       *float64 `json:"since,omitempty"` // seconds
	Lingering   bool     `json:"lingering,omitempty"`
	Waiters     int      `json:"waiters"`
	LockDelay   float64  `json:"lockDelay,omitempty"` // seconds left
	EndsIn      float64  `json:"endsIn,omitempty"`    // seconds until the hold ends by its MaxHold
	// Shared is by how many holders it is held shared; the holder above is the first one then.
	Shared  int         `json:"shared,omitempty"`
	Set     int         `json:"set,omitempty"`     // names of the set that the holder holds as a whole
	SetWith []string    `json:"setWith,omitempty"` // the first other names of it
	Holders []shareView `json:"holders,omitempty"` // the first 1,024
	Sets    int         `json:"sets,omitempty"`    // of the waiters, those that are sets
	// Reserved: a set that waits has the lock reserved.
	Reserved bool `json:"reserved,omitempty"`
}

type shareView struct {
	Node        conclave.MemberID  `json:"node"`
	NodeName    string             `json:"nodeName,omitempty"`
	Client      bool               `json:"client,omitempty"`
	Session     conclave.SessionID `json:"session"`
	SessionName string             `json:"sessionName,omitempty"`
	Label       string             `json:"label,omitempty"`
	Holds       int                `json:"holds"`
	Since       *float64           `json:"since"` // seconds
	Lingering   bool               `json:"lingering,omitempty"`
	EndsIn      float64            `json:"endsIn,omitempty"`
	Set         int                `json:"set,omitempty"`
}

// sharedBy is the first holder of a lock, with how many share it; 0: it holds the lock exclusively.
func sharedBy(first string, shared int) string {
	switch shared {
	case 0:
		return first
	case 1:
		return first + " (shared)"
	}
	return fmt.Sprintf("%s and %d more (shared)", first, shared-1)
}

func (p *program) locksCommand() *cobra.Command {
	var stale bool
	cmd := p.listing("locks", "List the locks that are held, waited for, or under a lock-delay",
		"List the locks that are held, waited for, or under a lock-delay. A free lock that no process waits for does not exist for the group. "+
			"SETS is with which other locks a lock is held as a whole, and whether it is reserved for a set that waits. conclave explain shows the queue of one.",
		func(ctx context.Context, c groupClient, prefix string, limit int) error {
			names, err := p.memberNames(ctx, c)
			if err != nil {
				return err
			}
			return many(p, limit, "LOCK HOLDER FENCE SINCE WAITERS LABEL SESSION SETS", c.Locks(ctx, prefix, listOptions(stale)...), func(l conclave.LockInfo) (any, []string) {
				v := lockView{
					Name: l.Name, Held: l.Held, Label: l.Label, Holds: l.Holds, Lingering: l.Lingering, Waiters: l.Waiters, LockDelay: l.Delay.Seconds(),
					EndsIn: l.EndsIn.Seconds(), SetWith: l.SetWith, Sets: l.Sets, Reserved: l.Reserved,
				}
				row := []string{name(l.Name), "-", "-", "-", waitersOf(l.Waiters, l.Sets), "-", "-", setsOfLock(l)}
				if l.Delay > 0 {
					row[1] = fmt.Sprintf("lock-delay %s", span(l.Delay))
				}
				if l.Held {
					v.Fence, v.Node, v.NodeName, v.Session, v.Since = &l.Fence, &l.Node, names[l.Node], &l.Session, seconds(l.Since)
					v.Client, v.SessionName, v.Shared, v.Set = l.Client, l.SessionName, l.Shared, l.Set
					holder := sharedBy(names.holder(l.Node, l.Client, l.SessionName), l.Shared)
					if l.Delay > 0 { // of others that have shared the lock
						holder += ", " + row[1]
					}
					row[1], row[2], row[3] = holder, l.Fence.String(), span(l.Since)
					row[5], row[6] = name(l.Label), l.Session.String()
				}
				for _, h := range l.Holders {
					v.Holders = append(v.Holders, shareView{h.Node, names[h.Node], h.Client, h.Session, h.SessionName, h.Label, h.Holds, seconds(h.Since), h.Lingering, h.EndsIn.Seconds(), h.Set})
				}
				return v, row
			})
		})
	staleFlag(cmd.Flags(), &stale)
	return cmd
}

// setsOfLock is which sets hold a lock, and whether it is reserved for one.
func setsOfLock(l conclave.LockInfo) string {
	sharing, reserved := 0, ""
	for _, h := range l.Holders {
		if h.Set > 0 {
			sharing++
		}
	}
	if l.Reserved {
		reserved = "reserved for a set"
	}
	return setsOf(l.Shared, sharing, l.Set, l.SetWith, reserved)
}

func listOptions(stale bool) []conclave.ListOption[string] {
	if stale {
		return []conclave.ListOption[string]{conclave.Stale()}
	}
	return nil
}

// memberNames are the names of members. A client has none here: only sessions have one.
type memberNames map[conclave.MemberID]string

func (p *program) memberNames(ctx context.Context, c groupClient) (memberNames, error) {
	limited, cancel := p.within(ctx)
	defer cancel()
	s, err := c.Status(limited)
	names := make(memberNames)
	for _, m := range s.Members {
		names[m.ID] = m.Name
	}
	return names, err
}

func (n memberNames) of(id conclave.MemberID) string {
	if known := n[id]; known != "" {
		return name(known)
	}
	return id.String()
}

// holder is the name of a process that holds something: a client's is that of its session, as it has no other.
func (n memberNames) holder(id conclave.MemberID, client bool, session string) string {
	switch {
	case client && session != "":
		return name(session) + " (client)"
	case client:
		return id.String() + " (client)"
	}
	return n.of(id)
}

type semaphoreView struct {
	Name      string       `json:"name"`
	Limit     int          `json:"limit"`
	Available int          `json:"available"`
	Waiters   int          `json:"waiters"`
	LockDelay float64      `json:"lockDelay,omitempty"` // seconds left
	Count     int          `json:"holderCount"`
	Holders   []permitView `json:"holders"` // the first 1,024
}

type permitView struct {
	Permits int                `json:"permits"`
	Fence   conclave.Fence     `json:"fence"`
	Node    conclave.MemberID  `json:"node"`
	Client  bool               `json:"client,omitempty"`
	Session conclave.SessionID `json:"session"`

	SessionName string  `json:"sessionName,omitempty"`
	Slots       []int   `json:"slots,omitempty"`
	EndsIn      float64 `json:"endsIn,omitempty"`
}

func (p *program) semaphoresCommand() *cobra.Command {
	return p.listing("semaphores", "List the semaphores that are in use",
		"List the semaphores that are in use. --output json has the first 1,024 holders of each.",
		func(ctx context.Context, c groupClient, prefix string, limit int) error {
			return many(p, limit, "SEMAPHORE LIMIT AVAILABLE HOLDERS WAITERS", c.Semaphores(ctx, prefix), func(s conclave.SemaphoreInfo) (any, []string) {
				v := semaphoreView{Name: s.Name, Limit: s.Limit, Available: s.Available, Waiters: s.Waiters, LockDelay: s.Delay.Seconds(), Count: s.HolderCount, Holders: []permitView{}}
				for _, h := range s.Holders {
					v.Holders = append(v.Holders, permitView{Permits: h.Permits, Fence: h.Fence, Node: h.Node, Client: h.Client, Session: h.Session, SessionName: h.SessionName, Slots: h.Slots(), EndsIn: h.EndsIn.Seconds()})
				}
				return v, []string{name(s.Name), fmt.Sprint(s.Limit), fmt.Sprint(s.Available), fmt.Sprint(s.HolderCount), fmt.Sprint(s.Waiters)}
			})
		})
}

type electionView struct {
	Name    string             `json:"name"`
	Value   string             `json:"value"`
	Base64  string             `json:"valueBase64,omitempty"` // in place of value, if that is not UTF-8
	Fence   conclave.Fence     `json:"fence"`
	Node    conclave.MemberID  `json:"node"`
	Client  bool               `json:"client,omitempty"`
	Session conclave.SessionID `json:"session"`

	SessionName string `json:"sessionName,omitempty"`
}

func (p *program) electionsCommand() *cobra.Command {
	return p.listing("elections", "List the elections that have a leader", "List the elections that have a leader, with the value that it proclaims.",
		func(ctx context.Context, c groupClient, prefix string, limit int) error {
			names, err := p.memberNames(ctx, c)
			if err != nil {
				return err
			}
			return many(p, limit, "ELECTION LEADER FENCE VALUE SESSION", c.Elections(ctx, prefix), func(l conclave.Leader) (any, []string) {
				v := electionView{Name: l.Name, Fence: l.Fence, Node: l.Node, Client: l.Client, Session: l.Session, SessionName: l.SessionName}
				v.Value, v.Base64 = text(l.Value)
				return v, []string{name(l.Name), names.holder(l.Node, l.Client, l.SessionName), l.Fence.String(), shortened(l.Value), l.Session.String()}
			})
		})
}

type sessionView struct {
	ID          conclave.SessionID `json:"id"`
	Name        string             `json:"name"`
	Node        conclave.MemberID  `json:"node"`
	NodeName    string             `json:"nodeName,omitempty"`
	Client      bool               `json:"client,omitempty"`
	TTL         *float64           `json:"ttl"`       // seconds; null: none
	Remaining   *float64           `json:"remaining"` // seconds; null: not limited
	LockDelay   float64            `json:"lockDelay"` // seconds
	Behavior    string             `json:"behavior"`
	Checks      []string           `json:"checks"`
	CreateIndex uint64             `json:"createIndex"`
}

func (p *program) sessionsCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "sessions", Args: exactly(), Short: "List the sessions, the oldest first",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.connected(cmd.Context(), func(c groupClient) error {
				names, err := p.memberNames(cmd.Context(), c)
				if err != nil {
					return err
				}
				return many(p, limit, "SESSION NAME NODE TTL REMAINING LOCK-DELAY CHECKS", c.Sessions(cmd.Context()), func(s conclave.SessionInfo) (any, []string) {
					v := sessionView{
						ID: s.ID, Name: s.Name, Node: s.Node, NodeName: names[s.Node], Client: s.Client, TTL: seconds(s.TTL), Remaining: seconds(s.Remaining),
						LockDelay: s.LockDelay.Seconds(), Behavior: s.Behavior.String(), Checks: append([]string{}, s.Checks...), CreateIndex: s.CreateIndex,
					}
					if s.TTL == conclave.NoTTL {
						v.Remaining = nil
					}
					remaining := span(s.Remaining)
					if s.TTL == conclave.NoTTL {
						remaining = "-"
					}
					node := names.of(s.Node)
					if s.Client {
						node = "client"
					}
					return v, []string{s.ID.String(), name(s.Name), node, ttlText(s.TTL), remaining, span(s.LockDelay), fmt.Sprint(len(s.Checks))}
				})
			})
		},
	}
	limitFlag(cmd.Flags(), &limit)
	return cmd
}
