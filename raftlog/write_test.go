package raftlog

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/conclave-go/conclave/storage"
)

// A log with entries 2 to 9 of term 2, truncated at 4, applied and committed to 6,
// with a vote for 1 in term 3, refuses operations that raft would never submit.
// All later writes fail, and the disk is unchanged.
func TestWrite_RefusesContradiction(t *testing.T) {
	for name, ops := range map[string][]Op{
		"gap after the log":               {Append{Entries: entries(11, 12, 3)}},
		"gap between entries":             {Append{Entries: append(entries(10, 10, 3), entries(12, 12, 3)...)}},
		"append of a truncated entry":     {Append{Entries: entries(4, 9, 3)}},
		"append of an applied entry":      {Append{Entries: entries(6, 9, 3)}},
		"term lower than the last":        {Append{Entries: entries(10, 10, 1)}},
		"term higher than the current":    {Append{Entries: entries(10, 10, 4)}},
		"second vote in a term":           {Append{HardState: hardState(3, 2, 6)}},
		"vote taken back":                 {Append{HardState: hardState(3, 0, 6)}},
		"current term decreases":          {Append{HardState: hardState(2, 0, 6)}},
		"commit beyond the end":           {Append{HardState: hardState(3, 1, 10)}},
		"apply beyond the end":            {Checkpoint{After: 6, Index: 10, Term: 2}},
		"apply of an applied index":       {Checkpoint{After: 6, Index: 6, Term: 2}},
		"apply in another term":           {Checkpoint{After: 6, Index: 7, Term: 3}},
		"changes since another state":     {Checkpoint{After: 5, Index: 7, Term: 2}},
		"truncation of unapplied entries": {Truncate{Index: 7}},
		"install of an applied index":     {Install{Index: 6, Term: 2, ConfState: voters(1), Generation: 1}},
		"install of an unstaged snapshot": {Install{Index: 20, Term: 3, ConfState: voters(1), Generation: 9}},
		"install of the installed state":  {Install{Index: 20, Term: 3, ConfState: voters(1)}},
		"discard of the installed state":  {Discard{Generation: 0}},
		"valid and invalid operation": {
			Append{Entries: entries(10, 10, 3)}, Truncate{Index: 9},
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			store, log := openLog(t, storage.Options{FS: disk})
			bootstrap(t, log, 1, 2, 3)
			mustWrite(t, log, Append{HardState: hardState(2, 0, 6), Entries: entries(2, 9, 2)},
				Checkpoint{After: 1, Index: 6, Term: 2}, Truncate{Index: 4}, Append{HardState: hardState(3, 1, 6)})
			before := mustReadLog(t, log)
			if err := write(log, ops...); err == nil {
				t.Error("accepted")
			}
			if err := write(log, Append{Entries: entries(10, 10, 3)}); err == nil {
				t.Error("a write after the refusal succeeded")
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			_, log = openLog(t, storage.Options{FS: disk})
			if after := mustReadLog(t, log); after != before {
				t.Errorf("got\n%s\nwant\n%s", after, before)
			}
		})
	}
}
