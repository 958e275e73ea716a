package machine

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// populated has something of each kind: held, awaited, delayed, of members and of clients.
func populated(t *testing.T) *Machine {
	d := newDriverAt(t, wire.LevelShards)
	for _, line := range []string{
		"check disk register ttl=5s", "open s ttl=1h delay=5s name=worker checks=disk,gossip", "open t ttl=none delete", "open u ttl=1h delay=5s",
		"lock x s/1 label=run_1", "lock y t/18446744073709551615 lingering", "lock z u/1", "lock ü s/1",
		"lock r s/1 shared label=run_2", "lock r t/3 shared", "lock r u/1 shared lingering", "lock q u/1 shared",
		"lock e s/1 election value=me", "lock f u/1 election value=gone", "acquire p s limit=9223 permits=2", "acquire p u limit=9223 permits=1",
		"resize idle limit=3", "write put a/1 v flags=18446744073709551615 ; put a/b/2 ''", "write acquire k v session=s", "write acquire l v session=u",
		"configure voters=3 replace=10s remove=20s", "remove-member member=9 voters=1", "close u",
	} {
		d.line(wire.Code_OK, "%s", line)
	}
	d.line(wire.Code_QUEUED, "lock x t/2 wait label=<&>")
	d.line(wire.Code_QUEUED, "lock y s/2 wait")
	d.line(wire.Code_QUEUED, "lock r s/2 wait")
	d.line(wire.Code_QUEUED, "lock r s/2 wait shared")
	d.registerClients(1, 2, MaxClientTTL, second)
	d.submit(ofClient(1, 2, openCommand(wire.ID{77}, 0, 0)), ofClient(1, 3, lockCommand("c", wire.ID{77}, 4)), ofClient(1, 4, growthAcquire(wire.ID{77}, 1, false)))
	d.want(wire.Code_OK, d.do(runCommand("j", "k", makeID("s"), 1, 0), runCommand("j", "l", makeID("s"), 1, 0), everyCommand("every", makeID("s"), 1, second)))
	d.want(wire.Code_OK, d.do(endCommand("j", "k", makeID("s"), 1, d.m.fence()-2, wire.RunResult_FAILED, "why")))
	d.want(wire.Code_QUEUED, d.do(runCommand("j", "l", makeID("s"), 2, 0)))
	d.want(wire.Code_OK, d.do(joinCommand("sh", 3, "s", 1, 1, second), joinCommand("sh", 3, "t", 1, 2, 0), joinCommand("two", 2, "t", 1, 2, 0)))
	return d.m
}

// codecRows are queries of each type, with answers and without.
func codecRows() []Query {
	s, e := makeID("s"), wire.Space_ELECTION
	return []Query{
		LockQuery{Name: "x"}, LockQuery{Name: "c"}, LockQuery{Name: "z"}, LockQuery{Name: "r"}, LockQuery{Name: "q"}, LockQuery{Name: "none"}, LockQuery{Space: e, Name: "e"}, LockQuery{Space: 77, Name: "x"},
		LocksQuery{}, LocksQuery{Prefix: "y", Limit: -1}, LocksQuery{After: "x", Limit: 1}, LocksQuery{Space: e}, LocksQuery{Prefix: "none"},
		LeaderQuery{"e"}, LeaderQuery{"f"}, LeaderQuery{""}, LeadersQuery{}, LeadersQuery{Prefix: "none"},
		SemaphoreQuery{"p"}, SemaphoreQuery{"many"}, SemaphoreQuery{"none"}, SemaphoresQuery{}, SemaphoresQuery{After: "z"},
		SessionQuery{s}, SessionQuery{wire.ID{77}}, SessionQuery{}, SessionsQuery{}, SessionsQuery{After: SessionCursor{1 << 63, s}},
		ChecksQuery{}, ChecksQuery{After: CheckCursor{1 << 63, "x"}, Limit: math.MaxInt}, KeyQuery{"a/1"}, KeyQuery{"a/b/2"}, KeyQuery{"none"}, KeyQuery{"l"},
		KeysQuery{}, KeysQuery{"a/"}, KeysQuery{"none"}, KeyNamesQuery{"a/", "/"}, KeyNamesQuery{Prefix: "none"}, KeyNamesQuery{},
		KeyPageQuery{}, KeyPageQuery{"a/", "/", "a/b/", 1}, KeyPageQuery{Prefix: "none", Limit: -1},
		SequencerQuery{"k", 1, s}, SequencerQuery{Key: "k"}, IndexQuery{}, GroupConfigQuery{}, GroupsQuery{}, GroupQuery{"tenants"}, FollowingQuery{}, RemovedQuery{9}, RemovedQuery{},
		HoldersQuery{Name: "p"}, HoldersQuery{Name: "p", After: 1 << 63, Limit: 1}, HoldersQuery{Name: "none", After: math.MaxUint64},
		JobQuery{"j"}, JobQuery{"none"}, JobsQuery{}, JobsQuery{Prefix: "e", Limit: 1}, JobsQuery{After: "z"},
		ShardsQuery{"sh"}, ShardsQuery{"none"}, ShardSetsQuery{}, ShardSetsQuery{Prefix: "s", Limit: 1}, ShardSetsQuery{After: "z"},
		WaitCyclesQuery{}, WaitCyclesQuery{wire.Ticket{Incarnation: wire.ID{255}, Seq: 1 << 63}},
		ExplainQuery{Name: "x"}, ExplainQuery{Name: "r"}, ExplainQuery{Name: "q"}, ExplainQuery{Name: "c", Limit: -5}, ExplainQuery{Space: e, Name: "e"}, ExplainQuery{Name: "none"},
	}
}

// Over a connection a query yields the answer that it yields at once, with its type.
func TestCodec_AnswersAsAsked(t *testing.T) {
	m := populated(t)
	for _, q := range codecRows() {
		kind, body, err := EncodeQuery(q)
		if err != nil {
			t.Errorf("%#v: %v", q, err)
			continue
		}
		sent, err := DecodeQuery(kind, body)
		if err != nil || sent != q {
			t.Errorf("%s %s: decoded as %#v, %v; want %#v", kind, body, sent, err, q)
			continue
		}
		want := q.Begin(m)()
		body, err = encodedAnswer(sent.Begin(m)())
		if err != nil {
			t.Errorf("%#v: %v", q, err)
		}
		if got, err := DecodeAnswer(kind, body); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%#v: %s\nas   %#v, %v\nwant %#v", q, body, got, err, want)
		}
	}
}

// Each type of query has a codec and a row above.
func TestCodec_Complete(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "Begin" && f.Recv != nil && !strings.HasSuffix(name, "_test.go") {
				types = append(types, f.Recv.List[0].Type.(*ast.Ident).Name)
			}
		}
	}
	var asked, kinds []string
	for _, q := range codecRows() {
		asked = append(asked, reflect.TypeOf(q).Name())
	}
	for _, c := range codecs() {
		kinds = append(kinds, c.kind)
	}
	types = slices.DeleteFunc(types, func(name string) bool { return name == "listingQuery" }) // it is not sent
	for _, all := range []*[]string{&types, &asked, &kinds} {
		slices.Sort(*all)
		*all = slices.Compact(*all)
	}
	if len(types) < 18 || !slices.Equal(types, asked) || len(kinds) != len(types) {
		t.Errorf("queries %v\nasked   %v\nkinds   %v", types, asked, kinds)
	}
}

func TestEncodeQuery_Refuses(t *testing.T) {
	for _, q := range []Query{
		LocksQuery{Prefix: "\xff"}, KeyNamesQuery{Prefix: "a", Separator: "\xc3"}, KeyQuery{Key: strings.Repeat("<", MaxQuery)},
		&LockQuery{Name: "x"}, nil,
	} {
		if kind, body, err := EncodeQuery(q); !errors.Is(err, ErrQuery) {
			t.Errorf("%.20v: %s %.30s, %v", q, kind, body, err)
		}
	}
	long := strings.Repeat("<", MaxName)
	if _, _, err := EncodeQuery(LocksQuery{Prefix: long, After: long}); err != nil {
		t.Error("the longest names:", err)
	}
}

func TestDecodeQuery_Refuses(t *testing.T) {
	for _, row := range [][2]string{
		{"", "{}"}, {"unknown", "{}"}, {"lock", ""}, {"lock", "[]"}, {"lock", `{"Name":1}`}, {"lock", `{"Name":"x"}{}`}, {"lock", `{"Name":"x"}]`},
		{"lock", `{"Filter":"x"}`}, {"locks", `{"Limit":1e400}`}, {"locks", `{"Limit":0.5}`}, {"locks", `{"Limit":99999999999999999999}`},
		{"lock", `{"Space":99999999999}`}, {"session", `{"ID":"x"}`}, {"session", `{"ID":"73000000-0000-0000-0000-00000000000"}`},
		{"session", `{"ID":"7300000000000000000000000000000000000"}`}, {"session", `{"ID":null,"ID":"73000000-0000-0000-0000-00000000000G"}`},
		{"sequencer", `{"LockIndex":-1}`}, {"lock", `{"Name":"` + strings.Repeat("x", MaxQuery) + `"}`}, {"lock", strings.Repeat("[", MaxQuery)},
	} {
		if q, err := DecodeQuery(row[0], []byte(row[1])); !errors.Is(err, ErrQuery) || q != nil || len(err.Error()) > 400 {
			t.Errorf("%s %.50s: %v, %v", row[0], row[1], q, err)
		}
	}
}

// Any bytes are a query or are refused, and a query that is accepted is answered within its
// limits.
func FuzzDecodeQuery(f *testing.F) {
	for _, q := range codecRows() {
		kind, body, err := EncodeQuery(q)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(kind, body)
	}
	f.Add("locks", []byte(`{"Limit":-9223372036854775808,"Prefix":"\ud800","After":"\u0000"}`))
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		m := populated(t)
		if _, err := DecodeAnswer(kind, body); err != nil && !errors.Is(err, ErrAnswer) {
			t.Error(err)
		}
		q, err := DecodeQuery(kind, body)
		if err != nil {
			if !errors.Is(err, ErrQuery) {
				t.Error(err)
			}
			return
		}
		answer := q.Begin(m)()
		if v := reflect.ValueOf(answer); v.Kind() == reflect.Slice && v.Len() > MaxPage {
			t.Errorf("%#v: %d items", q, v.Len())
		}
		encoded, err := encodedAnswer(answer)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := encodedAnswer(ForClient(q).Begin(m)()); err != nil || !bytes.Equal(same, encoded) {
			t.Errorf("%#v for a client: %s, %v, want %s", q, same, err, encoded)
		}
		if got, err := DecodeAnswer(kind, encoded); err != nil || !reflect.DeepEqual(got, answer) {
			t.Errorf("%#v: %#v, %v, want %#v", q, got, err, answer)
		}
	})
}

func encodedAnswer(answer any) (body []byte, err error) {
	for part, err := range EncodeAnswer(answer) {
		if err != nil {
			return nil, err
		}
		body = append(body, part...)
	}
	return body, nil
}

func TestEncodeAnswer_TooLarge(t *testing.T) {
	big := strings.Repeat("x", MaxAnswer)
	e := &fact.Entry{Key: "k", Value: []byte(big)}
	for _, answer := range []any{[]*fact.Entry{e}, []string{big, "x"}} {
		if _, err := encodedAnswer(answer); !errors.Is(err, ErrAnswerTooLarge) {
			t.Errorf("%T: %v", answer, err)
		}
	}
	for _, answer := range []any{(*SemaphoreView)(nil), []*fact.Entry(nil), []string{}} {
		if body, err := encodedAnswer(answer); err != nil || string(body) != "null" {
			t.Errorf("%T: %s, %v", answer, body, err)
		}
	}
	if _, err := encodedAnswer(func() {}); !errors.Is(err, ErrAnswer) {
		t.Error(err)
	}
	if _, err := DecodeAnswer("unknown", nil); !errors.Is(err, ErrAnswer) {
		t.Error(err)
	}
}
