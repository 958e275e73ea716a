package conclave

import (
	"context"
	"iter"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
)

// pageSize is how many items of a listing are read at a time. A page is collected on
// the goroutine that applies the log, so its size bounds how long a listing can delay
// other calls.
const pageSize = 256

// ListOption configures a listing. C is what identifies an item of it: [After], and [Stale] for those by name.
type ListOption[C any] interface{ applyList(*listing[C]) }

// listing is how a listing is read.
type listing[C any] struct {
	after C
	query client.QueryOptions
}

type listOption[C any] func(*listing[C])

func (f listOption[C]) applyList(l *listing[C]) { f(l) }

// After has a listing begin after an item, which need not exist any more: a name, a session of which only CreateIndex
// and ID count, or a check of which only Node and Name count. A program that shows a page at a time passes the last
// item of the page before: the cost of a page does not depend on how many items come before it.
func After[C string | SessionInfo | CheckInfo](item C) ListOption[C] {
	return listOption[C](func(l *listing[C]) { l.after = item })
}

func listingOf[C any](opts []ListOption[C]) (l listing[C]) {
	for _, o := range opts {
		o.applyList(&l)
	}
	return l
}

// refused is a listing that yields nothing but an error.
func refused[T any](op, name string, err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, fault(op, name, err))
	}
}

// pages yields all items of a listing, page by page, as it is to be read. next makes the
// query for the page behind a cursor, at returns the cursor of an item, and show makes the
// item for the caller.
func pages[V, C, T any](ctx context.Context, g *Group, op, name string, l listing[C], next func(C) machine.Query, at func(V) C, show func(V) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		cursor := l.after
		for {
			page, err := client.Ask[[]V](ctx, g.client, next(cursor), l.query)
			if err != nil {
				var none T
				yield(none, fault(op, name, err))
				return
			}
			for _, v := range page {
				if !yield(show(v), nil) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
			cursor = at(page[len(page)-1])
		}
	}
}

// KeyInfo describes a key, or a folder of keys.
type KeyInfo struct {
	Key string
	// Folder says that Key is not one key: it is what some begin with, up to the separator. The rest is not set.
	Folder      bool
	Value       []byte // the first 256 bytes at most
	Size        int    // of the whole value, in bytes
	Flags       uint64
	ModifyIndex uint64
	Session     SessionID // that has locked the key; zero: none
}

// Browse lists the keys that begin with prefix, by their bytes, as [KV.Keys] does, with the beginnings of their values: with a
// separator, keys that are the same up to the first one that follows the prefix are one folder. It reads pages, each
// linearizable and each blocking as [KV.Get] does; keys that change between two pages may be missing or out of date. A
// page costs the same however many keys there are or a folder has. The sequence ends after the first error, whose causes are
// those of Get but ErrKeyNotFound.
func (k *KV) Browse(ctx context.Context, prefix, separator string, opts ...ListOption[string]) iter.Seq2[KeyInfo, error] {
	l := listingOf(opts)
	if err := validPrefixes(prefix, separator, l.after); err != nil {
		return refused[KeyInfo]("browse", prefix, err)
	}
	return pages(ctx, k.group, "browse", prefix, l, func(after string) machine.Query {
		return machine.KeyPageQuery{Prefix: prefix, Separator: separator, After: after, Limit: pageSize}
	}, func(v machine.KeyView) string { return v.Key }, func(v machine.KeyView) KeyInfo {
		return KeyInfo{
			Key: v.Key, Folder: v.Folder, Value: clone(v.Value), Size: v.Size,
			Flags: v.Flags, ModifyIndex: v.ModifyIndex, Session: SessionID(v.Session),
		}
	})
}
