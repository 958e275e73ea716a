package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/conclave-go/conclave"
)

// shardExplanationView is the explanation of a shard.
type shardExplanationView struct {
	Set    string    `json:"set"`
	Shard  shardView `json:"shard"`
	Reason string    `json:"reason"` // as ShardReason
	Text   string    `json:"text"`
	Count  int       `json:"count"`
	Next   int       `json:"next,omitempty"` // the count that the set changes to
	Takers int       `json:"takers"`         // processes that shards are assigned to

	NodeName  string   `json:"nodeName,omitempty"`
	Alive     bool     `json:"alive"`               // of a member, by the failure detector
	Shards    int      `json:"shards,omitempty"`    // that are assigned to the owner
	Capacity  int      `json:"capacity,omitempty"`  // of the owner
	TTL       *float64 `json:"ttl,omitempty"`       // seconds, of the owner's session; absent: none
	Remaining *float64 `json:"remaining,omitempty"` // seconds, likewise
	Settles   float64  `json:"settles,omitempty"`   // seconds until the shard of a process that has ended goes to others
}

func shardExplanationOf(e conclave.ShardExplanation) shardExplanationView {
	v := shardExplanationView{
		Set: e.Set, Shard: shardOf(e.Owner), Reason: e.Reason.String(), Text: e.String(), Count: e.Count, Next: e.Next, Takers: e.Takers,
		NodeName: e.NodeName, Alive: e.Alive, Shards: e.Shards, Capacity: e.Capacity, Settles: e.Settles.Seconds(),
	}
	if e.TTL > 0 && e.TTL != conclave.NoTTL {
		v.TTL, v.Remaining = seconds(e.TTL), seconds(e.Remaining)
	}
	return v
}

// explainShard shows why a shard has the owner that it has. The count of the set is that with which it was read before, so it may change in between.
func (p *program) explainShard(ctx context.Context, c groupClient, set string, shard int, stale bool) error {
	info, err := c.Shards(set, 1).Info(ctx, readOptions(stale)...)
	switch {
	case err != nil:
		return err
	case info.Count == 0:
		return noShards(set)
	}
	e, err := c.Shards(set, info.Count).Explain(ctx, shard, readOptions(stale)...)
	if err != nil {
		return err
	}
	return p.one(shardExplanationOf(e), func(w *tabwriter.Writer) { printShardExplanation(w, e) })
}

func printShardExplanation(w *tabwriter.Writer, e conclave.ShardExplanation) {
	fmt.Fprintf(w, "shard:\t%d of %s\n", e.Owner.Shard, name(e.Set))
	if o := e.Owner; o.Fence != 0 {
		owner := conclave.LockOwner{Node: o.Node, NodeName: e.NodeName, Client: o.Client, Alive: e.Alive, SessionName: o.Name}
		fmt.Fprintf(w, "owner:\t%s with fence %s, and with %d of %d shards\n", processOf(owner), o.Fence, e.Shards, e.Count)
		left := fmt.Sprintf("%s left of %s unless renewed", span(e.Remaining), span(e.TTL))
		switch e.TTL {
		case conclave.NoTTL:
			left = "does not expire"
		case 0:
			left = "it has ended since"
		}
		fmt.Fprintf(w, "session:\t%s %s: %s\n", o.Session, name(o.Name), left)
	} else {
		fmt.Fprint(w, "owner:\tnone\n")
	}
	fmt.Fprintf(w, "why:\t%s\n", name(e.String()))
}
