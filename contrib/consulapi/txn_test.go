package consulapi_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/contrib/consulapi"
	"github.com/conclave-go/conclave/internal/grouptest"
)

type txnAnswer struct {
	Results []struct{ KV pair }
	Errors  []struct {
		OpIndex int
		What    string
	}
}

// op is an operation of a transaction: its verb, its key, and further fields.
func op(verb, key string, more ...any) map[string]any {
	kv := map[string]any{"Verb": verb, "Key": key}
	for i := 0; i < len(more); i += 2 {
		kv[more[i].(string)] = more[i+1]
	}
	return map[string]any{"KV": kv, "Node": nil, "Service": nil, "Check": nil}
}

func value(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func (a *agent) txn(ops ...map[string]any) (answer, string) {
	a.t.Helper()
	body, err := json.Marshal(ops)
	grouptest.Must(a.t, err)
	got := a.do("PUT", "/v1/txn", string(body))
	if got.status != 200 && got.status != 409 {
		return got, got.body
	}
	v := decode[txnAnswer](a.t, got)
	var b strings.Builder
	for _, r := range v.Results {
		fmt.Fprintf(&b, "%s=%s;", r.KV.Key, r.KV.Value)
	}
	for _, e := range v.Errors {
		fmt.Fprintf(&b, "%d: %s", e.OpIndex, e.What)
	}
	return got, b.String()
}

func TestTxn_Answers(t *testing.T) {
	a := serve(t, nil)
	s, err := a.node.NewSession(t.Context(), nil)
	grouptest.Must(t, err)
	id, none := s.ID().String(), "adf4238a-882b-9ddc-4a9d-5b6758e4159e"
	for _, x := range []struct {
		name   string
		ops    []map[string]any
		status int
		want   string
	}{
		{"nothing", nil, 200, ""},
		{"set and get", []map[string]any{op("set", "a", "Value", value("1")), op("get", "a"), op("get-or-empty", "none")}, 200, "a=;a=1;none=;"},
		{"get", []map[string]any{op("get", "a"), op("check-not-exists", "none")}, 200, "a=1;"},
		{"get none", []map[string]any{op("get", "a"), op("get", "none")}, 409, `1: key "none" doesn't exist`},
		{"exists", []map[string]any{op("check-not-exists", "a")}, 409, `0: key "a" exists`},
		{"exists, with a write", []map[string]any{op("set", "b"), op("check-not-exists", "a")}, 409, `1: key "a" exists`},
		{"nothing of it was done", []map[string]any{op("check-not-exists", "b")}, 200, ""},
		{"set if new", []map[string]any{op("cas", "a", "Index", 0)}, 409, `0: failed to set key "a", index is stale`},
		{"index", []map[string]any{op("set", "b"), op("check-index", "a", "Index", 1)}, 409, `1: failed index check for key "a", current modify index...`},
		{"index of none", []map[string]any{op("check-index", "none", "Index", 1)}, 409, `0: failed to check index, key "none" doesn't exist`},
		{"unheld", []map[string]any{op("set", "b"), op("unlock", "a", "Session", id)}, 409, `1: failed to unlock key "a", lock isn't held, or is held by another session`},
		{"no session", []map[string]any{op("lock", "a", "Session", none)}, 409, fmt.Sprintf("0: invalid session %q", none)},
		{"no UUID", []map[string]any{op("lock", "a", "Session", "x")}, 409, `0: invalid session "x"`},
		{"lock", []map[string]any{op("lock", "l", "Session", id, "Value", value("v")), op("get", "l")}, 200, "l=;l=v;"},
		{"session", []map[string]any{op("check-session", "l", "Session", id), op("set", "a", "Value", value("2"))}, 200, "l=;a=;"},
		{"other session", []map[string]any{op("check-session", "l", "Session", none), op("set", "a", "Value", value("3"))}, 409, `0: failed session check for key "l", current session ...`},
		{"session, read only", []map[string]any{op("check-session", "l", "Session", id), op("check-session", "a", "Session", "")}, 200, "l=;a=;"},
		{"unlock", []map[string]any{op("unlock", "l", "Session", id, "Value", value("w")), op("get", "l")}, 200, "l=;l=w;"},
		{"tree", []map[string]any{op("get-tree", ""), op("get", "a")}, 200, "a=2;l=w;a=2;"},
		{"tree and write", []map[string]any{op("get-tree", ""), op("set", "b")}, 400, "operation 0: get-tree together with writes is not supported: it cannot be made atomic"},
		{"late check", []map[string]any{op("set", "l"), op("check-session", "l", "Session", id)}, 400, "operation 1: a check-session ..."},
		{"deleted", []map[string]any{op("delete", "l"), op("get-or-empty", "l")}, 200, "l=;"},
		{"get of deleted", []map[string]any{op("delete-tree", "a"), op("get", "a")}, 409, `1: key "a" doesn't exist`},
		{"stale deletion", []map[string]any{op("delete-cas", "none", "Index", 7), op("delete-cas", "a", "Index", 1)}, 409, `1: failed to delete key "a", index is stale`},
		{"deletion of none", []map[string]any{op("delete-cas", "none", "Index", 7), op("delete-tree", "")}, 200, ""},
		{"no verb", []map[string]any{op("", "a")}, 400, `operation 0: unknown KV verb ""`},
		{"no key", []map[string]any{op("set", "")}, 400, "operation 0: Must provide key"},
		{"no effect", []map[string]any{op("get", "a", "Index", 1)}, 400, `operation 0: field "index" has no effect with get`},
		{"no KV", []map[string]any{{"Node": map[string]any{"Verb": "get"}}}, 400, `operation 0: field "Node" is not supported`},
		{"namespace", []map[string]any{op("get", "a", "Namespace", "x")}, 400, `operation 0: field "Namespace" is not supported`},
		{"large value", []map[string]any{op("set", "a", "Value", value(strings.Repeat("x", 512<<10+1)))}, 413, `operation 0: Value for key "a" is too large (524289 > 524288 bytes)`},
		{"too many", make([]map[string]any, 129), 413, "Transaction contains too many operations (more than 128)"},
	} {
		got, text := a.txn(x.ops...)
		prefix, cut := strings.CutSuffix(x.want, "...")
		if got.status != x.status || cut && !strings.HasPrefix(text, prefix) || !cut && text != x.want {
			t.Errorf("%s: %d %q, want %d %q", x.name, got.status, text, x.status, x.want)
		}
	}
	a.exchanges([]exchange{
		{"PUT", "/v1/txn", "{}", 400, "Failed to parse body: ..."},
		{"PUT", "/v1/txn", strings.Repeat(" ", 2<<20+1), 413, "Request body too large, max size: 2097152 bytes"},
		{"PUT", "/v1/txn", "[]", 200, `{"Results":[],"Errors":null}`},
		{"GET", "/v1/txn", "", 405, "method not allowed"},
	})
}

// As in Consul, each operation that fails is reported; it sees what those before it would have changed, and one that
// fails changes nothing.
func TestTxn_EachFailure(t *testing.T) {
	a := serve(t, nil)
	s, err := a.node.NewSession(t.Context(), nil)
	grouptest.Must(t, err)
	other, err := a.node.NewSession(t.Context(), nil)
	grouptest.Must(t, err)
	id, foreign, none := s.ID().String(), other.ID().String(), "adf4238a-882b-9ddc-4a9d-5b6758e4159e"
	if _, text := a.txn(op("set", "a"), op("set", "tree/x"), op("lock", "held", "Session", id)); strings.Contains(text, ": ") {
		t.Fatal(text)
	}
	get := func(key string) map[string]any { return op("get", key) }
	for _, x := range []struct {
		name string
		ops  []map[string]any
		want string
	}{
		{"only reads", []map[string]any{get("x"), get("a"), op("check-not-exists", "a"), op("get-tree", ""), get("y")}, "0 2 4"},
		{"a lock without a session", []map[string]any{op("lock", "x"), get("x")}, "0 1"},
		{"a lock that the group refuses", []map[string]any{op("set", "b"), op("lock", "held", "Session", foreign), get("b"), get("x")}, "1 3"},
		{"locks that fail later", []map[string]any{
			op("lock", "x", "Session", none), op("lock", "held", "Session", foreign), op("unlock", "a", "Session", id),
			op("unlock", "held", "Session", id), op("lock", "held", "Session", foreign), op("lock", "x", "Session", "no UUID"),
		}, "0 1 2 5"},
		{"before what a read shows", []map[string]any{op("cas", "a", "Index", 1), op("delete-cas", "a", "Index", 1), get("a"), get("x")}, "0 1 3"},
		{"after a deletion", []map[string]any{op("cas", "a", "Index", 1), op("delete", "a"), get("a"), op("cas", "a", "Index", 0), get("a")}, "0 2"},
		{"after the deletion of a tree", []map[string]any{
			op("check-not-exists", "a"), op("delete-tree", "tree/"), get("tree/x"), op("set", "tree/x"), get("tree/x"),
			op("delete-tree", "tree/"), op("get-or-empty", "tree/x"), op("check-index", "tree/x", "Index", 1),
		}, "0 2 7"},
		{"written by the transaction", []map[string]any{get("x"), op("set", "x"), op("cas", "x", "Index", 1), op("cas", "x", "Index", 0), op("delete-cas", "none", "Index", 9), op("check-index", "x", "Index", 1)}, "0 2 3 5"},
	} {
		got, text := a.txn(x.ops...)
		if got.status != 409 {
			t.Errorf("%s: %d %s", x.name, got.status, text)
			continue
		}
		var indexes []string
		for _, e := range decode[txnAnswer](t, got).Errors {
			indexes = append(indexes, fmt.Sprint(e.OpIndex))
		}
		if strings.Contains(text, "18446744073709551615") {
			t.Errorf("%s: an index that no key has: %s", x.name, text)
		}
		if got := strings.Join(indexes, " "); got != x.want {
			t.Errorf("%s: operations %s are reported, want %s: %s", x.name, got, x.want, text)
		}
	}
	if got, text := a.txn(get("a"), get("tree/x"), op("check-session", "held", "Session", id)); got.status != 200 {
		t.Errorf("a failed transaction had an effect: %s", text)
	}
}

// The search for other failures takes a write that changes nothing, and a session that does not exist, as the group
// and Consul do.
func TestTxn_OtherFailuresAsInConsul(t *testing.T) {
	a := serve(t, nil)
	s, err := a.node.NewSession(t.Context(), nil)
	grouptest.Must(t, err)
	id, none := s.ID().String(), "adf4238a-882b-9ddc-4a9d-5b6758e4159e"
	if got, text := a.txn(op("lock", "held", "Session", id)); got.status != 200 {
		t.Fatal(text)
	}
	index := decode[[]struct{ ModifyIndex uint64 }](t, a.do("GET", "/v1/kv/held"))[0].ModifyIndex
	for _, x := range []struct {
		name string
		ops  []map[string]any
		want string
	}{
		{"after writes that change nothing", []map[string]any{
			op("set", "held"), op("check-index", "held", "Index", index), op("lock", "held", "Session", id), op("cas", "held", "Index", index), op("get", "x"),
		}, `4: key "x" doesn't exist`},
		{"a lock that is held, for no session", []map[string]any{op("get", "x"), op("lock", "held", "Session", none)},
			fmt.Sprintf(`0: key "x" doesn't exist1: invalid session %q`, none)},
	} {
		if got, text := a.txn(x.ops...); got.status != 409 || text != x.want {
			t.Errorf("%s: %d %s, want %s", x.name, got.status, text, x.want)
		}
	}
}

// A transaction that fails is not refused for the size of an answer that it does not have.
func TestTxn_FailureBeforeLargeReads(t *testing.T) {
	a := serve(t, &consulapi.Options{MaxAnswer: 1 << 10})
	large := strings.Repeat("x", 1<<10)
	a.do("PUT", "/v1/kv/large", large)
	for _, verb := range []string{"get", "get-tree"} {
		got, text := a.txn(op("get", "none"), op(verb, "large"))
		if want := `0: key "none" doesn't exist`; got.status != 409 || text != want {
			t.Errorf("%s: %d %s, want %s", verb, got.status, text, want)
		}
	}
	if got, text := a.txn(op("get", "large")); got.status != 413 {
		t.Errorf("an answer that is too large: %d %s", got.status, text)
	}
}

// What a transaction reads and writes is of one point in time, whatever others write.
func TestTxn_Atomic(t *testing.T) {
	a := serve(t, nil)
	kv := a.node.KV()
	pairOfKeys := func(i int) []conclave.Op {
		v := []byte(fmt.Sprint(i))
		return []conclave.Op{conclave.OpPut("x", v), conclave.OpPut("y", v)}
	}
	_, err := kv.Txn(t.Context(), pairOfKeys(0)...)
	grouptest.Must(t, err)
	done := make(chan error)
	go func() {
		var err error
		for i := 1; err == nil && i <= 300; i++ {
			_, err = kv.Txn(t.Context(), pairOfKeys(i)...)
		}
		done <- err
	}()
	for running := true; running; {
		select {
		case err := <-done:
			grouptest.Must(t, err)
			running = false
		default:
		}
		for _, ops := range [][]map[string]any{
			{op("get", "x"), op("get-tree", "y")},
			{op("get", "x"), op("get", "y"), op("set", "z")},
		} {
			got, text := a.txn(ops...)
			if got.status == 429 {
				continue
			}
			x, rest, _ := strings.Cut(strings.TrimPrefix(text, "x="), ";")
			if got.status != 200 || !strings.HasPrefix(rest, "y="+x+";") {
				t.Fatalf("%d %q", got.status, text)
			}
		}
	}
}
