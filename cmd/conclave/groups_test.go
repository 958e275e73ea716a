package main

import (
	"strings"
	"testing"
)

// A group is created, used by --further-group, listed and deleted.
func TestGroups(t *testing.T) {
	n := member(t, "")
	want(t, conclaveAt(n, "--further-group", "tenant", "locks"), 4, "group not found\nconclave groups lists the groups, and conclave groups NAME --create creates one.")
	if out := must(t, n, "groups", "tenant", "--create"); !strings.Contains(out, "--further-group") {
		t.Error(out)
	}
	must(t, n, "groups", "tenant", "--create")
	must(t, n, "kv", "put", "k", "of the default group")
	must(t, n, "--further-group", "tenant", "kv", "put", "k", "of tenant")
	if out := must(t, n, "--further-group", "tenant", "kv", "get", "k"); !strings.Contains(out, "of tenant") {
		t.Error(out)
	}
	if out := must(t, n, "kv", "get", "k"); !strings.Contains(out, "of the default group") {
		t.Error(out)
	}
	t.Setenv("CONCLAVE_FURTHER_GROUP", "tenant")
	want(t, conclaveAt(n, "lock", "nightly", "--", "true"), 0, "")
	if out := must(t, n, "status"); !strings.Contains(out, "anna") { // of the default group, whichever is used
		t.Error(out)
	}
	t.Setenv("CONCLAVE_FURTHER_GROUP", "")
	out := must(t, n, "groups")
	for _, part := range []string{"GROUP     NUMBER  LEADER  TERM", "conclave  0       anna", "tenant    1       anna"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing in\n%s", part, out)
		}
	}
	first, second, _ := strings.Cut(must(t, n, "groups", "-o", "json"), "\n")
	if g := decoded[groupView](t, first); g.Name != "conclave" || g.Leader == nil || len(g.Voters) != 1 {
		t.Errorf("%+v", g)
	}
	if g := decoded[groupView](t, second); g.Name != "tenant" || g.Number != 1 || g.Created == 0 {
		t.Errorf("%+v", g)
	}
	want(t, conclaveAt(n, "groups", "tenant", "--delete"), 4, "the group holds")
	want(t, conclaveAt(n, "groups", "tenant"), 2, "want --create or --delete")
	want(t, conclaveAt(n, "groups", "--create"), 2, "missing NAME")
	want(t, conclaveAt(n, "groups", "tenant", "--create", "--force"), 2, "want it with --delete")
	want(t, conclaveAt(n, "groups", "conclave", "--delete"), 2, "default group")
	must(t, n, "groups", "tenant", "--delete", "--force")
	want(t, conclaveAt(n, "groups", "tenant", "--delete"), 4, "group not found")
}

// What concerns the members is of the default group, also with --further-group; the leadership is not.
func TestGroups_MembersAndSettings(t *testing.T) {
	n := member(t, "")
	must(t, n, "groups", "tenant", "--create")
	if out := must(t, n, "--further-group", "tenant", "config", "--replace-after", "2m"); !strings.Contains(out, "replace-after:  2m0s") {
		t.Error(out)
	}
	if out := must(t, n, "config"); !strings.Contains(out, "replace-after:  2m0s") {
		t.Error(out)
	}
	want(t, conclaveAt(n, "--further-group", "tenant", "remove", "anna", "--force"), 2, "run conclave leave there")
	out := must(t, n, "--further-group", "tenant", "transfer", "anna")
	if !strings.Contains(out, "tenant  1       anna") || strings.Contains(out, "conclave") {
		t.Error(out)
	}
}
