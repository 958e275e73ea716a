package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

// explainedAtOnce is of how many locks one picture, or a search for cycles, reads the queues.
const explainedAtOnce = 200

// contention is a lock that requests wait for.
type contention struct {
	conclave.Explanation
	longest time.Duration // wait; negative: not known
}

type contentionView struct {
	Lock    string          `json:"lock"`
	Waiters int             `json:"waiters"`
	Longest *float64        `json:"longestWait"`       // seconds; null: not known
	Holder  *ownerView      `json:"holder"`            // null if not held
	Shared  int             `json:"shared"`            // by how many holders it is held shared: holder is the first one then
	Fence   *conclave.Fence `json:"fence"`             // null if not held
	Sets    int             `json:"sets,omitempty"`    // of the waiters, those that are sets
	SetWith []string        `json:"setWith,omitempty"` // the first other names of the holder's set
	// ReservedFor is the oldest of the sets that the lock is reserved for.
	ReservedFor *ownerView `json:"reservedFor,omitempty"`
}

func (p *program) topCommand() *cobra.Command {
	var once bool
	var limit int
	var every time.Duration
	cmd := &cobra.Command{
		Use: "top", Args: exactly(), Short: "Show the locks that are waited for, the longest wait first, again and again",
		Long: fmt.Sprintf("Show the locks that are waited for, the longest wait first, again and again until interrupted; with --once once. "+
			"Of more than %d such locks those with the most waiters are compared.", explainedAtOnce),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case limit < 0:
				return usagef("--limit %d: want 0, for all, or more", limit)
			case !once && !p.atTerminal():
				return usagef("standard output is no terminal: set --once")
			}
			return p.connected(cmd.Context(), func(c groupClient) error {
				show := func() error {
					limited, cancel := p.within(cmd.Context())
					defer cancel()
					return p.top(limited, c, limit)
				}
				if once {
					return show()
				}
				return p.refresh(cmd.Context(), every, show)
			}, readOnly)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "show it once; needed unless standard output is a terminal")
	cmd.Flags().IntVar(&limit, "limit", 20, "how many to show at most; 0: all")
	cmd.Flags().DurationVar(&every, "interval", refreshEvery, "the time between two pictures")
	return cmd
}

func (p *program) top(ctx context.Context, c groupClient, limit int) error {
	all, total, err := contentions(ctx, c)
	if err != nil {
		return err
	}
	if limit > 0 {
		all = all[:min(limit, len(all))]
	}
	views := []contentionView{}
	for _, l := range all {
		views = append(views, l.view())
	}
	return p.one(views, func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "%s waited for\n", count(total, "lock"))
		_ = w.Flush() // the columns below are others
		fmt.Fprint(w, "\nLONGEST-WAIT\tWAITERS\tLOCK\tHOLDER\tHELD-FOR\tLABEL\tSETS\n")
		for _, l := range all {
			holder, since, label := "-", "-", "-"
			if l.Held {
				holder, since, label = sharedBy(processOf(l.Holder), l.Shared), span(l.Holder.Since), name(l.Holder.Label)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", span(l.longest), waitersOf(l.Waiters, l.Sets), name(l.Lock), holder, since, label, l.sets())
		}
	})
}

func (c contention) view() contentionView {
	e := explanationOf(c.Explanation)
	v := contentionView{
		Lock: e.Lock, Waiters: e.Waiters, Longest: seconds(c.longest), Holder: e.Holder, Shared: e.Shared, Fence: e.Fence, Sets: e.Sets, SetWith: e.SetWith,
	}
	if o := reservingSet(c.Queue); o != nil {
		reserved := ownerOf(*o)
		v.ReservedFor = &reserved
	}
	return v
}

// sets is which sets hold the lock, and which one it is reserved for.
func (c contention) sets() string {
	sharing := 0
	for _, h := range c.Holders {
		if h.Set > 0 {
			sharing++
		}
	}
	return setsOf(c.Shared, sharing, c.Holder.Set, c.SetWith, reservation(c.Queue))
}

// contentions returns the locks that requests wait for, the longest wait first, and how many there are.
func contentions(ctx context.Context, c groupClient) (all []contention, total int, err error) {
	contended, err := contendedLocks(ctx, c)
	if err != nil {
		return nil, 0, err
	}
	for _, l := range contended[:min(len(contended), explainedAtOnce)] {
		e, err := c.Explain(ctx, l.Name)
		if err != nil {
			return nil, 0, err
		}
		if len(e.Queue) == 0 {
			continue // it has been granted since then
		}
		longest := time.Duration(-1)
		for _, w := range e.Queue {
			longest = max(longest, w.Since)
		}
		all = append(all, contention{e, longest})
	}
	slices.SortStableFunc(all, func(a, b contention) int { return cmp.Compare(b.longest, a.longest) })
	return all, len(contended), nil
}

// contendedLocks returns the locks that requests wait for, those with the most waiters first.
func contendedLocks(ctx context.Context, c groupClient) (contended []conclave.LockInfo, err error) {
	for l, err := range c.Locks(ctx, "") {
		if err != nil {
			return nil, err
		}
		if l.Waiters > 0 {
			l.Holders = nil // up to 1,024 of each, which Explain has
			contended = append(contended, l)
		}
	}
	slices.SortFunc(contended, func(a, b conclave.LockInfo) int { return cmp.Or(b.Waiters-a.Waiters, cmp.Compare(a.Name, b.Name)) })
	return contended, nil
}
