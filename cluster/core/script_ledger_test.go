package core

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// ledger is the state machine of the scripts: keys with values, and commands that are text:
//
//	x=1        put; "x=" deletes
//	x+=1       append: what is written depends on what x is in memory
//	admit 4    the group has member 4; "silent 4" records that it is silent
//	remove 4   it has not
//	voters 3   how many members should vote
//
// It executes each ticket once.
type ledger struct {
	Machine // nil: what no script needs
	state   map[string]string
	time    int64
}

// Following implements Machine: this is the default group.
func (l *ledger) Following() *fact.Following { return nil }

func newLedger() *ledger { return &ledger{state: make(map[string]string)} }

func loadLedger(state iter.Seq2[[]byte, []byte]) (*ledger, error) {
	l := newLedger()
	for key, value := range state {
		l.state[string(key)] = string(value)
	}
	return l, nil
}

func (l *ledger) Apply(_, _ uint64, data []byte) (result fact.Result) {
	batch := new(wire.Batch)
	if err := proto.Unmarshal(data, batch); err != nil {
		panic(err)
	}
	l.time = max(l.time, batch.GetTime())
	for _, s := range batch.GetSubmissions() {
		id, _ := wire.IDFrom(s.GetIncarnation())
		for _, c := range s.GetCalls() {
			ticket := fmt.Sprintf("ticket/%x/%d", id[:2], c.GetSeq())
			if l.state[ticket] == "" {
				l.execute(&result, strings.Fields(string(c.GetCommand())))
				l.put(&result, ticket, "done")
			}
			result.Outcomes = append(result.Outcomes, fact.Outcome{Ticket: wire.Ticket{Incarnation: id, Seq: c.GetSeq()}, Member: s.GetMember(), Reply: &wire.Reply{Code: wire.Code_OK}})
		}
	}
	return result
}

func (l *ledger) execute(result *fact.Result, words []string) {
	switch verb := words[0]; verb {
	case "register":
	case "admit", "silent":
		l.put(result, "member/"+words[1], verb)
	case "remove":
		l.put(result, "member/"+words[1], "")
		l.put(result, "removed/"+words[1], "removed")
	case "voters":
		l.put(result, verb, words[1])
	default:
		key, value, _ := strings.Cut(verb, "=")
		if appended, ok := strings.CutSuffix(key, "+"); ok {
			key, value = appended, l.state[appended]+value
		}
		l.put(result, key, value)
	}
}

// put changes a value; "" deletes it.
func (l *ledger) put(result *fact.Result, key, value string) {
	before, ok := l.state[key]
	switch {
	case value != "":
		l.state[key] = value
		result.Changes = append(result.Changes, wire.Change{Key: []byte(key), Value: []byte(value), Created: !ok})
	case before != "":
		delete(l.state, key)
		result.Changes = append(result.Changes, wire.Change{Key: []byte(key)})
	}
}

// named returns the members whose keys have a prefix, ascending.
func (l *ledger) named(prefix string) (ids []uint64) {
	for key := range l.state { // order: sorted below
		if id, ok := strings.CutPrefix(key, prefix); ok {
			ids = append(ids, number(id))
		}
	}
	slices.Sort(ids)
	return ids
}

func (l *ledger) Removed() []uint64 { return l.named("removed/") }

func (l *ledger) Members() (all []fact.MemberRecord) {
	for _, id := range l.named("member/") {
		all = append(all, fact.MemberRecord{ID: id, Registered: true, Silent: l.state[fmt.Sprint("member/", id)] == "silent"})
	}
	return all
}

func (l *ledger) GroupConfig() fact.GroupConfig {
	voters := l.state["voters"]
	if voters == "" {
		return fact.GroupConfig{}
	}
	return fact.GroupConfig{Voters: uint32(number(voters)), ReplaceAfter: 1}
}

func (l *ledger) Now() int64                        { return l.time }
func (l *ledger) NextDeadline() (int64, bool)       { return 0, false }
func (l *ledger) Level() (agreed, supported uint32) { return wire.BatchVersion, wire.BatchVersion }

func (l *ledger) Size() (size uint64) {
	for key, value := range l.state { // order: only added
		size += uint64(len(key) + len(value))
	}
	return size
}

// String returns what a script has put.
func (l *ledger) String() string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(l.state)) {
		if value := l.state[key]; !strings.Contains(key, "/") {
			pairs = append(pairs, fmt.Sprintf("%s=%s", key, value[:min(len(value), 12)]))
		}
	}
	return cmp.Or(strings.Join(pairs, " "), "nothing")
}

// number parses a number of a script.
func number(word string) uint64 {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}
