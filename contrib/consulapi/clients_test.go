package consulapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/grouptest"
)

// Docker's libkv, valkeyrie and Stolon write with the X-Consul-Index of their last read as ?cas: of a key it is its
// ModifyIndex, whatever else was changed since.
func TestIndex_OfKeyIsItsModifyIndex(t *testing.T) {
	a := serve(t, nil)
	a.do("PUT", "/v1/kv/a", "1")
	a.do("PUT", "/v1/kv/other", "x")
	for _, query := range []string{"", "?raw", "?stale", "?consistent"} {
		index := a.do("GET", "/v1/kv/a"+query).header.Get("X-Consul-Index")
		if got := a.do("PUT", "/v1/kv/a?cas="+index, "2"+query); got.body != "true" {
			t.Errorf("%q: compare and swap with the index of the read, %s: %+v", query, index, got)
		}
		a.do("PUT", "/v1/kv/other", query)
	}
	index := a.do("GET", "/v1/kv/a").header.Get("X-Consul-Index")
	timed := a.do("GET", "/v1/kv/a?wait=20ms&index="+index)
	if got := timed.header.Get("X-Consul-Index"); timed.status != 200 || got != index {
		t.Errorf("a query that waited in vain has the index %s, want %s as before", got, index)
	}
	if got := a.do("DELETE", "/v1/kv/a?cas="+index); got.body != "true" {
		t.Error("compare and delete with the index of the read:", got)
	}
	var last uint64
	for _, x := range []struct{ method, path string }{{"GET", "/v1/kv/a"}, {"PUT", "/v1/kv/a"}, {"GET", "/v1/kv/a"}, {"DELETE", "/v1/kv/a"}, {"GET", "/v1/kv/a"}} {
		got := a.do(x.method, x.path)
		if x.method != "GET" {
			continue
		}
		var now uint64
		if _, err := fmt.Sscan(got.header.Get("X-Consul-Index"), &now); err != nil || now <= last {
			t.Errorf("the index of a key that was deleted or created is %d after %d: %v", now, last, err)
		}
		last = now
	}
}

// HashiCorp's client sends its Config.WaitTime with each request, writes included. Libkv and valkeyrie set it to their
// connection timeout.
func TestWait_WithEveryRequest(t *testing.T) {
	a := serve(t, nil)
	id := a.create("")
	a.exchanges([]exchange{
		{"PUT", "/v1/kv/a?wait=10000ms", "1", 200, "true"},
		{"PUT", "/v1/kv/l?wait=10000ms&acquire=" + id, "1", 200, "true"},
		{"GET", "/v1/kv/a?raw&wait=10000ms", "", 200, "1"},
		{"DELETE", "/v1/kv/a?wait=10000ms", "", 200, "true"},
		{"PUT", "/v1/txn?wait=10000ms", "[]", 200, `{"Results":[],"Errors":null}`},
		{"PUT", "/v1/session/create?wait=10000ms", "{}", 200, `{"ID":"...`},
		{"PUT", "/v1/session/renew/" + id + "?wait=10000ms", "", 200, "[..."},
		{"PUT", "/v1/session/destroy/" + id + "?wait=10000ms", "", 200, "true"},
		{"PUT", "/v1/agent/check/register?wait=10000ms", `{"Name":"c","TTL":"1h"}`, 200, ""},
		{"PUT", "/v1/agent/check/update/c?wait=10000ms", `{"Status":"passing"}`, 200, ""},
		{"PUT", "/v1/agent/check/deregister/c?wait=10000ms", "", 200, ""},
		{"PUT", "/v1/kv/a?wait=soon", "1", 400, "Invalid wait time"},
	})
}

// Consul takes the namespace and the partition from a header as well. A request for another one is not served from this one.
func TestTenant_OfHeader(t *testing.T) {
	a := serve(t, nil)
	for _, header := range []string{"X-Consul-Namespace", "X-Consul-Partition"} {
		for _, x := range []struct {
			value string
			want  int
		}{{"team", 400}, {"default", 200}} {
			got, err := a.try(t.Context(), "PUT", "/v1/kv/"+x.value, http.Header{header: {x.value}}, "x")
			if grouptest.Must(t, err); got.status != x.want {
				t.Errorf("%s: %s: %+v", header, x.value, got)
			}
		}
	}
	a.exchanges([]exchange{{"GET", "/v1/kv/?keys", "", 200, `["default"]`}})
}

// The command "consul members" and MembersOpts of HashiCorp's client always send a segment.
func TestMembers_Segment(t *testing.T) {
	a := serve(t, nil)
	a.exchanges([]exchange{
		{"GET", "/v1/agent/members?segment=_all", "", 200, `[{"Name":"...`},
		{"GET", "/v1/agent/members?segment=", "", 200, `[{"Name":"...`},
		{"GET", "/v1/agent/members?segment=east", "", 400, `query parameter "segment": want none, got "east": there are no segments`},
	})
}

// Java's consul-client (com.orbitz and org.kiwiproject) decodes no answer without these fields, which Consul always has.
func TestAgent_FieldsOfStrictClients(t *testing.T) {
	a := serve(t, nil)
	self := decode[map[string]map[string]any](t, a.do("GET", "/v1/agent/self"))
	members := decode[[]map[string]any](t, a.do("GET", "/v1/agent/members"))
	for _, x := range []struct {
		of     map[string]any
		fields string
	}{
		{self["Config"], "Datacenter NodeName Revision Server Version"},
		{self["Member"], "Name Addr Port Tags Status ProtocolMin ProtocolMax ProtocolCur DelegateMin DelegateMax DelegateCur"},
		{members[0], "Name Addr Port Tags Status ProtocolMin ProtocolMax ProtocolCur DelegateMin DelegateMax DelegateCur"},
	} {
		for _, field := range strings.Fields(x.fields) {
			if x.of[field] == nil {
				t.Errorf("no %s in %v", field, x.of)
			}
		}
	}
}

// Consul's parameter for its default consistency is leader.
func TestRead_Leader(t *testing.T) {
	a := serve(t, nil)
	a.exchanges([]exchange{
		{"PUT", "/v1/kv/a", "1", 200, "true"},
		{"GET", "/v1/kv/a?raw&leader", "", 200, "1"},
		{"GET", "/v1/session/list?leader", "", 200, "[]"},
		{"PUT", "/v1/kv/a?leader", "1", 400, `query parameter "leader" is not supported by this endpoint`},
	})
}

// Consul answers OPTIONS for each endpoint.
func TestMethods_Options(t *testing.T) {
	a := serve(t, nil)
	for path, want := range map[string]string{"/v1/kv/a?index=1": "DELETE, GET, OPTIONS, PUT", "/v1/txn": "OPTIONS, PUT", "/v1/session/list": "GET, OPTIONS"} {
		if got := a.do("OPTIONS", path); got.status != http.StatusOK || got.header.Get("Allow") != want || got.body != "" {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if got := a.do("OPTIONS", "/v1/none"); got.status != http.StatusNotFound {
		t.Error(got)
	}
}

// Rust's rs-consul reads each key with recurse=false. Consul looks for the parameter and not for its value, so the answer
// is a list. A deletion of that kind deletes a tree there; here it is refused.
func TestRecurse_OfAnyValue(t *testing.T) {
	a := serve(t, nil)
	a.do("PUT", "/v1/kv/a", "1")
	a.do("PUT", "/v1/kv/ab", "2")
	if got := decode[[]pair](t, a.do("GET", "/v1/kv/a?recurse=false")); len(got) != 2 || got[0].Key != "a" {
		t.Errorf("%+v", got)
	}
	a.exchanges([]exchange{
		{"GET", "/v1/kv/b?recurse=false", "", 404, ""},
		{"DELETE", "/v1/kv/a?recurse=false", "", 400, `query parameter "recurse": want no value, got "false": leave the parameter out instead`},
		{"GET", "/v1/kv/ab?raw", "", 200, "2"},
	})
}
