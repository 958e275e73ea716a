package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

func (p *program) shardsCommand() *cobra.Command {
	var limit, resize, shard int
	var stale bool
	cmd := &cobra.Command{
		Use: "shards [NAME]", Args: between(0, "NAME"), Short: "List the sets of shards, or the workers and shards of one",
		Long: "List the sets of shards, or the workers and shards of one. WAITING counts shards that wait for the return of a process that has ended, or for the end of a lock-delay.\n\n" +
			"--shard explains one: who owns it, and why it stays, moves or waits.\n\n" +
			"--resize changes the count of shards of a set. Each process that works on it ends its works and has ErrLimitMismatch from its Run; those that were started with " +
			"the new count begin when all works under the former one have returned, or their Grace has passed. A work that ignores the end of its context can run beside those: " +
			"the resource has to check the fence.",
		ValidArgsFunction: p.completeShards,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			switch {
			case cmd.Flags().Changed("resize") && (cmd.Flags().Changed("shard") || stale):
				return usagef("--resize shows no shard: use it without --shard and --stale")
			case cmd.Flags().Changed("resize") && len(args) == 0:
				return usagef("missing NAME of the set whose count is to change")
			case cmd.Flags().Changed("shard") && len(args) == 0:
				return usagef("missing NAME of the set of the shard")
			case cmd.Flags().Changed("resize"):
				return p.call(ctx, func(ctx context.Context, c groupClient) error { return p.resizeShards(ctx, c, args[0], resize) })
			case cmd.Flags().Changed("shard"):
				return p.readingCall(ctx, stale, func(ctx context.Context, c groupClient) error {
					return p.explainShard(ctx, c, args[0], shard, stale)
				})
			case len(args) == 1:
				return p.readingCall(ctx, stale, func(ctx context.Context, c groupClient) error { return p.showShards(ctx, c, args[0], stale) })
			}
			return p.reading(ctx, stale, func(c groupClient) error { return p.listShardSets(ctx, c, limit, stale) })
		},
	}
	limitFlag(cmd.Flags(), &limit)
	staleFlag(cmd.Flags(), &stale)
	cmd.Flags().IntVar(&shard, "shard", 0, "explain the shard of that `number`")
	cmd.Flags().IntVar(&resize, "resize", 0, "change the count of the set's shards to `n`, 1 to 4096")
	return cmd
}

// shardSetView is a set of shards, without its workers and shards in a listing.
type shardSetView struct {
	Name       string `json:"name"`
	Count      int    `json:"count"`
	Next       int    `json:"next,omitempty"` // the count that it changes to
	Generation uint64 `json:"generation"`
	Owned      int    `json:"owned"`
	Moving     int    `json:"moving"`
	Waiting    int    `json:"waiting"`

	Workers []shardWorkerView `json:"workers,omitempty"`
	Shards  []shardView       `json:"shards,omitempty"`
}

type shardWorkerView struct {
	Number    uint64              `json:"number"` // two workers can have one name
	Name      string              `json:"name"`
	Node      conclave.MemberID   `json:"node"`
	NodeName  string              `json:"nodeName,omitempty"`
	Client    bool                `json:"client,omitempty"`
	Session   *conclave.SessionID `json:"session"` // null: it has ended
	Capacity  int                 `json:"capacity"`
	Shards    int                 `json:"shards"` // that are assigned to it
	Owned     int                 `json:"owned"`  // of those
	Moving    int                 `json:"moving"` // of those that it owns
	Live      bool                `json:"live"`
	Leaving   bool                `json:"leaving,omitempty"`
	Remaining float64             `json:"remaining,omitempty"` // seconds until those that wait go to others
}

type shardView struct {
	Shard   int                 `json:"shard"`
	State   string              `json:"state"`            // owned, moving, reserved or free
	Worker  uint64              `json:"worker,omitempty"` // the number of the worker that it is assigned to
	Name    string              `json:"name,omitempty"`
	Node    *conclave.MemberID  `json:"node,omitempty"`
	Client  bool                `json:"client,omitempty"`
	Session *conclave.SessionID `json:"session,omitempty"`
	Fence   *conclave.Fence     `json:"fence,omitempty"`
	// Reserved is the name of the process that has ended and whose return the shard waits for; absent: its session has no name.
	Reserved string `json:"reserved,omitempty"`
}

func shardSetOf(s conclave.ShardsInfo) shardSetView {
	return shardSetView{Name: s.Name, Count: s.Count, Next: s.Next, Generation: s.Generation, Owned: s.Owned, Moving: s.Moving, Waiting: s.Waiting}
}

func (p *program) listShardSets(ctx context.Context, c groupClient, limit int, stale bool) error {
	return many(p, limit, "SET SHARDS OWNED MOVING WAITING CHANGES-TO", c.ShardSets(ctx, "", listOptions(stale)...), func(s conclave.ShardsInfo) (any, []string) {
		next := "-"
		if s.Next != 0 {
			next = fmt.Sprint(s.Next)
		}
		return shardSetOf(s), []string{name(s.Name), fmt.Sprint(s.Count), fmt.Sprint(s.Owned), fmt.Sprint(s.Moving), fmt.Sprint(s.Waiting), next}
	})
}

// noShards is the error for a set that does not exist.
func noShards(set string) error {
	return withCode(exitRefused, fmt.Errorf("no process works on shards %q: there is no such set", set))
}

func (p *program) resizeShards(ctx context.Context, c groupClient, set string, count int) error {
	shards := c.Shards(set, count)
	before, err := shards.Info(ctx)
	switch {
	case err != nil:
		return err
	case before.Count == 0:
		return noShards(set)
	case !slices.ContainsFunc(before.Workers, func(w conclave.ShardWorkerInfo) bool { return w.Live }):
		return withCode(exitRefused, fmt.Errorf("no process works on shards %q: all that did have ended, so the first one that joins determines the count", set))
	}
	if err := shards.Resize(ctx); err != nil {
		return err
	}
	return p.one(map[string]any{"name": set, "former": before.Count, "count": count}, func(w *tabwriter.Writer) {
		if before.Count == count {
			fmt.Fprintf(w, "%s has %d shards already\n", name(set), count)
			return
		}
		fmt.Fprintf(w, "%s has %d shards once all works of the %d former ones have returned, or their Grace has passed\n", name(set), count, before.Count)
	})
}

func (p *program) showShards(ctx context.Context, c groupClient, set string, stale bool) error {
	names, err := p.memberNames(ctx, c)
	if err != nil {
		return err
	}
	info, owners, err := shardsOf(ctx, c, set, readOptions(stale))
	switch {
	case err != nil:
		return err
	case info.Count == 0:
		return noShards(set)
	}
	v := shardSetOf(info)
	for _, worker := range info.Workers {
		v.Workers = append(v.Workers, shardWorkerOf(worker, names))
	}
	for _, o := range owners {
		v.Shards = append(v.Shards, shardOf(o))
	}
	return p.one(v, func(w *tabwriter.Writer) { printShards(w, info, owners, names) })
}

// shardsOf reads a set and the owners of its shards, whatever their count. They are two reads, so the count may change in between.
func shardsOf(ctx context.Context, c groupClient, set string, opts []conclave.ReadOption) (info conclave.ShardsInfo, owners []conclave.ShardOwner, err error) {
	count := 1
	for {
		if info, err = c.Shards(set, count).Info(ctx, opts...); err != nil || info.Count == 0 {
			return info, nil, err
		}
		count, owners = info.Count, nil
		for o, failed := range c.Shards(set, count).Owners(ctx, opts...) {
			if err = failed; err == nil {
				owners = append(owners, o)
			}
		}
		if !errors.Is(err, conclave.ErrLimitMismatch) {
			return info, owners, err
		}
	}
}

func shardWorkerOf(w conclave.ShardWorkerInfo, names memberNames) shardWorkerView {
	v := shardWorkerView{
		Number: w.Number, Name: w.Name, Node: w.Node, NodeName: names[w.Node], Client: w.Client, Capacity: w.Capacity, Shards: w.Shards, Owned: w.Owned, Moving: w.Moving, Live: w.Live,
		Leaving: w.Leaving, Remaining: w.Remaining.Seconds(),
	}
	if w.Session != (conclave.SessionID{}) {
		v.Session = &w.Session
	}
	return v
}

func shardOf(o conclave.ShardOwner) shardView {
	v := shardView{Shard: o.Shard, State: stateOfShard(o), Worker: o.Worker, Reserved: o.Reserved}
	if o.Fence != 0 {
		v.Name, v.Node, v.Client, v.Session, v.Fence = o.Name, &o.Node, o.Client, &o.Session, &o.Fence
	}
	return v
}

func stateOfShard(o conclave.ShardOwner) string {
	switch {
	case o.Fence == 0 && o.Worker != 0:
		return "reserved"
	case o.Fence == 0:
		return "free"
	case o.Moving:
		return "moving"
	}
	return "owned"
}

// stateOfWorker is what a worker does, or for how long its shards wait for it.
func stateOfWorker(w conclave.ShardWorkerInfo) string {
	switch {
	case w.Live && w.Leaving:
		return "leaving"
	case w.Live:
		return "working"
	case w.Remaining > 0:
		return "ended: its shards wait " + span(w.Remaining)
	}
	return "ended"
}

func printShards(w *tabwriter.Writer, info conclave.ShardsInfo, owners []conclave.ShardOwner, names memberNames) {
	fmt.Fprintf(w, "set:\t%s\n", name(info.Name))
	fmt.Fprintf(w, "shards:\t%d: %d owned, of these %d moving; %d waiting\n", info.Count, info.Owned, info.Moving, info.Waiting)
	if info.Next != 0 {
		fmt.Fprintf(w, "changes:\tto %d shards, when all works have returned, or their Grace has passed\n", info.Next)
	}
	fmt.Fprint(w, "\nNUMBER\tWORKER\tPROCESS\tCAPACITY\tASSIGNED\tOWNED\tMOVING\tSTATE\n")
	for _, worker := range info.Workers {
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", worker.Number, name(worker.Name), names.holder(worker.Node, worker.Client, worker.Name), worker.Capacity, worker.Shards, worker.Owned,
			worker.Moving, stateOfWorker(worker))
	}
	fmt.Fprint(w, "\nSHARD\tSTATE\tNUMBER\tWORKER\tFENCE\tSESSION\n")
	for _, o := range owners {
		row := []any{o.Shard, stateOfShard(o), "-", name(o.Reserved), "-", "-"}
		if o.Worker != 0 {
			row[2] = o.Worker
		}
		if o.Fence != 0 {
			row[3], row[4], row[5] = name(o.Name), o.Fence, o.Session
		}
		fmt.Fprintf(w, "%v\t%v\t%v\t%v\t%v\t%v\n", row...)
	}
}

// completeShards completes the name of a set of shards for a shell.
func (p *program) completeShards(cmd *cobra.Command, args []string, beginning string) ([]string, cobra.ShellCompDirective) {
	return p.completeNames(cmd, args, func(ctx context.Context, c groupClient, add func(string) bool) error {
		for s, err := range c.ShardSets(ctx, beginning) {
			if err != nil || !add(s.Name) {
				return err
			}
		}
		return nil
	})
}
